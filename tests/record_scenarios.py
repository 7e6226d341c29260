"""Record what upstream's own code does on the scenarios' requests, into labengine/scenarios/upstream_runs.json.

git clone https://github.com/GeeeekExplorer/nano-vllm; git clone https://github.com/sgl-project/mini-sglang
python tests/record_scenarios.py --nano-vllm nano-vllm --mini-sglang mini-sglang --vllm PYTHON --vllm OLDER_PYTHON
python tests/record_scenarios.py --sglang WHEEL

PYTHON: of an environment with a release of vLLM; more than one may be given. nano-vLLM needs xxhash, mini-sglang torch
and msgpack. WHEEL: the folder of SGLang 0.5.23's unpacked wheel; differential/tree_process.py says what it needs. What
is not named keeps its recorded rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
RECORDED = TESTS.parent / "labengine" / "scenarios" / "upstream_runs.json"
COMMAND = "python tests/record_scenarios.py"

if __name__ == "__main__":
    sys.path.append(str(TESTS / "support"))

Run = dict[str, Any]
"""Fields of labengine.scenarios.report.UpstreamRun."""


def of_nano_vllm(clone: Path) -> Iterator[tuple[str, Run]]:
    """Yield scenarios and their runs."""
    from differential.nano_scenarios import COMMITS, RUNS

    for id, rows_of in RUNS.items():
        yield id, _run(f"nano-vllm {COMMITS[id]}", "Scheduler and BlockManager", "--nano-vllm CLONE", rows_of(clone))


def of_mini_sglang(clone: Path) -> Iterator[tuple[str, Run]]:
    """Yield scenarios and their runs."""
    os.environ["LABENGINE_MINI_SGLANG"] = str(clone)
    from differential.minisgl_scenarios import COMMIT, PARTS, RUNS

    for id, rows_of in RUNS.items():
        part = PARTS.get(id, "Scheduler and radix cache")
        yield id, _run(f"mini-sglang {COMMIT}", part, "--mini-sglang CLONE", rows_of())


def of_sglang(wheel: str) -> Iterator[tuple[str, Run]]:
    """Yield scenarios and their runs."""
    from differential.sglang_scenarios import VERSION, rows_of

    for id, rows in rows_of(wheel):
        yield id, _run(f"sglang {VERSION}", "Scheduler and radix tree", "--sglang WHEEL", rows)


def of_vllm(python: str) -> Iterator[tuple[str, Run]]:
    """Yield scenarios and their runs on the release of that interpreter."""
    script = str(TESTS / "differential" / "vllm_scenarios.py")
    listed = subprocess.run([python, script], capture_output=True, text=True, check=True).stdout
    for id, answer in json.loads(listed.splitlines()[-1]).items():
        yield id, _run(f"vllm {answer['version']}", answer["part"], "--vllm PYTHON", answer["rows"])


def _run(version: str, part: str, arguments: str, rows: Any) -> Run:
    return {"version": version, "part": part, "command": f"{COMMAND} {arguments}", "rows": rows}


def main() -> int:
    """Record what the arguments name; the exit status."""
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nano-vllm", type=Path, metavar="CLONE")
    parser.add_argument("--mini-sglang", type=Path, metavar="CLONE")
    parser.add_argument("--sglang", metavar="WHEEL")
    parser.add_argument("--vllm", action="append", default=[], metavar="PYTHON")
    options = parser.parse_args()
    found = [pair for python in options.vllm for pair in of_vllm(python)]
    found += of_nano_vllm(options.nano_vllm) if options.nano_vllm else ()
    found += of_mini_sglang(options.mini_sglang) if options.mini_sglang else ()
    found += of_sglang(options.sglang) if options.sglang else ()
    recorded: dict[str, list[Run]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for id, run in found:
        others = [one for one in recorded.get(id, ()) if one["version"] != run["version"]]
        recorded[id] = sorted([*others, run], key=lambda one: str(one["version"]))
    RECORDED.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")
    print(f"{len(found)} runs of {len({id for id, _ in found})} scenarios")
    return 0


if __name__ == "__main__":
    sys.exit(main())
