"""vLLM issue 55600: the state that a hit goes on from; figures and columns derived by hand."""

from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.lab import Lab
from labengine.scenarios import bug


def copies_of_b(lab: Lab) -> list[ev.StateCopied]:
    assert lab.timeline is not None
    return [event for event in lab.timeline.of_kind(ev.StateCopied) if event.request_id == 1]


def test_the_figures() -> None:
    verdict = bug("vllm-55600").verdict()
    assert dict(verdict.before) == {"states misread": 1, "tokens hit by B": 32}
    assert dict(verdict.after) == {"states misread": 0, "tokens hit by B": 32}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_null_block_is_copied_in_place_of_the_state_that_was_hit() -> None:
    """B hits 32 tokens, entry 1 of its table; its last token of the prompt goes into a fresh block, entry 2."""
    scenario = bug("vllm-55600")
    with scenario.broken() as broken, scenario.fixed() as fixed:
        for lab, is_right in ((broken, False), (fixed, True)):
            assert lab.timeline is not None
            [hit] = [block for block in lab.timeline.of_kind(ev.BlockTouched) if block.request_id == 1 and block.group]
            assert (hit.request_id, hit.index) == (1, 1)
            [copied] = copies_of_b(lab)
            assert copied.num_tokens == 32
            assert copied.block_id == (hit.block_id if is_right else lab.snapshot().null_block)
        assert fixed.violations == [] and {violation.rule for violation in broken.violations} == {"read"}
