"""Exercises of the notebook "Your own policy"."""

from __future__ import annotations

from typing import Any

from labengine.core.block import Block, Prefix
from labengine.core.block_pool import BlockPool
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.scheduler import NOT_ADMITTED, Admission
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.course.exercises.policy_workloads import (
    ENGINE,
    RULES,
    all_grow,
    conversation,
    crowd,
    librarian,
    same_rules,
    short_and_long,
    steps_waited,
    tokens_and_steps,
    triplets_and_another,
    twins,
    unique_text,
    visitor_who_leaves,
)
from labengine.course.first_wrong_exercise import nth_event
from labengine.course.trial import RUN, plays
from labengine.course.words import course_exercise
from labengine.events import (
    BlockAllocated,
    BlockCached,
    BlockEvicted,
    EvictReason,
    ForwardRan,
    SlotsWritten,
)
from labengine.lab import Lab

# -- which freed blocks are reused first -------------------------------------------------------------------------------


def _place(prefix: Prefix | None) -> int:
    """Return a block's place in its text, from 1; 0 for a block without content."""
    number = 0
    while prefix is not None and prefix.parent is not None:
        number, prefix = number + 1, prefix.parent
    return number


class KeepBeginnings(BlockPool):
    """A pool that keeps the first blocks of every text and reuses the others first."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return the blocks without content, and those after the first four of a text."""
        return [i for i in block_ids if not self.blocks[i].keys or _place(self.blocks[i].prefix) > 4]


