"""Which mutants find() sees, told nothing about them, one line of JSON each; by default those of state and stream.

    PYTHONPATH=tests:tests/support python -m mutants.searched [--seconds 60] [NAME ...]

Every mutant has a process of its own in which production's classes are changed; the editions are searched in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from time import monotonic

from mutants.patched import install
from mutants.table import MUTANTS, Mutant

EDITIONS = ("labengine", "vllm", "nano-vllm+243")
MAX_BYTES = 8 << 30
KINDS = ("rule", "raises", "liveness")


def main() -> None:
    """Print name, kind, rule, operations and states of each finding, and how many of how many were found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("names", nargs="*")
    asked, known = parser.parse_args(), {mutant.name: mutant for mutant in MUTANTS}
    names = asked.names or [name for name, mutant in known.items() if mutant.kind in ("state", "stream")]
    num_found = 0
    for name in names:
        num_found += _in_a_fork(known[name], asked.seconds)
    print(json.dumps({"found": num_found, "of": len(names)}))


def _in_a_fork(mutant: Mutant, seconds: float) -> bool:
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, resource.RLIM_INFINITY))
        found = _searched(mutant, seconds)
        sys.stdout.flush()
        os._exit(0 if found else 1)
    _, status = os.waitpid(child, 0)
    return status == 0


def _searched(mutant: Mutant, seconds: float) -> bool:
    install(mutant)
    from labengine.finder.find import find

    started = monotonic()
    for edition in EDITIONS:
        found = find(edition, seconds=seconds / len(EDITIONS), kinds=KINDS, show_progress=False)
        if found:
            line = {"kind": found.kind, "rule": found.rule, "operations": len(found.operations)}
            break
    else:
        line = {"kind": None}
    line = {"name": mutant.name, **line, "states": found.num_states, "seconds": round(monotonic() - started, 1)}
    print(json.dumps(line), flush=True)
    return bool(found)


if __name__ == "__main__":
    main()
