"""Record vLLM's keys and hashes of blocks, into tests/golden.

LABENGINE_VLLM_PYTHON=vllm/bin/python python tests/record_block_keys.py
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from differential.test_block_keys import GOLDEN, asked
from differential.vllm_process import VARIABLE, named_interpreter
from image_cases import NUM_CASES

if __name__ == "__main__":
    python = named_interpreter()
    if python is None:
        sys.exit(f"Set {VARIABLE} to the interpreter of an environment with vLLM.")
    command = f"{VARIABLE}=vllm/bin/python python tests/record_block_keys.py"
    recorded = asked(python, NUM_CASES) | {"command": command}
    GOLDEN.write_bytes(gzip.compress((json.dumps(recorded, separators=(",", ":")) + "\n").encode(), mtime=0))
