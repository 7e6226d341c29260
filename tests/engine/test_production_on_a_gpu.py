"""Production's path for a GPU, with CUDA stood in: graphs, pieces, streams and launches are called as on one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT

if not sys.platform.startswith("linux"):
    pytest.skip("Triton is made for Linux", allow_module_level=True)

LAUNCHES = """
import json, sys
from engine.standin_cuda import cuda_replaced
from labengine import Lab

size = {"num_blocks": 32, "block_size": 16, "max_num_batched_tokens": 64, "max_model_len": 128}
settings = {"device": "cuda", "attention": "triton", "check": False, "record": False}
for overlap in (True, False):
    with cuda_replaced() as marks, Lab(sys.argv[1], **size, **settings, overlap=overlap) as lab:
        lab.add(token_ids=range(8, 28), max_tokens=8, temperature=0.6, ignore_eos=True)
        lab.step()
        lab.add(token_ids=range(8, 28), max_tokens=8, temperature=0.6, ignore_eos=True)
        lab.run()
    print(json.dumps(marks.order))
"""
"""Two mixed steps, with the graphs between layers, and decodes, in a separate process, as all of torch is replaced."""


@pytest.mark.journey
def test_a_step_is_launched_before_the_tokens_of_the_one_before_are_read(tiny_llama: Path) -> None:
    """With overlap, and not without; the last two decodes."""
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", LAUNCHES, str(tiny_llama)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    overlapped, synchronous = map(json.loads, done.stdout.splitlines())
    assert overlapped[-3:] == [["launch", 15], ["read", 14], ["read", 15]]
    assert synchronous[-3:] == [["read", 14], ["launch", 15], ["read", 15]]
