#!/usr/bin/env python3
"""Makes the table of the MPI ABI from its two sources, and says where they differ.

    table.py MPI_ABI_H        writes functions.txt, constants.txt and callbacks.txt beside this script,
                              and the C header of them, include/mpi.h

The sources are the prototypes of the standard (package pympistandard) and the header of an implementation of the ABI.
The standard wins where both have a function; the header alone has the values of constants.
"""

import pathlib
import re
import sys

import pympistandard

pympistandard.use_api_version(1, force_bundled=True)

HERE = pathlib.Path(__file__).parent
# What the standard's bundled data lacks or states wrongly, and what is right.
CORRECTED = {
    "MPI_Info_create_env": "int MPI_Info_create_env(int argc, char *argv[], MPI_Info *info)",
    "MPI_Pcontrol": "int MPI_Pcontrol(const int level, ...)",
}


# What the standard's index has and neither source declares.
ADDED = {
    "MPI_Psend_init_c": "int MPI_Psend_init_c(const void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, "
    "int dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request)",
    "MPI_Precv_init_c": "int MPI_Precv_init_c(void *buf, int partitions, MPI_Count count, MPI_Datatype datatype, "
    "int source, int tag, MPI_Comm comm, MPI_Info info, MPI_Request *request)",
}


def normal(prototype):
    """One spelling of a prototype: `type name`, stars at the name, arrays with brackets, no comments."""
    text = re.sub(r"/\*.*?\*/", "", prototype.strip().rstrip(";")).strip()
    returns, name, arguments = re.match(r"(\w+)\s+(P?MPI_\w+)\s*\((.*)\)$", text, re.S).groups()
    out = []
    for argument in (re.sub(r"\s+", " ", part).strip() for part in arguments.split(",")):
        if argument in ("void", "..."):
            out.append(argument)
            continue
        kind, stars, parameter, array = re.match(r"(.*?)\s*(\**)\s*(\w+)\s*((?:\[\w*\])*)$", argument).groups()
        if kind.endswith("*"):
            kind, more = re.match(r"(.*?)\s*(\*+)$", kind).groups()
            stars = more + stars
        out.append(f"{kind} {stars}{parameter}{array}")
    return f"{returns} {name}({', '.join(out)})"


def shape(prototype):
    """A prototype without the names of parameters, with arrays as pointers and without const."""
    returns, name, arguments = re.match(r"(\w+) (\w+)\((.*)\)$", prototype).groups()
    kinds = []
    for argument in arguments.split(", "):
        stars = argument.count("*") + argument.count("[")
        kinds.append(re.sub(r"[\w]+(\[\w*\])*$", "", argument.replace("const ", "").replace("*", "")).strip() + "*" * stars)
    return returns, name, tuple(kinds)


def standard():
    found = {}
    for procedure in pympistandard.PROCEDURES.values():
        for express in (procedure.express.iso_c, procedure.express.embiggen and procedure.express.embiggen.iso_c):
            if express is None:
                continue
            text = str(express)
            name = re.search(r"(MPI_\w+)\s*\(", text).group(1)
            # The ABI has no Fortran handles.
            if not re.search(r"MPI_Fint|MPI_F08_status", text):
                found.setdefault(name, normal(CORRECTED.get(name, text)))
    return found


TYPES = """/* The standard ABI of MPI 5.0. Made by abi/table.py of the tables beside it: change those. */
#ifndef UNISONO_MPI_H
#define UNISONO_MPI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset;
typedef MPI_Offset MPI_Count;

typedef struct MPI_Status {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;

typedef int MPI_T_cb_safety;
typedef int MPI_T_source_order;

"""
HANDLES = (
    "Comm Group Datatype Op Request Message Info Errhandler Win File Session T_enum T_cvar_handle T_pvar_handle "
    "T_pvar_session T_event_registration T_event_instance"
).split()
OTHER_NAMES = {"MPI_Comm_errhandler_fn", "MPI_File_errhandler_fn", "MPI_Win_errhandler_fn", "MPI_Session_errhandler_fn"}


