"""Compare the core with its peers: one table of microseconds and ratios.

    python benchmarks/core [--rounds 3] [--vllm PYTHON] [--nano CHECKOUT] [--edition labengine]

PYTHON: an interpreter with vLLM 0.32 (default: LABENGINE_VLLM_PYTHON). CHECKOUT: nano-vLLM at bb823b3 (default:
LABENGINE_NANO_VLLM). Each implementation runs in a separate process, in turns. The figures are medians of the rounds,
and the ratios are ours / theirs, so below 1 we are faster. A missing peer is left out, with a note.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

CASES = str(Path(__file__).with_name("cases.py"))
Rows = dict[str, float]


def measured(python: str, implementation: str, **environment: str) -> tuple[str, Rows]:
    """Measure one implementation in one process."""
    command = [python, CASES, implementation]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    return result["name"], result["rows"]


def medians(rounds: list[Rows]) -> Rows:
    """Return the median of each case."""
    return {case: median(rows[case] for rows in rounds) for case in rounds[0]}


def table(ours: tuple[str, Rows], peers: list[tuple[str, Rows]]) -> str:
    """Return a Markdown table of our microseconds, theirs, and the ratio."""
    names = [name for name, _ in peers]
    lines = [
        f"| microseconds | {ours[0]} | " + "".join(f"{name} | ratio | " for name in names),
        "|---|---:|" + "---:|---:|" * len(names),
    ]
    for case, figure in ours[1].items():
        cells = ""
        for _, rows in peers:
            cells += f"{rows[case]:.3g} | {figure / rows[case]:.2f} | " if case in rows else "| | "
        lines.append(f"| {case} | {figure:.3g} | {cells}")
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Measure in turns, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vllm", default=os.environ.get("LABENGINE_VLLM_PYTHON"))
    parser.add_argument("--nano", default=os.environ.get("LABENGINE_NANO_VLLM"))
    parser.add_argument("--edition", default="labengine")
    selected = parser.parse_args()
    runs: dict[str, tuple[str, dict[str, str]]] = {
        "ours": (sys.executable, {"LABENGINE_EDITION": selected.edition}),
    }
    if selected.vllm:
        runs["vllm"] = (selected.vllm, {})
    if selected.nano:
        runs["nano"] = (sys.executable, {"LABENGINE_NANO_VLLM": selected.nano})
    for absent in {"vllm", "nano"} - set(runs):
        print(f"{absent}: left out; name it with --{absent}")
    names: dict[str, str] = {}
    rounds: dict[str, list[Rows]] = {implementation: [] for implementation in runs}
    for _ in range(selected.rounds):
        for implementation, (python, environment) in runs.items():
            names[implementation], rows = measured(python, implementation, **environment)
            rounds[implementation].append(rows)
    ours, *peers = ((names[implementation], medians(rows)) for implementation, rows in rounds.items())
    print(table(ours, peers))


if __name__ == "__main__":
    main()
