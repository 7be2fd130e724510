#!/usr/bin/env python3
"""Runs the programs of MPICH's test/mpi as their testlists say, and prints what passes per folder.

    mpich.py BUILD SOURCE --start 'COMMAND with {n}' [--most N] [--out FILE] [--against FOLDER] FOLDER…

BUILD is the configured folder in which the programs were built, SOURCE the folder test/mpi of MPICH. `{n}` in the command
is the number of ranks. A program passes if it prints ` No Errors` and nothing that looks like an error, or if it fails as
its line expects. With --against, only programs that passed in earlier runs count, whose --out files are in that folder,
and those that fail here are listed. Exits with 1 if there are any.
"""

import argparse
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys

# Seconds that a program may take where its line names no limit, as in MPICH's runtests.
LIMIT = 180


def entries(build, source, folder):
    path = build / folder / "testlist"
    if not path.exists():
        path = source / folder / "testlist"
    for line in path.read_text().splitlines():
        words = shlex.split(line.split("#")[0])
        if len(words) < 2 or not words[1].isdigit():
            continue
        options = [word.split("=", 1) for word in words[2:] if "=" in word and ">=" not in word]
        get = lambda name: [value for key, value in options if key == name]
        if "false" in get("strict") or "TRUE" in [value.upper() for value in get("xfail")]:
            continue
        yield {
            "name": words[0],
            "ranks": int(words[1]),
            "arguments": [part for value in get("arg") for part in value.split()],
            "seconds": int((get("timeLimit") or [LIMIT])[0]),
            "result": (get("resultTest") or [""])[0],
            "environment": dict(value.split("=", 1) for value in get("env") if "=" in value),
        }


def passes(entry, program, start, limit):
    command = shlex.split(start.format(n=entry["ranks"])) + [str(program)] + entry["arguments"]
    process = subprocess.Popen(
        command,
        cwd=program.parent,
        env={**os.environ, **entry["environment"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=min(entry["seconds"], limit or entry["seconds"]))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False, "no end"
    text = output.decode(errors="replace")
    if entry["result"] in ("TestStatus", "TestErrFatal"):
        return process.returncode != 0, text
    if entry["result"] == "TestAllErrFatal" or entry["result"] == "TestStatusNoErrors":
        return "no errors" in text.lower(), text
    lines = [line.strip().lower() for line in text.splitlines()]
    clean = all(line in ("", "no errors") for line in lines)
    return process.returncode == 0 and "no errors" in lines and clean, text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--start", required=True)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--limit", type=int, help="most seconds of any program")
    parser.add_argument("--only")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--against", type=pathlib.Path)
    parser.add_argument("--except", dest="exceptions", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--show", action="store_true")
    parser.add_argument("folders", nargs="+")
    options = parser.parse_args()
    reference = None
    if options.against:
        reference = {}
        for path in options.against.glob("*.json"):
            reference.update(json.loads(path.read_text()))
    results, worse = {}, []
    lines = [line for path in options.exceptions for line in path.read_text().splitlines()]
    exceptions = {line.split("#")[0].strip() for line in lines}
    for folder in options.folders:
        counted = passed = 0
        for entry in entries(options.build, options.source, folder):
            key = " ".join([folder + "/" + entry["name"], str(entry["ranks"]), *entry["arguments"]])
            program = options.build / folder / entry["name"]
            if not program.exists() or entry["ranks"] > options.most or options.only and options.only not in key:
                continue
            if reference is not None and not reference.get(key) or folder + "/" + entry["name"] in exceptions:
                continue
            counted += 1
            results[key], text = passes(entry, program.resolve(), options.start, options.limit)
            passed += results[key]
            if not results[key]:
                worse.append(key)
                print(f"FAIL {key}", *(text.splitlines()[:6] if options.show else []), sep="\n    ", flush=True)
        print(f"{folder}: {passed} of {counted}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1))
    sys.exit(bool(worse and reference is not None))


main()
