"""The rule `window` on a hit: vLLM issue 43090, attention's hit without a state, and null entries taken for blocks."""

from __future__ import annotations

from typing import ClassVar

import pytest

from check.watched import Watched, watched
from driving import as_parts
from labengine import GroupSpec
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.core.vllm.prefix_lookup import VllmPrefixLookup
from labengine.events import PrefixHit

STATES = (GroupSpec(4), GroupSpec(4, "state"))


class KeepsAttentionsHit(VllmPrefixLookup):
    """Where no state is cached, the hit is as long as attention's, and has no blocks of states.

    Source: https://github.com/vllm-project/vllm/issues/43090 describes this in a comment of 2026-07-04, about the
    changes of pull request 47491.
    """

    has_null_entries: ClassVar[bool] = False

    def longest_hit(self, request: Request, max_tokens: int) -> Hit:
        hit, (attention, states) = super().longest_hit(request, max_tokens), self._groups
        (run,) = attention.find_hit(request, max_tokens, [attention])
        if hit.num_tokens:
            return hit
        block_ids = [states._pool.null_block] * len(run) if self.has_null_entries else []
        return Hit(len(run) * attention.block_size, (tuple(run), tuple(block_ids)))


class WithNullEntries(KeepsAttentionsHit):
    """The same, with a null entry in the place of each state."""

    has_null_entries = True


def diverging(lookup: type[VllmPrefixLookup], edition: str) -> Watched:
    """A prompt whose state is cached after 12 tokens, and then one that shares 8 of these."""
    setup = watched(24, STATES, Parts(prefix_lookup=lookup).overriding(as_parts(edition)))
    setup.add(*range(10, 22), 1, 2)
    setup.run()
    setup.add(*range(10, 18), 90)
    return setup


@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_a_hit_of_attention_without_a_state_is_named_before_it_is_read(edition: str) -> None:
    setup = diverging(KeepsAttentionsHit, edition)
    setup.run()
    uncovered, misread = setup.watch.violations
    assert (uncovered.rule, uncovered.request_ids) == ("window", (1,))
    assert "group 1 has no entry for the state after 8 tokens (KeepsAttentionsHit.longest_hit)" in uncovered.message
    assert isinstance(setup.first_event("window"), PrefixHit)
    assert misread.rule == "read" and "the state after its first 8 tokens" in misread.message


@pytest.mark.parametrize(("edition", "null_block"), [("labengine", -1), ("vllm", 0)])
def test_a_null_entry_is_refused_in_the_place_of_a_block(edition: str, null_block: int) -> None:
    setup = diverging(WithNullEntries, edition)
    with pytest.raises(IndexError, match=f"block {null_block} cannot be touched: .* only pads tables"):
        setup.run()
    [uncovered] = setup.watch.violations
    assert uncovered.message.endswith("null entry for the state after 8 tokens (KeepsAttentionsHit.longest_hit)")


def test_production_finds_nothing_there() -> None:
    setup = diverging(VllmPrefixLookup, "vllm")
    setup.run()
    assert setup.timeline.of_kind(PrefixHit)[-1].num_tokens == 0
    setup.assert_clean()
