"""Random operations on an engine: requests, aborts, broken steps, a tier that fails or comes late.

A Random deals an episode: one engine on a small pool, and some hundred operations on it. All prompts come from a few
stems, and the tokens behind them are few too, so that content collides all the time. `kinds` names what else there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Literal

from check.watched import Watched, watched
from ctrl_c import press_ctrl_c
from differential.chance_drafts import ChanceDrafts
from disturbing import CORE, ENGINE, Countdown, ListenerFailed, SignalPoints, outside_listeners, raise_at_event
from driving import MAX_STEPS, as_parts, queues
from fake_tier import FakeTier, Luck, TierDown
from labengine import events as ev
from labengine.config import ConfigError, GroupSpec
from labengine.core.collaborator import Absent
from labengine.core.editions import edition as edition_named
from labengine.core.mini_sglang.scheduler import WorstCaseScheduler
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.proposer import NGram, Proposer
from labengine.core.request import Image, Request
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.step_report import Phase
from labengine.scenarios.vllm_43569_uncommitted_hash import RollsBack

Kind = Literal["forks", "drafts", "states", "priorities", "images", "interrupts"]
"""forks: several answers, beams and branches; states: groups of state-space layers, and no tier; interrupts: a step
meets a Ctrl-C, or a listener that raises, at any moment."""
KINDS: tuple[Kind, ...] = ("forks", "drafts", "states", "priorities", "images", "interrupts")

BY_PRIORITY = {
    "labengine": edition_named("labengine", "priority"),
    "vllm": Parts(RollsBack).overriding(edition_named("vllm", "priority")),
}
"""With pull request 43569: without it a victim of the same step leaves hashes without KV in vLLM."""


class CountsWholeBlocks(WorstCaseScheduler):
    """Reserves the rest of each prompt's last block too, and of a chunked prompt's."""

    def fits(self, request: Request, hit: Hit) -> bool:
        size, num_cut = self.block_size, sum(one.has_blocks for one in self.waiting)
        num_tokens = request.num_tokens - hit.num_tokens + self.num_to_come(request)
        self.num_reserved += -num_tokens % size + num_cut * (size - 1)
        return super().fits(request, hit)


SPARING = {e: Parts(CountsWholeBlocks).overriding(edition_named(e)) for e in ("mini-sglang", "mini-sglang+142")}
"""mini-sglang counts prompts in tokens and takes blocks: without this, a step may lack one, and fails for ever."""

POINTS = outside_listeners(SignalPoints())
_NAMES = {ev.BlockMerged: "merged", ev.BlockEvicted: "evicted", ev.RequestPreempted: "preempted"}


class Episode:
    """One engine and random operations on it. `met` counts what they led to."""

    def __init__(
        self,
        rng: Random,
        edition: str | Parts,
        *,
        with_tier: bool = True,
        kinds: Collection[Kind] = (),
    ) -> None:
        self.rng, self.kinds = rng, frozenset(kinds)
        parts = SPARING.get(str(edition), as_parts(edition))
        has_budget, is_vllm = issubclass(parts.scheduler, TokenBudgetScheduler), edition == "vllm"
        self._is_crowded = issubclass(parts.scheduler, SglangScheduler) and rng.random() < 0.6
        """Many long answers beside each other, more than fit together. Otherwise SGLang's guess of what is still to
        come is seldom too low, and it retracts nothing."""
        has_tier = has_budget and parts.prefix_tree is Absent
        if "priorities" in self.kinds and edition in BY_PRIORITY and rng.random() < 0.7:
            parts = BY_PRIORITY[str(edition)]
        self._with_branches = "forks" in self.kinds
        self._with_answers = "forks" in self.kinds and has_budget  # the nano editions refuse both
        self._with_beams = "forks" in self.kinds and edition == "labengine"
        self.groups = _groups(rng) if has_tier else (GroupSpec(rng.choice((1, 2, 3, 4, 4, 8))),)
        if "states" in self.kinds:
            self.groups = _with_states(rng, self.groups)
        size = max(group.block_size for group in self.groups)
        # A decode that vLLM pads with drafts waits for ever where a step has fewer tokens than it: at most 8 here.
        is_tight = is_vllm and "drafts" in self.kinds  # it refuses chunks as short as that beside drafts
        self.tier = _tier(rng) if has_tier and with_tier and "states" not in self.kinds else None
        self.alphabet, self._streams = rng.choice((1, 2, 3, 1000)), rng.choice((1, 1, 2, 100))
        self._stems = [self._tokens(rng.randint(1, 5 * size)) for _ in range(rng.randint(1, 3))]
        self.image_lengths = {name: rng.randint(1, 2 * size) for name in ("ab" if "images" in self.kinds else "")}
        self.setup: Watched = watched(
            rng.randint(4, 10) * len(self.groups) * (8 if self._is_crowded else 1),
            self.groups,
            parts,
            connector=self.tier,
            budget=1000 if rng.random() < 0.4 else max(8 * is_tight, rng.choice((size + is_tight, 3 * size))),
            max_num_seqs=16 if self._is_crowded else rng.choice((1, 2, 4, 16)),
            next_token=self._next_token,
            max_events=5_000,
            keep_finished=3 if "interrupts" in self.kinds else None,
            watermark=rng.choice((0.0, 0.0, 0.1)) if has_budget else 0.0,  # the nano editions have none of these
            long_prefill_token_threshold=rng.choice((0, 0, size)) if has_budget and not is_tight else 0,
            retention_interval=rng.choice((None, None, 0)) if has_tier else None,
            proposer=self._proposer() if "drafts" in self.kinds else None,
        )
        self.met = self.tier.met if self.tier is not None else Counter[str]()
        self.setup.engine.hooks.subscribe(self._count)

    def _count(self, event: ev.Event) -> None:
        match event:
            case ev.BlockTouched():
                self.met["hit"] += 1
                self.met["hit on a free block"] += event.ref_count == 1
            case ev.ExternalHit():
                self.met["late load"] += event.is_loading
            case ev.BlockFreed():
                self.met["window"] += event.reason == "window"
                self.met["state freed"] += event.reason == "state"
            case ev.StateCopied():
                self.met["state copied"] += 1
            case ev.BlockMoved():
                self.met["scratch moved"] += 1
            case ev.SharedPrefixFound():
                self.met["junction"] += event.num_tokens > 0
            case ev.BeamReplaced():
                self.met["beam replaced"] += 1
            case ev.RequestForked():
                self.met["fork"] += 1
            case ev.BlockCopied():
                self.met["copy"] += 1
            case ev.DraftsJudged():
                self.met["accepted"] += event.num_accepted
                self.met["rejected"] += event.num_rejected
            case ev.BlockMerged() | ev.BlockEvicted() | ev.RequestPreempted():
                self.met[_NAMES[type(event)]] += 1

    def _proposer(self) -> Proposer:
        num_drafts = self.rng.randint(1, 6)
        if self.alphabet > 3 or self.rng.random() < 0.3:
            return NGram(num_drafts, 1, self.rng.randint(1, 3))
        return ChanceDrafts(num_drafts, self.alphabet, self.rng.choice(("lookup", "draft_model", "eagle")))

    def operations(self, num_operations: int) -> Iterator[str]:
        """Do them, one at a time; each is named once it is over, or is between two phases."""
        engine, rng = self.setup.engine, self.rng
        for _ in range(num_operations):
            chance = rng.random()
            if self._with_branches and rng.random() < 0.15:
                yield self._branch()
            elif chance < 0.22 and len(engine.scheduler.waiting) < 6:
                yield self._add()
                for _ in range(3 if self._is_crowded else 0):
                    yield self._add()
            elif chance < (0.23 if self._is_crowded else 0.27) and engine.requests:
                self.met["abort"] += engine.abort(rng.choice(list(engine.requests)[-8:]))
                yield "abort"
            elif chance < 0.29:
                self.met["reset"] += engine.reset_prefix_cache()
                yield "reset of the prefix cache"
            elif chance < 0.33 and self.tier is not None:
                yield self._lose_content(self.tier)
            elif chance < 0.43:
                yield from self._broken_step()
            elif chance < 0.48 and "interrupts" in self.kinds:
                yield self._step_with_a_failing_listener() if chance < 0.465 else self._interrupted_step()
            else:
                yield self._step()

    def drain(self) -> None:
        """End all requests, half of them by running on; one whose load never arrives is aborted."""
        engine = self.setup.engine
        for request_id in [*engine.requests]:
            if self.rng.random() < 0.5 and request_id in engine.requests:
                engine.abort(request_id)
        for _ in range(MAX_STEPS):
            if engine.scheduler.is_idle:
                return
            self._step()
            for request_id in self.tier.hanging if self.tier is not None else ():
                engine.abort(request_id)
        raise AssertionError(f"it does not end; waiting, running, loading: {queues(engine)}")

    def _add(self) -> str:
        size, rng = max(group.block_size for group in self.groups), self.rng
        stem = rng.choice(self._stems)
        kept = stem[: rng.randint(1, len(stem))] if rng.random() < 0.5 else stem
        prompt = kept + self._tokens(rng.randint(0, size))
        salt = rng.choice(("a", "b")) if rng.random() < 0.1 else None
        keys = (("adapter", rng.choice(("a", "b"))),) if rng.random() < 0.1 else ()
        num_answers = rng.randint(1, self.setup.engine.config.max_num_seqs) if self._with_answers else 1
        asked = {"max_tokens": rng.randint(1, 3 * size), "cache_salt": salt, "extra_keys": keys}
        if self._is_crowded:
            num_slots = self.setup.engine.config.num_blocks * size
            asked |= {"max_tokens": rng.randint(num_slots // 5, num_slots // 3), "ignore_eos": rng.random() < 0.1}
        if "priorities" in self.kinds:
            asked["priority"] = rng.choice((0, 0, 1, -1))
        if "images" in self.kinds and rng.random() < 0.4:
            asked["images"] = self._images(len(prompt))
        is_search = self._with_beams and num_answers > 1 and rng.random() < 0.4
        if is_search:
            asked["beams"] = min(num_answers, 4)
            self.met["search"] += 1
        try:
            leader = self.setup.add(*prompt, **asked)  # type: ignore[arg-type]
        except ConfigError:  # it would never fit
            return "refused"
        for _ in range(1, min(num_answers, 4)):
            self.setup.add(*prompt, **asked, leader_id=leader)  # type: ignore[arg-type]
        return "add"

    def _images(self, num_tokens: int) -> tuple[Image, ...]:
        """Return pictures inside a prompt, one after the other; each name has its own length."""
        images: list[Image] = []
        start = self.rng.randint(0, num_tokens)
        for name in self.rng.choices("ab", k=2):
            length = self.image_lengths[name]
            if start + length <= num_tokens:
                images.append(Image(start, length, name))
                start += length + self.rng.choice((0, 0, 1))
        self.met["image"] += len(images)
        return tuple(images)

    def _branch(self) -> str:
        engine = self.setup.engine
        request_id = self.rng.choice(list(engine.requests) or [0])
        token_id = self.rng.choice((None, None, self.rng.randrange(self.alphabet)))
        try:
            engine.branch(request_id, token_id=token_id)
        except (ConfigError, KeyError):
            return f"refused branch of {request_id}"
        self.met["branch"] += 1
        return f"branch of {request_id}"

    def _lose_content(self, tier: FakeTier) -> str:
        for key in [key for key in tier.blocks if self.rng.random() < 0.3]:
            del tier.blocks[key]
        return "the tier loses content"

    def _step(self) -> str:
        try:
            self.setup.engine.step()
        except TierDown:
            self.met["tier raised"] += 1
            return "step: the tier raised"
        return "step"

    def _interrupted_step(self) -> str:
        """Take a step with Ctrl-C at some moment of it: it happens completely, or not at all."""
        engine, before = self.setup.engine, self.setup.engine.step_number
        try:
            Countdown(POINTS, self.rng.randrange(300), press_ctrl_c, root=(CORE, ENGINE)).run(engine.step)
        except TierDown:
            return "interrupted step: the tier raised"
        except KeyboardInterrupt:
            self.met["interrupted, " + ("completed" if engine.step_number > before else "rolled back")] += 1
        return "interrupted step"

    def _step_with_a_failing_listener(self) -> str:
        """Take a step that is rolled back from some event of it."""
        with raise_at_event(self.setup.engine.hooks, self.rng.randrange(60)), suppress(TierDown):
            try:
                self.setup.engine.step()
            except ListenerFailed:
                self.met["undone at an event"] += 1
        return "step with a failing listener"

    def _broken_step(self) -> Iterator[str]:
        phases: Iterator[Phase] = self.setup.engine.phases()
        try:
            for phase, _ in zip(phases, range(self.rng.randint(1, 3)), strict=False):
                yield phase
        except TierDown:
            yield "step: the tier raised"
        phases.close()  # type: ignore[attr-defined]
        self.met["broken step"] += 1
        yield "broken step"

    def _tokens(self, num_tokens: int) -> tuple[int, ...]:
        return tuple(self.rng.randrange(self.alphabet) for _ in range(num_tokens))

    def _next_token(self, request_id: int, position: int) -> int:
        return (request_id % self._streams * 7919 + position * 104729) % self.alphabet


def _groups(rng: Random) -> Sequence[GroupSpec]:
    size = rng.choice((1, 2, 3, 4, 4, 8))
    full = GroupSpec(size * rng.choice((1, 1, 2)))
    if rng.random() < 0.35:
        return (full,)
    sizes = [size * rng.choice((1, 1, 1, 2)) for _ in range(rng.randint(1, 3))]
    windows = [
        GroupSpec(s, "sliding_window", rng.choice((1, s, 2 * s, 2 * s + 1, rng.randint(2, 6 * s)))) for s in sizes
    ]
    groups = [full, *windows]
    rng.shuffle(groups)
    return groups


def _with_states(rng: Random, groups: Sequence[GroupSpec]) -> Sequence[GroupSpec]:
    """State groups beside these, or alone; blocks of another size than the others' in some episodes."""
    size = max(group.block_size for group in groups) * rng.choice((1, 1, 1, 2))
    states = [GroupSpec(size, "state")] * rng.choice((1, 1, 2))
    mixed = [*states, *(groups if rng.random() < 0.85 else ())]
    rng.shuffle(mixed)
    return mixed


def _tier(rng: Random) -> FakeTier | None:
    if rng.random() < 0.2:
        return None
    chance = rng.choice((0.0, 0.2, 0.4))
    luck = Luck(fails=chance, hangs=chance, loses=chance / 4, raises=chance / 40)
    return FakeTier(luck, rng.randrange(1000), rng.choice((None, None, 1, 2)))
