"""The look-ups of a running engine, each judged at the moment at which its request is admitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

from labengine import events as ev
from labengine.core.block import Block
from labengine.core.request import Image, Request
from labengine.engine.engine import Engine
from labengine.prefix_doctor.causes.content import packed, unpacked
from labengine.prefix_doctor.look_ups.content import LostContent
from labengine.prefix_doctor.look_ups.look_up import LookUp, MissedTokens
from labengine.prefix_doctor.look_ups.missing import Missing, joined, misses_of, unit_of
from labengine.prefix_doctor.play.read_ahead import hashes_of
from labengine.prefix_doctor.play.seen import Generations, RecentTokens

OnLookUp = Callable[[LookUp], object]


@dataclass
class Memory:
    """What the replicas of one run remember together.

    seen: the last request with a prefix, by the prefix's hash; plain: by the hash without extra keys. losses: the last
    loss of a block's content, by its hash.
    """

    seen: Generations[int] = field(default_factory=Generations)
    plain: Generations[int] = field(default_factory=Generations)
    losses: Generations[tuple[ev.EvictReason, int, int | None, bool]] = field(default_factory=Generations)
    tokens: RecentTokens = field(default_factory=RecentTokens)
    engines: list[Engine] = field(default_factory=list)
    has_keys: bool = False


class LiveLookUps:
    """Follows an engine by its admissions and evictions alone, and reads the core's state at these moments."""

    def __init__(self, engine: Engine, memory: Memory, tell: OnLookUp) -> None:
        self._engine, self._memory, self._tell = engine, memory, tell
        self._config, self._groups = engine.config, engine.config.groups
        self._unit, self._link = unit_of(self._groups), engine.config.hash_block_size
        self._chain = engine.parts.hash_chain()
        self._counts = Counter[int]()
        self._loss: tuple[ev.EvictReason, int, int | None, bool] = "reused", 0, None, False
        memory.engines.append(engine)
        engine.hooks.subscribe(self._judge, ev.PrefixHit)
        self._follow_takers()

    def leave(self, request: Request, is_finished: bool) -> None:
        """Note that a request gave its blocks back, with the tokens that it has generated."""
        self._remember(request)
        if is_finished:
            self._counts.pop(request.request_id, None)

    # -- admissions ----------------------------------------------------------------------------------------------------

    def _judge(self, event: ev.Event) -> None:
        assert isinstance(event, ev.PrefixHit)
        request, memory = self._engine.requests[event.request_id], self._memory
        self._counts[request.request_id] += 1
        if event.is_skipped:
            self._engine.scheduler.manager.extend_hashes(request, request.num_tokens)
        num_seen = sum(1 for _ in takewhile(memory.seen.has, request.block_hashes))
        shared, other = self._shared(request, num_seen)
        found = joined(self._misses(request, event.num_tokens, num_seen, shared, other))
        self._tell(self._look_up(request, event.num_tokens, shared, other, found))
        self._remember(request)

    def _look_up(
        self, request: Request, num_hit: int, shared: int, other: int | None, misses: tuple[MissedTokens, ...]
    ) -> LookUp:
        return LookUp(
            request_id=request.request_id,
            name="",
            number=self._counts[request.request_id],
            step=self._engine.step_number,
            moment=0,
            num_tokens=request.num_tokens,
            num_hit=num_hit,
            num_external=0,
            num_shared=shared,
            shared_with=other,
            misses=misses,
        )

    def _shared(self, request: Request, num_seen: int) -> tuple[int, int | None]:
        """Return the length of the longest prefix shared with an earlier request, and that request.

        Of the block that is shared in part, only the newest request with the prefix before it is compared.
        """
        shared = num_seen * self._link
        other = self._memory.seen.get(request.block_hashes[num_seen - 1]) if num_seen else request.request_id - 1
        its = None if other is None else self._memory.tokens.get(other)
        if its is None:
            return shared, other if num_seen else None
        mine = content_of(request.token_ids, request.images)
        rest = zip(mine[shared : shared + self._link], its[shared : shared + self._link], strict=False)
        more = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest))
        return shared + more, other if shared + more else None

    def _misses(
        self, request: Request, num_hit: int, num_seen: int, shared: int, other: int | None
    ) -> Iterator[MissedTokens]:
        may_differ = self._memory.has_keys or request.extra_keys or request.images
        num_salted, salted_id = self._under_other_keys(request) if may_differ else (0, None)
        cause_of = partial(self._cause_of, request, num_seen * self._link, shared=other, salted=(num_salted, salted_id))
        missing = Missing(self._groups, cause_of)
        new_from = max(num_seen * self._link, num_salted)
        yield from misses_of(
            missing, num_hit, request.num_tokens, self._unit, shared=shared, shared_with=other, new_from=new_from
        )

    def _cause_of(
        self, request: Request, num_seen: int, group: int, end: int, shared: int | None, salted: tuple[int, int | None]
    ) -> MissedTokens | None:
        """Return the reason that a request's block is not cached; None if it is."""
        size = self._groups[group].block_size
        of_group = self._engine.scheduler.manager.groups[group]
        (block_hash,) = of_group.block_hashes(request, end // size - 1, end // size)
        key = group, block_hash
        if key in self._engine.scheduler.manager.pool.prefix_map:
            return None
        for number, engine in enumerate(self._memory.engines):
            if engine is not self._engine and key in engine.scheduler.manager.pool.prefix_map:
                return MissedTokens("other_replica", 0, end, number, group)
        if (loss := self._memory.losses.get(block_hash)) is not None:
            reason, step, taker, is_prefill = loss
            cause: Any = "reset" if reason in ("reset", "distrusted") else "evicted"
            return MissedTokens(cause, 0, end, taker, group, LostContent(reason, step, 0, taker, is_prefill))
        if end <= num_seen:
            return self._never_cached(group, end, self._memory.seen.get(block_hash))
        if end <= salted[0]:
            return MissedTokens("other_salt", 0, end, salted[1], group)
        return MissedTokens("new", 0, end, shared, group)

    def _never_cached(self, group: int, end: int, other: int | None) -> MissedTokens:
        its = None if other is None else self._engine.requests.get(other)
        # Few of a request's states are kept, so whether one will be registered is not known yet.
        registers = self._groups[group].kind != "state" and its is not None and its.has_blocks
        if registers and its is not None and its.num_computed_tokens < end:
            return MissedTokens("not_registered_yet", 0, end, other, group)
        return MissedTokens("never_registered", 0, end, other, group)

    def _under_other_keys(self, request: Request) -> tuple[int, int | None]:
        """Return how many tokens an earlier request had under other extra keys, and that request."""
        num_links, other = 0, None
        for link in self._plain(request):
            found = self._memory.plain.get(link)
            if found is None and (found := self._memory.seen.get(link)) is None:
                break
            num_links, other = num_links + 1, found
        return num_links * self._link, other

    def _plain(self, request: Request) -> list[bytes]:
        """Return the request's hash chain without its extra keys."""
        return hashes_of(self._chain, (), request.token_ids, self._link)

    def _remember(self, request: Request) -> None:
        number, memory = request.request_id, self._memory
        memory.seen.write_all(request.block_hashes, number)
        if request.extra_keys or request.images:
            memory.has_keys = True
            memory.plain.write_all(self._plain(request), number)

    # -- evictions -----------------------------------------------------------------------------------------------------

    def lose(self, blocks: Sequence[Block], reason: ev.EvictReason) -> None:
        """Note that blocks are about to lose their content, and for whom."""
        loss = self._loss if reason == "reused" else (reason, *self._loss[1:])
        self._memory.losses.write_all([block_hash for block in blocks for _, block_hash in block.keys], loss)

    def _follow_takers(self) -> None:
        """Know for which request blocks are taken."""
        manager = self._engine.scheduler.manager
        for name in ("admit", "allocate"):
            vars(manager)[name] = partial(self._for_request, getattr(manager, name))

    def _for_request(self, method: Callable[..., bool], request: Request, *arguments: Any, **named: Any) -> bool:
        is_prefill = request.num_computed_tokens < request.num_prompt_tokens
        self._loss = "reused", self._engine.step_number, request.request_id, is_prefill
        return method(request, *arguments, **named)


def content_of(token_ids: Sequence[int], images: Sequence[Image]) -> Sequence[int]:
    """Return tokens, with numbers for the parts of images instead of their placeholders."""
    return unpacked(packed(token_ids, images), 0, len(token_ids)) if images else token_ids
