"""Record what SGLang and mini-sglang hold after every iteration of some 200 random workloads, into tests/golden.

pip download --no-deps sglang==0.5.23 && unzip sglang-0.5.23-*.whl -d sglang
git clone https://github.com/sgl-project/mini-sglang && git -C mini-sglang checkout 20fcd7f
LABENGINE_SGLANG=sglang LABENGINE_MINI_SGLANG=mini-sglang LABENGINE_SGLANG_PYTHON=PYTHON python tests/record_trees.py

PYTHON: see tests/differential/tree_process.py. Either folder alone records that engine only.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from differential import golden
from differential.tree_process import EDITIONS, UPSTREAM, named_folder, upstream_of
from differential.tree_workloads import WORKLOADS

NUM_WORKLOADS = {"sglang": 190, "mini-sglang": 200, "mini-sglang+142": 200}
"""So many stay below 300 KB."""

HELD = "free_pages, next first; evictable, protected (tokens); tree [[id, parent, locks, tokens, pages]], oldest first"
ROWS = {
    "sglang": "after each iteration: scheduled [[uid, start, tokens]]; waiting [[uid, is retracted, sampled]]; chunked "
    f"and running [[uid, computed, owned by the tree, sampled, pages]]; new_token_ratio; {HELD}",
    "mini-sglang": "after each iteration: scheduled [[uid, start, tokens]]; replies [[uid, token, is last]]; requests "
    f"[[uid, status, computed, [node, tokens up to its end], pages]]; {HELD}",
}


def main() -> int:
    """Record what the environment names a folder for; the exit status."""
    recorded = [edition for edition in EDITIONS if record(edition)]
    if not recorded:
        print("Set LABENGINE_SGLANG to SGLang's unpacked wheel, or LABENGINE_MINI_SGLANG to a clone of mini-sglang.")
    return 0 if recorded else 2


def record(edition: str) -> bool:
    """Record an edition's engine; return False if the environment names no folder of it."""
    if (folder := named_folder(edition)) is None:
        return False
    variable, _, version = UPSTREAM[edition]
    header = {
        "upstream": version + (", with the page table repointed as pull request 142 asks" if "142" in edition else ""),
        "edition": edition,
        "command": f"{variable}=FOLDER LABENGINE_SGLANG_PYTHON=PYTHON python tests/record_trees.py",
        "rows": ROWS[edition.partition("+")[0]],
    }
    workloads = map(WORKLOADS[edition], range(NUM_WORKLOADS[edition]))
    with upstream_of(edition, folder) as upstream:
        golden.write(edition, header, ((workload, upstream.run(workload)) for workload in workloads))
    path = golden.golden_path(edition)
    print(f"{edition}: {NUM_WORKLOADS[edition]} workloads, {path.stat().st_size // 1024} KiB in {path.name}")
    return True


if __name__ == "__main__":
    sys.exit(main())
