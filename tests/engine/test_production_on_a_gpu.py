"""Production's path for a GPU, with CUDA stood in: graphs, pieces, streams and launches are called as on one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("Triton is made for Linux", allow_module_level=True)

from engine.standin_cuda import cuda_replaced
from labengine import Lab


def order(model: Path, *, overlap: bool) -> list[tuple[str, int]]:
    """Return the launches and readings of two mixed steps, with the graphs between layers, and of decodes."""
    size = {"num_blocks": 32, "block_size": 16, "max_num_batched_tokens": 64, "max_model_len": 128}
    settings = {"device": "cuda", "attention": "triton", "check": False, "record": False}
    with cuda_replaced() as marks, Lab(str(model), **size, **settings, overlap=overlap) as lab:
        lab.add(token_ids=range(8, 28), max_tokens=8, temperature=0.6, ignore_eos=True)
        lab.step()
        lab.add(token_ids=range(8, 28), max_tokens=8, temperature=0.6, ignore_eos=True)
        lab.run()
        return marks.order


def test_a_step_is_launched_before_the_tokens_of_the_one_before_are_read(tiny_llama: Path) -> None:
    """With overlap; the last two decodes."""
    assert order(tiny_llama, overlap=True)[-3:] == [("launch", 15), ("read", 14), ("read", 15)]
    assert order(tiny_llama, overlap=False)[-3:] == [("read", 14), ("launch", 15), ("read", 15)]
