"""The probe: what it keeps of a request, with windows too, and that it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labengine import Lab, judge

PROMPT = list(range(3, 36))


def test_windows_are_compared_as_far_as_they_are_read(tiny_gemma: Path) -> None:
    """Layers with a window of 8 read 8 positions, the others all of them."""
    settings: dict[str, Any] = {
        "num_blocks": 96,
        "block_size": 4,
        "device": "cpu",
        "attention": "torch",
        "dtype": "float32",
    }
    with Lab(tiny_gemma, **settings) as lab, Lab(tiny_gemma, max_num_batched_tokens=5, **settings) as in_chunks:
        for one in (lab, in_chunks):
            one.generate(PROMPT, max_tokens=4, ignore_eos=True)
        lab.generate(PROMPT, max_tokens=4, ignore_eos=True)
        before = lab.snapshot()
        for runs in (((lab, 0), (lab, 1)), (lab, in_chunks)):
            verdict = judge(*runs)
            assert verdict.kind == "equal" and verdict.figures is not None
            assert verdict.figures.num_positions == len(PROMPT) + 3
            assert len(verdict.figures.layers) == lab.num_layers == 8
            assert max(layer.relative for layer in verdict.figures.layers) < verdict.figures.limit
        assert lab.snapshot() == before