def c_header(functions, constants, callbacks):
    text = TYPES + "".join(f"typedef struct unisono_{name} *MPI_{name};\n" for name in HANDLES) + "\n"
    for callback in callbacks:
        returns, name, arguments = re.match(r"(\w+) (\w+)\((.*)\)$", callback).groups()
        text += f"typedef {returns} {name}({arguments});\n"
    for name in sorted(OTHER_NAMES):
        text += f"typedef {name.replace('_fn', '_function')} {name};\n"
    text += "\n"
    for name, (kind, value) in constants.items():
        text += f"#define {name} {value}\n" if kind == "int" else f"#define {name} (({kind}){value})\n"
    text += "\n"
    for name in sorted(functions):
        returns, arguments = re.match(r"(\w+) \w+\((.*)\)$", functions[name]).groups()
        # A compiler takes a constant that is passed as an array for an array without elements.
        arguments = re.sub(r"(\w+)\[\](?!\[)", r"*\1", arguments)
        for twin in (name, "P" + name):
            text += f"{returns} {twin}({arguments});\n"
    return text + "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n"


def main():
    header = pathlib.Path(sys.argv[1]).read_text()
    lines = [line for line in header.splitlines() if re.match(r"(int|double|MPI_\w+) MPI_\w+\(", line)]
    implemented = {re.search(r"(MPI_\w+)\(", line).group(1): normal(re.sub(r"/\*.*", "", line)) for line in lines}
    stated = standard()
    for name in sorted(stated.keys() | implemented.keys()):
        if name not in implemented:
            print(f"only in the standard: {stated[name]}")
        elif name not in stated:
            print(f"only in the header: {implemented[name]}")
        elif shape(stated[name]) != shape(implemented[name]):
            print(f"differ: {stated[name]}\n        {implemented[name]}")
    functions = {**implemented, **stated, **{name: normal(text) for name, text in ADDED.items()}}
    # The header's own extensions are not of the standard.
    functions = {name: text for name, text in functions.items() if not name.startswith("MPIX_")}
    (HERE / "functions.txt").write_text("".join(functions[name] + "\n" for name in sorted(functions)))

    constants = []
    for name, kind, value in re.findall(r"#define (MPI_\w+)\s+\(\((\w+ ?\**)\)\s*\(?(-?\w+)\)?\)", header):
        constants.append((name, kind.strip(), int(value, 0)))
    for name, value in re.findall(r"^\s*(MPI_\w+)\s*=\s*(-?\w+)", header, re.M):
        constants.append((name, "int", int(value, 0)))
    for name, value in re.findall(r"#define (MPI_\w+)\s+(-?\d+)\b", header):
        constants.append((name, "int", int(value, 0)))
    for name, kind, value in re.findall(r"#define (MPI_\w+)\s+\(\((\w+) ?\*{1,3}\)(\w+)\)", header):
        constants.append((name, kind + "*", int(value, 0)))
    known = {}
    for name, kind, value in constants:
        known.setdefault(name, (kind, value))
    for name, other in re.findall(r"#define (MPI_\w+)\s+(MPI_[A-Z_0-9]+)\s*$", header, re.M):
        known[name] = known[other]
    text = "".join(f"{name} {kind.replace(' ', '')} {value}\n" for name, (kind, value) in known.items())
    (HERE / "constants.txt").write_text(text)
    callbacks = []
    for line in re.findall(r"^typedef (?!struct|enum)(\w+ \(MPI_\w+\) ?\(.*?\));", header, re.M):
        returns, name, arguments = re.match(r"(\w+) \((\w+)\) ?\((.*)\)$", re.sub(r"\s+", " ", line)).groups()
        callbacks.append(normal(f"{returns} {name}({arguments})"))
    (HERE / "callbacks.txt").write_text("".join(text + "\n" for text in callbacks))
    (HERE.parent / "include" / "mpi.h").write_text(c_header(functions, known, callbacks))
    print(f"{len(functions)} functions, {len(known)} constants")


main()
