"""Which mutants find() sees, told nothing about them, one line of JSON each; by default those of state and stream.

    PYTHONPATH=tests:tests/support python -m mutants.searched [--workloads 1500] [NAME ...]

Every mutant has its own process, in which production's classes are changed; the editions are searched in turn. Counted,
not timed: a mutant that is not found takes until all small scopes are searched.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from time import monotonic
from typing import Any

from mutants.patched import in_a_fork
from mutants.table import MUTANTS, tree, urgency
from mutants.table.mutant import Mutant

EDITIONS = ("labengine", "vllm", "nano-vllm+243")
TREE_EDITIONS = ("mini-sglang+142", "labengine-radix")
KINDS = ("rule", "raises", "liveness")


def main() -> None:
    """Print name, kind, rule, operations and states of each finding, and how many of how many were found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", type=int, default=1500)
    parser.add_argument("names", nargs="*")
    asked, known = parser.parse_args(), {mutant.name: mutant for mutant in MUTANTS}
    names = asked.names or [name for name, mutant in known.items() if mutant.kind in ("state", "stream")]
    num_found = 0
    for name in names:
        searched = partial(_searched, known[name], asked.workloads)
        said = in_a_fork(known[name], searched) or json.dumps({"name": name, "kind": None})
        print(said, flush=True)
        num_found += json.loads(said)["kind"] is not None
    print(json.dumps({"found": num_found, "of": len(names)}))


def _editions(mutant: Mutant) -> tuple[Any, ...]:
    """Return the names of editions that use the code of a mutant, or parts that do."""
    from labengine.core.parts import Parts
    from labengine.core.waiting_queue import PriorityQueue

    if mutant in urgency.MUTANTS:
        return (Parts(waiting_queue=PriorityQueue),)
    return TREE_EDITIONS if mutant in tree.MUTANTS else EDITIONS


def _searched(mutant: Mutant, max_workloads: int) -> str:
    from labengine.finder.find import find

    started = monotonic()
    for edition in _editions(mutant):
        settings: dict[str, Any] = {"max_workloads": max_workloads, "workers": 0, "seconds": 3600}
        found = find(edition, kinds=KINDS, show_progress=False, **settings)
        if found:
            line = {"kind": found.kind, "rule": found.rule, "operations": len(found.operations)}
            break
    else:
        line = {"kind": None}
    line = {"name": mutant.name, **line, "states": found.num_states, "seconds": round(monotonic() - started, 1)}
    return json.dumps(line)


if __name__ == "__main__":
    main()
