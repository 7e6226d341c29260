"""The tally of a run: its decisions in order, and their cost."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from labengine import events as ev
from labengine.engine.engine import Engine
from labengine.record.figures import Counter
from labengine.record.hooks import Hooks


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a complete run."""

    hit_tokens: int
    computed_tokens: int
    peak_used_blocks: int
    num_steps: int


class Tally:
    """Listens to one engine. Decisions do not include block ids, which make no difference."""

    def __init__(self, hooks: Hooks) -> None:
        self.decisions: list[str] = []
        self.sharing: list[tuple[int, int]] = []
        """Requests that hit a block, each with the request that registered it."""
        self._counter, self._peak, self._num_steps = Counter(), 0, 0
        self._registered_by: dict[int, int] = {}
        self._subscriptions = [
            self._counter.subscribe(hooks, ev.PrefixHit, ev.ForwardRan),
            hooks.subscribe(self._note_hit, ev.PrefixHit),
            hooks.subscribe(self._note_scheduled, ev.RequestScheduled),
            hooks.subscribe(self._note_end, ev.RequestPreempted, ev.RequestFinished),
            hooks.subscribe(self._note_merge, ev.BlockMerged),
            hooks.subscribe(self._note_registered, ev.BlockCached),
            hooks.subscribe(self._note_ended, ev.StepEnded),
        ]

    def close(self) -> None:
        """Stop listening."""
        for subscription in self._subscriptions:
            subscription.close()

    def note_step(self, engine: Engine) -> None:
        """Take the newest step's peak."""
        self._peak = max(self._peak, engine.report.peak_used_blocks)

    def cost(self, peak_used_blocks: int = 0) -> Cost:
        """Return the costs so far, including a peak counted elsewhere."""
        figures = self._counter.figures
        return Cost(figures.num_hit, figures.num_computed, max(self._peak, peak_used_blocks), self._num_steps)

    def _note_hit(self, event: ev.PrefixHit) -> None:
        self.decisions.append(f"request {event.request_id} finds {event.num_tokens} tokens in the cache")
        hits = (block_id for block_ids in event.block_ids for block_id in block_ids)
        self.sharing += [(event.request_id, self._registered_by[i]) for i in hits if i in self._registered_by]

    def _note_registered(self, event: ev.BlockCached) -> None:
        self._registered_by[event.block_id] = event.request_id

    def _note_ended(self, _: ev.StepEnded) -> None:
        self._num_steps += 1

    def _note_scheduled(self, event: ev.RequestScheduled) -> None:
        self.decisions.append(f"request {event.request_id} computes {event.num_tokens} tokens from {event.start}")

    def _note_end(self, event: ev.RequestPreempted | ev.RequestFinished) -> None:
        verb = "is preempted" if isinstance(event, ev.RequestPreempted) else "finishes"
        self.decisions.append(f"request {event.request_id} {verb}")

    def _note_merge(self, event: ev.BlockMerged) -> None:
        self.decisions.append(f"request {event.request_id} merges entry {event.index} of group {event.group}")


def first_difference(one: Tally, other: Tally) -> tuple[str, str] | None:
    """Return the first decisions that differ; None if all are the same."""
    pairs = zip_longest(one.decisions, other.decisions, fillvalue="nothing more happens")
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def worse(one: Cost, other: Cost, margin: int) -> str:
    """Describe how the first run is worse than the second by at least the margin; empty if it is not."""
    said = []
    if other.hit_tokens - one.hit_tokens >= margin:
        said.append(f"finds {one.hit_tokens} tokens in the cache instead of {other.hit_tokens}")
    if one.computed_tokens - other.computed_tokens >= margin:
        said.append(f"computes {one.computed_tokens} tokens instead of {other.computed_tokens}")
    if one.peak_used_blocks - other.peak_used_blocks >= margin:
        said.append(f"uses {one.peak_used_blocks} blocks at its peak instead of {other.peak_used_blocks}")
    if one.num_steps - other.num_steps >= margin:
        said.append(f"takes {one.num_steps} steps in total instead of {other.num_steps}")
    return ", ".join(said)
