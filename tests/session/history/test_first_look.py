"""The first look at an early step of a long decode takes work in proportion to its events."""

from __future__ import annotations

import math
import sys
from types import FrameType
from typing import Any

from labengine.lab import Lab


def num_lines_of_a_first_look(num_tokens: int) -> tuple[int, int]:
    """Return the events of a decode, and the lines of Python that the first goto runs."""
    with Lab("simulated", num_blocks=num_tokens + 4, block_size=1) as lab:
        lab.add(token_ids=[1, 2, 3], max_tokens=num_tokens, ignore_eos=True)
        lab.run()
        num_lines = 0

        def count(frame: FrameType, what: str, value: Any) -> Any:
            nonlocal num_lines
            num_lines += 1
            return count

        sys.settrace(count)
        try:
            lab.goto(5)
        finally:
            sys.settrace(None)
        return lab.timeline.end if lab.timeline is not None else 0, num_lines


def test_the_first_goto_after_a_long_decode_is_linear() -> None:
    (few, less), (many, more) = num_lines_of_a_first_look(200), num_lines_of_a_first_look(800)
    assert math.log(more / less) / math.log(many / few) <= 1.2
