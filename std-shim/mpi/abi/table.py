#!/usr/bin/env python3
"""Makes the table of the MPI ABI from its two sources, and says where they differ.

    table.py MPI_ABI_H        writes functions.txt and constants.txt beside this script

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
    functions = {**implemented, **stated}
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
    print(f"{len(functions)} functions, {len(known)} constants")


main()