class KeepWhatComesBack(KeepBeginnings):
    """A pool that keeps the whole text once a block of it was hit, and only the first blocks of other texts."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.was_hit: set[int] = set()

    def touch(self, block_ids: Any) -> None:
        """Note which blocks were hit; the journal removes the note if the step is undone."""
        super().touch(block_ids)
        for block_id in [one for one in block_ids if one not in self.was_hit]:
            self._journal.record((self.was_hit.discard, block_id))
            self.was_hit.add(block_id)

    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        """Forget the note along with the content."""
        super().evict(block, reason)
        if block.block_id in self.was_hit:
            self._journal.record((self.was_hit.add, block.block_id))
            self.was_hit.remove(block.block_id)

    def reused_first(self, block_ids: list[int]) -> list[int]:
        """Return the blocks without content and, for a text that was never hit, those after its beginning."""
        if self.was_hit.intersection(block_ids):
            return BlockPool.reused_first(self, block_ids)
        return super().reused_first(block_ids)


class _PlainSet(KeepWhatComesBack):
    def touch(self, block_ids: Any) -> None:
        BlockPool.touch(self, block_ids)
        self.was_hit.update(block_ids)

    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        BlockPool.evict(self, block, reason)
        self.was_hit.discard(block.block_id)


course_exercise(
    "your-policy/one-off-texts",
    solution=KeepWhatComesBack,
    workloads=[librarian, conversation],
    score="tokens computed",
    goal=654,
    num_lines=16,
    mistakes=[KeepBeginnings, BlockPool, lambda self, block_ids: list(block_ids), _PlainSet],
    undone=visitor_who_leaves,
    **ENGINE,
)


# -- who is admitted ---------------------------------------------------------------------------------------------------


class TwinsWait(TokenBudgetScheduler):
    """A scheduler that skips a request while another computes a prompt with the same first block."""

    def skips(self, request: Request, skipped: Any) -> bool:
        """Return True while a running request with the same first block has not computed it yet."""
        return any(one.token_ids[:4] == request.token_ids[:4] and one.num_computed_tokens < 4 for one in self.running)


class SharersWait(TokenBudgetScheduler):
    """A scheduler that skips a request while another computes blocks that both can share."""

    def skips(self, request: Request, skipped: Any) -> bool:
        """Return True while a common full block is not computed yet."""
        return any(one.num_computed_tokens < self.num_shared(one, request) for one in self.running)

    def num_shared(self, one: Request, other: Request) -> int:
        """Return the tokens in the common full blocks at the start; the last token is always computed."""
        num_equal = 0
        while num_equal < min(one.num_tokens, other.num_tokens - 1) and (
            one.token_ids[num_equal] == other.token_ids[num_equal]
        ):
            num_equal += 1
        return num_equal // 4 * 4


class _EqualPromptsWait(TokenBudgetScheduler):
    def skips(self, request: Request, skipped: Any) -> bool:
        return any(
            one.token_ids[: one.num_prompt_tokens] == request.token_ids
            and one.num_computed_tokens < one.num_prompt_tokens
            for one in self.running
        )


class _LastBlockShared(SharersWait):
    def num_shared(self, one: Request, other: Request) -> int:
        both = zip(one.token_ids, other.token_ids, strict=False)
        return next((i for i, (a, b) in enumerate(both) if a != b), min(one.num_tokens, other.num_tokens)) // 4 * 4


class _AllEqualTokensShared(SharersWait):
    def num_shared(self, one: Request, other: Request) -> int:
        both = zip(one.token_ids, other.token_ids, strict=False)
        return next((i for i, (a, b) in enumerate(both) if a != b), min(one.num_tokens, other.num_tokens))


course_exercise(
    "your-policy/sharers",
    solution=SharersWait,
    workloads=[twins, triplets_and_another, same_rules],
    score=tokens_and_steps,
    goal=177,
    num_lines=8,
    mistakes=[TwinsWait, TokenBudgetScheduler, _EqualPromptsWait, _LastBlockShared, _AllEqualTokensShared],
    **ENGINE,
)


class ShortestFirst(TokenBudgetScheduler):
    """A scheduler that admits the shortest waiting request next."""

    def next_waiting(self) -> Request:
        """Return the waiting request with the fewest tokens; the first in the queue if there are several."""
        return min(self.waiting, key=lambda request: request.num_tokens)


course_exercise(
    "your-policy/waiting",
    solution=ShortestFirst,
    workloads=[crowd, short_and_long],
    score=steps_waited,
    goal=140,
    num_lines=1,
    mistakes=[
        lambda self: max(self.waiting, key=lambda request: request.num_tokens),
        lambda self: self.waiting[-1],
        TokenBudgetScheduler,
    ],
    **{**ENGINE, "num_blocks": 64, "max_num_seqs": 2},
)


class KeepsRoomToGrow(TokenBudgetScheduler):
    """A scheduler that admits a request only if it and all running requests can grow to their full length."""

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Return NOT_ADMITTED while the requests could together need more blocks than the pool has."""
        most = sum(-(-one.max_kv_tokens // 4) for one in [*self.running, request])
        if self.running and most > self.manager.pool.num_usable:
            return NOT_ADMITTED
        return super().admit(request, limit, is_first=is_first)


class _OneAtATime(TokenBudgetScheduler):
    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        return NOT_ADMITTED if self.running else super().admit(request, limit, is_first=is_first)


class _FitsNow(TokenBudgetScheduler):
    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        if self.running and -(-request.max_kv_tokens // 4) > self.manager.pool.num_free:
            return NOT_ADMITTED
        return super().admit(request, limit, is_first=is_first)


course_exercise(
    "your-policy/room-to-grow",
    solution=KeepsRoomToGrow,
    workloads=[all_grow, crowd],
    score=tokens_and_steps,
    goal=412,
    num_lines=4,
    mistakes=[_OneAtATime, _FitsNow, TokenBudgetScheduler],
    **ENGINE,
)


# -- predict, and find -------------------------------------------------------------------------------------------------


course_exercise(
    "your-policy/next-step",
    play=plays(*[(f"{RULES} Which of these novels would you take along", 4)] * 4),
    truth=lambda step: step.first(ForwardRan).num_tokens,
    about="number",
    rounds=2,
    mistakes=[48, 4],
    parts=Parts(scheduler=TwinsWait),
    **ENGINE,
)


class NeverForgets(BlockPool):
    """A pool that keeps a block's content in the map when another request takes the block."""

    def evict(self, block: Block, reason: EvictReason = "reused") -> None:
        """Forget nothing."""


def _allocated_while_cached(lab: Lab) -> int:
    """Return the number of the first allocation of a block that is still in the map."""
    assert lab.timeline is not None
    cached = set[int]()
    for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
        match event:
            case BlockCached():
                cached.add(event.block_id)
            case BlockEvicted():
                cached.discard(event.block_id)
            case BlockAllocated() if event.block_id in cached:
                return number
    raise AssertionError("no block was allocated while it was cached")


course_exercise(
    "your-policy/never-forgets",
    broken=NeverForgets,
    play=plays(
        ("The first text is short and soon over", 2),
        RUN,
        (unique_text("word", 20), 2),
        RUN,
        ("The first text is short and soon over", 2),
        RUN,
    ),
    first=_allocated_while_cached,
    mistakes=["PrefixHit", nth_event(SlotsWritten, 2)],
    num_blocks=6,
)
