"""Record what upstream nano-vLLM holds after every step of 200 random workloads, into tests/golden.

git clone https://github.com/GeeeekExplorer/nano-vllm && git -C nano-vllm checkout bb823b3
LABENGINE_NANO_VLLM=nano-vllm python tests/record_golden.py
"""

from __future__ import annotations

import sys

from differential import golden
from differential.nano_upstream import COMMIT, EDITIONS, VARIABLE, Upstream, find_checkout
from workloads import random_workload

NUM_WORKLOADS = 200

ROWS = (
    "after each step: scheduled [[request, tokens]]; requests {id: [num_tokens, num_computed_tokens, block table]}; "
    "ref_counts by block; free_queue, next victim first; map [[a block's own tokens, block id]] sorted"
)


def main() -> int:
    """Record both editions; the exit status."""
    checkout = find_checkout()
    if checkout is None:
        print(f"Set {VARIABLE} to a checkout of nano-vLLM at {COMMIT}.", file=sys.stderr)
        return 2
    upstream = Upstream(checkout)
    workloads = [random_workload(seed) for seed in range(NUM_WORKLOADS)]
    for edition in EDITIONS:
        header = {
            "upstream": "https://github.com/GeeeekExplorer/nano-vllm",
            "commit": COMMIT,
            "edition": edition,
            "late merge": "as pull request 243 describes it" if "243" in edition else "none",
            "command": f"{VARIABLE}=nano-vllm python tests/record_golden.py",
            "rows": ROWS,
        }
        golden.write(edition, header, ((w, upstream.run(w, edition)) for w in workloads))
        path = golden.golden_path(edition)
        print(f"{edition}: {NUM_WORKLOADS} workloads, {path.stat().st_size // 1024} KiB in {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
