"""Record what upstream nano-vLLM holds after every step of 200 random workloads, into tests/golden.

git clone https://github.com/GeeeekExplorer/nano-vllm && git -C nano-vllm checkout bb823b3
git -C nano-vllm worktree add ../nano-vllm-2025-07 38baf0b
LABENGINE_NANO_VLLM=nano-vllm LABENGINE_NANO_VLLM_2025_07=nano-vllm-2025-07 python tests/record_golden.py

Either variable alone records that version only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from differential import golden, nano_upstream_2025_07
from differential.nano_upstream import COMMIT, EDITIONS, VARIABLE, Upstream, find_checkout
from workloads import random_workload

NUM_WORKLOADS = 200

ROWS = (
    "after each step: scheduled [[request, tokens]]; requests {id: [num_tokens, num_computed_tokens, block table]}; "
    "ref_counts by block; free_queue, next victim first; map [[a block's own tokens, block id]] sorted"
)


URL = "https://github.com/GeeeekExplorer/nano-vllm"


def main() -> int:
    """Record what the environment names a checkout for; the exit status."""
    checkout, checkout_old = find_checkout(), nano_upstream_2025_07.checkout_2025_07()
    if checkout is None and checkout_old is None:
        old = nano_upstream_2025_07
        print(f"Set {VARIABLE} to a checkout of nano-vLLM at {COMMIT}, or {old.VARIABLE} to one at {old.COMMIT}.")
        return 2
    if checkout is not None:
        _record(Upstream(checkout))
    if checkout_old is not None:
        _record_2025_07(nano_upstream_2025_07.Upstream202507(checkout_old))
    return 0


def _record(upstream: Upstream) -> None:
    workloads = [random_workload(seed) for seed in range(NUM_WORKLOADS)]
    for edition in EDITIONS:
        late_merge = {"late merge": "as pull request 243 describes it" if "243" in edition else "none"}
        header = _header(COMMIT, edition, VARIABLE, "nano-vllm", late_merge)
        _write(edition, header, ((w.to_dict(), upstream.run(w, edition)) for w in workloads))


def _record_2025_07(upstream: nano_upstream_2025_07.Upstream202507) -> None:
    edition, variable = nano_upstream_2025_07.EDITION, nano_upstream_2025_07.VARIABLE
    note = {"map": "without entries that lead to a block of other content by now"}
    header = _header(nano_upstream_2025_07.COMMIT, edition, variable, "nano-vllm-2025-07", note)
    workloads = [nano_upstream_2025_07.workload_2025_07(seed) for seed in range(NUM_WORKLOADS)]
    _write(edition, header, ((w.to_dict(), upstream.run(w)) for w in workloads))


def _header(commit: str, edition: str, variable: str, checkout: str, notes: dict[str, str]) -> dict[str, str]:
    command = f"{variable}={checkout} python tests/record_golden.py"
    return {"upstream": URL, "commit": commit, "edition": edition, **notes, "command": command, "rows": ROWS}


def _write(edition: str, header: dict[str, str], runs: Iterable[tuple[dict[str, Any], list[golden.Row]]]) -> None:
    golden.write(edition, header, runs)
    path = golden.golden_path(edition)
    print(f"{edition}: {NUM_WORKLOADS} workloads, {path.stat().st_size // 1024} KiB in {path.name}")


if __name__ == "__main__":
    sys.exit(main())
