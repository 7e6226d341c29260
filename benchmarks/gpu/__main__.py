"""Test the engine on a GPU, and compare its speed with its peers and with the GPU's limits.

    python benchmarks/gpu --first [--budget SECONDS] [--out DIR] [--only "STAGE;STAGE"]
    python benchmarks/gpu --peers [--budget SECONDS] [--out DIR] [--only "ENGINE;PROFILE"] [--rounds 3]
    both:                 [--brought .gpu] [--nano CHECKOUT] [--fa3 LIBRARY]

--first: correctness stages in parallel (kernels, sampler, labs and graphs, wide tables, memcheck of a part), then
stages that need the card alone (memory, loads, the GPU's limits, figures of the attention kernels).
--peers: nano-vLLM's workload at Qwen3-0.6B's shape with random weights. Each round runs ours in blocks of 16, the
peers, ours by Triton and ours in blocks of 256; then profiles of decode steps, with the cost of recording. The table
has medians, shares of the limit (every step reads the weights and all contexts once; prompts have to be multiplied),
and ratios within rounds.

A borrowed machine is lent by the minute: everything ends within the budget, each part is a process group that is killed
at its limit, and a part that fails or hangs does not affect the others. Verdicts are printed and written at once, to
DIR/verdicts.jsonl; all output goes to DIR/all.log, figures to DIR/*.json. DIR is $OUT, or a temporary folder. Without
a budget, limits are ten times as long. The exit status is 1 if something failed.

Only torch, Triton and the tests' packages have to be installed, and no network is needed: --brought names a folder with
all that the machine lacks (brought.py lists its content, docs/gpu.md tells how to fill it). CHECKOUT: the folder of
nano-vLLM's sources. --fa3: if flash-attn cannot be built, vLLM's kernels (_vllm_fa3_C.abi3.so, or its .xz) provide FA3
for us, and flash_attn's calls for nano-vLLM.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

import first
import peers
from brought import ROOT, WORK, find_brought
from stages import Budget, Journal, Run


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line. only: the set of picked names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command = parser.add_mutually_exclusive_group(required=True)
    command.add_argument("--first", action="store_true")
    command.add_argument("--peers", action="store_true")
    parser.add_argument("--budget", type=float)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or WORK / "out"))
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brought", type=Path, default=ROOT / ".gpu")
    parser.add_argument("--nano", default=os.environ.get("LABENGINE_NANO_VLLM"))
    parser.add_argument("--fa3", default=os.environ.get("LABENGINE_FA3_LIBRARY"))
    selected = parser.parse_args(arguments)
    selected.only = {name.strip() for name in selected.only.split(";") if name.strip()}
    known = first.names() if selected.first else peers.names()
    if unknown := selected.only - {*known}:
        parser.error(f"--only: unknown {'; '.join(sorted(unknown))}; known: {'; '.join(known)}")
    return selected


def main() -> None:
    """Run one of the two commands."""
    selected = options()
    signal.signal(signal.SIGTERM, _interrupt)  # so that children are killed before this process ends
    brought = find_brought(selected.brought.resolve(), selected.nano, selected.fa3)
    run = Run(Journal(selected.out.resolve()), Budget(selected.budget), brought.environment(), brought.work)
    try:
        if selected.first:
            first.run_first(run, brought, selected.only)
        else:
            peers.run_peers(run, brought, selected.rounds, selected.only)
    finally:
        print(f"\n{run.journal.report()}\n", flush=True)
        run.journal.say(f"the end; all output is in {run.journal.folder}")
    raise SystemExit(int(any(outcome.has_failed for outcome in run.journal.outcomes)))


def _interrupt(*_: Any) -> None:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
