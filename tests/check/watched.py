"""Engines under watch, on the simulated model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from driving import as_parts, difference
from labengine.check.watch import Watch
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.core.proposer import Proposer
from labengine.core.request import ExtraKeys
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions, salted
from labengine.engine.simulated import NextToken, SimulatedRunner, default_next_token
from labengine.events import DecisionDiffered, Event
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline

FULL = (GroupSpec(4),)
HYBRID = (GroupSpec(4), GroupSpec(4, "sliding_window", 8))


@dataclass
class Watched:
    """An engine, its recording, and the watch that judges it."""

    engine: Engine
    timeline: Timeline
    watch: Watch

    def add(
        self,
        *token_ids: int,
        max_tokens: int = 1,
        beams: int = 1,
        ignore_eos: bool = True,
        cache_salt: str | None = None,
        extra_keys: ExtraKeys = (),
        leader_id: int | None = None,
        **options: Any,
    ) -> int:
        """Queue a prompt; of a search with beams the first one."""
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos, beams=beams)
        asked = RequestOptions(sampling, salted(extra_keys, cache_salt), **options)
        return self.engine.add(token_ids, asked, leader_id)

    def search(self, *token_ids: int, beams: int, max_tokens: int = 1, cache_salt: str | None = None) -> list[int]:
        """Queue a beam search; return the ids of its beams."""
        ids: list[int] = []
        for _ in range(beams):
            leader = ids[0] if ids else None
            ids.append(
                self.add(*token_ids, max_tokens=max_tokens, beams=beams, cache_salt=cache_salt, leader_id=leader)
            )
        return ids

    def run(self) -> None:
        """Step until there is nothing to do."""
        while self.engine.step():
            pass

    def steps(self, num_steps: int) -> None:
        """Step some times."""
        for _ in range(num_steps):
            self.engine.step()

    def broken_rules(self) -> set[str]:
        """The rules that were found broken so far."""
        return {violation.rule for violation in self.watch.violations}

    def assert_clean(self) -> None:
        """No rule is broken, and the core is what its events add up to."""
        assert self.watch.check(self.engine.snapshot()) == []
        assert difference(self.timeline.state().snapshot(), self.engine.snapshot()) is None

    def differences(self) -> list[DecisionDiffered]:
        """The decisions that an override took otherwise than production."""
        return self.timeline.of_kind(DecisionDiffered)

    def first_event(self, rule: str) -> Event:
        """The event that the first violation of the rule points at."""
        violation = next(v for v in self.watch.violations if v.rule == rule)
        assert violation.first_event is not None, violation
        (event,) = self.timeline.events(violation.first_event, violation.first_event + 1)
        return event


def watched(
    num_blocks: int = 16,
    groups: Sequence[GroupSpec] = FULL,
    edition: str | Parts = "labengine",
    *,
    connector: Connector | None = None,
    budget: int = 1000,
    max_num_seqs: int = 16,
    next_token: NextToken = default_next_token,
    max_events: int = 100_000,
    proposer: Proposer | None = None,
    **settings: object,
) -> Watched:
    """A strict engine: whatever a listener raises, the test sees."""
    if proposer is not None:
        settings["num_drafts"] = proposer.num_drafts
        settings["drafter"] = proposer.drafter
    config = EngineConfig(num_blocks, tuple(groups), max_num_seqs, budget, **settings)  # type: ignore[arg-type]
    hooks, timeline = Hooks(strict=True), Timeline(max_events)
    hooks.subscribe(timeline.record)
    watch = Watch(hooks, timeline)
    runner = watch.wrap(SimulatedRunner(next_token))
    engine = Engine(config, runner, as_parts(edition), hooks, connector, proposer=proposer)
    watch.follow(engine)
    return Watched(engine, timeline, watch)
