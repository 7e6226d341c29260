"""Checks a driver file: python -m labengine.driven.conformance DRIVER.py; see docs/add-a-driver.md."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from labengine.config import ConfigError
from labengine.driven.calls import last_frames
from labengine.driven.drive import driven
from labengine.driven.process import DrivenEngine, EngineLostError, EngineProcess
from labengine.finder.engines.scopes import file_scopes
from labengine.finder.engines.search import find_in_engine

SECONDS = 600.0
"""Most seconds of each search."""


def broken_promise(process: EngineProcess, file: str) -> list[str]:
    """Return the first sentence on what the driver file lacks, judged in its process; empty if it lacks nothing."""
    try:
        answer = process.ask({"contract": file_scopes(file)[0].settings}, SECONDS)
    except EngineLostError as lost:
        return [f"the engine is lost in its first requests: {lost}"]
    if error := answer["error"]:
        name, message, trace, _, method = error
        return [f"{method} raises {name} in the first requests: {message or 'without a message'}\n{last_frames(trace)}"]
    return list(answer["broken"])


def check(file: str, python: str | None = None, num_workloads: int = 300, seed: int = 0) -> list[str]:
    """Return what is wrong with a driver file or its engine; empty if nothing is."""
    one = driven(file, python, None)
    with EngineProcess(DrivenEngine(one.name, one.python)) as process:
        found = broken_promise(process, one.name)
    if found:
        return found
    options: dict[str, Any] = {"seconds": SECONDS, "seed": seed, "max_workloads": num_workloads}
    for against in (None, DrivenEngine(one.name, one.python)):  # its states; and the same states in another process
        searched = find_in_engine(one.name, one.python, against=against, **options)
        if searched or searched.num_workloads < num_workloads:
            return [str(searched)]
    return []


def main(arguments: list[str] | None = None) -> int:
    """Print what is wrong; return 0 if nothing is, 1 if something is, 2 if the file cannot be driven."""
    parser = argparse.ArgumentParser(prog="python -m labengine.driven.conformance", description=__doc__)
    parser.add_argument("file", metavar="DRIVER.py")
    parser.add_argument("--python", metavar="PATH", help="the engine's interpreter (this one)")
    parser.add_argument("--workloads", type=int, default=300, metavar="N", help="random workloads (300)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the workloads (0)")
    asked = parser.parse_args(arguments)
    try:
        found = check(asked.file, asked.python, asked.workloads, asked.seed)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(found) or f"It keeps the contract: {asked.workloads:,} random workloads, each played three times.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
