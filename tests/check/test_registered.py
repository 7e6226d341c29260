"""The rule `registered`: vLLM pull request 54979, other blocks that no key leads to, and omissions on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from check.watched import Watched, watched
from finder.wrong_parts import EverySecondBlock
from labengine import FullAttentionGroup, GroupSpec, KVCacheManager
from labengine.core.drafts import Drafts
from labengine.core.editions import LABENGINE, VLLM
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.parts import Parts
from labengine.core.proposer import FixedDrafts
from labengine.core.request import Request
from labengine.events import BlockFreed, PrefixHit

PROMPT = (1, 2, 3, 4, 5)
TEXT = (*PROMPT, *range(105, 120))


class RegistersWithTheNextStep(Drafts):
    """Leaves the blocks that accepted drafts fill to the request's next step, and there may be none."""

    def book_accepted(self, request: Request, num_tokens: int) -> None:
        self.scheduler.count_computed(request, num_tokens)


class KeepsTheNewestBack(KVCacheManager):
    """Counts a block less than could be hit."""

    def num_cacheable_tokens(self, group: KVCacheGroup, num_tokens: int) -> int:
        return max(0, super().num_cacheable_tokens(group, num_tokens) - group.block_size)


class PromptsAlone(FullAttentionGroup):
    """A policy: answers are not worth caching."""

    caches_every_block = False

    def is_worth_caching(self, request: Request, index: int) -> bool:
        return (index + 1) * self.block_size <= request.num_prompt_tokens


def drafted(parts: Parts) -> Watched:
    """A request whose last step accepts three drafts, and then its text with one token more."""
    setup = watched(
        16, edition=parts, next_token=lambda _, position: TEXT[position], proposer=FixedDrafts(TEXT, num_drafts=3)
    )
    setup.add(*PROMPT, max_tokens=5)
    setup.run()
    setup.add(*TEXT[:10], 7)
    setup.run()
    return setup


def found(setup: Watched) -> int:
    """The tokens that the newest request has found."""
    return setup.timeline.of_kind(PrefixHit)[-1].num_tokens


def test_what_the_last_step_accepts_is_registered_before_its_request_ends() -> None:
    right, wrong = drafted(LABENGINE), drafted(Parts(drafts=RegistersWithTheNextStep).overriding(LABENGINE))
    assert (found(right), right.watch.violations) == (8, [])
    [violation] = wrong.watch.violations
    assert (found(wrong), violation.rule, violation.request_ids, violation.block_ids) == (4, "registered", (0,), (1,))
    assert violation.message.endswith("(RegistersWithTheNextStep.book_accepted)")
    assert violation.first_event is not None
    [event] = wrong.timeline.events(violation.first_event, violation.first_event + 1)
    assert isinstance(event, BlockFreed) and event.block_id == 1


def test_edition_vllm_loses_them_as_its_engine_does() -> None:
    """vLLM 0.32's synchronous scheduler finds 4 of these 8 tokens too."""
    setup = drafted(VLLM)
    assert (found(setup), setup.watch.violations) == (4, [])


@pytest.mark.parametrize(
    ("parts", "method"),
    [
        ({"full_attention_group": EverySecondBlock}, "EverySecondBlock.register_block"),
        ({"kv_cache_manager": KeepsTheNewestBack}, "KeepsTheNewestBack.num_cacheable_tokens"),
    ],
)
def test_a_full_block_that_is_left_out_is_named_with_its_method(parts: dict[str, Any], method: str) -> None:
    setup = watched(16, edition=Parts(**parts).overriding(LABENGINE))
    setup.add(*range(8), 1)
    setup.run()
    assert setup.broken_rules() == {"registered"}
    message = setup.watch.violations[0].message
    assert "tokens 4 to 7" in message and message.endswith(f"({method})")


@pytest.mark.parametrize(
    ("parts", "more"),
    [
        (Parts(full_attention_group=PromptsAlone), {}),
        (Parts(), {"groups": (GroupSpec(4), GroupSpec(2, "sliding_window", 4)), "retention_interval": 0}),
        (Parts(), {"groups": (GroupSpec(4), GroupSpec(6, "sliding_window", 6)), "hash_block_size": 2}),
    ],
)
def test_what_is_left_out_on_purpose_is_no_omission(parts: Parts, more: dict[str, Any]) -> None:
    setup = watched(24, edition=parts.overriding(LABENGINE), **more)
    setup.add(*range(9), max_tokens=9)
    setup.run()
    assert any(event.queue_end == "head" for event in setup.timeline.of_kind(BlockFreed))
    setup.assert_clean()


def test_a_block_that_an_undone_step_gave_away_and_wrote_to_is_not_missed() -> None:
    """Both requests have the same text, so the block that one gets from the other is written to with what it held."""
    setup = watched(4, (GroupSpec(2),), "labengine-radix", next_token=lambda request_id, position: 0)
    setup.add(0, 0, 0, 0)
    setup.run()
    setup.add(0, 0, 0, max_tokens=4)
    setup.add(0, 0, 0, 0, 0, max_tokens=4)
    num_preempted = 0
    while not setup.engine.scheduler.is_idle:
        phases = setup.engine.phases()
        for _ in zip(range(2), phases, strict=False):  # the forward pass is the second
            pass
        phases.close()  # type: ignore[attr-defined]
        num_preempted += sum(request.status.value == "preempted" for request in setup.engine.requests.values())
        setup.engine.step()
    assert num_preempted
    assert setup.watch.violations == []
