"""Runs that why? is asked about: #219 in both editions, small engines with their recordings, a chain of an answer."""

from __future__ import annotations

from collections.abc import Iterable

from driving import small_engine
from labengine.config import GroupSpec, SamplingParams
from labengine.engine.engine import Engine
from labengine.engine.request_options import RequestOptions, salted
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine_widgets.why import Why, why
from widgets.story_219 import begin, merging_step, overwriting_step

MERGED, OVERWRITTEN = [*begin(), *merging_step()], [*begin(), *overwriting_step()]
HYBRID = (GroupSpec(4), GroupSpec(4, "sliding_window", 8))


def numbers(reply: Why) -> list[int | None]:
    return [link.event_number for link in reply.links]


def kinds(timeline: Timeline, reply: Why) -> list[str]:
    """The kinds of the events of a chain."""
    events = timeline.events()
    return [type(events[n]).__name__ for n in numbers(reply) if n is not None]


class Run:
    """A small engine and its recording."""

    def __init__(self, **options: object) -> None:
        hooks = Hooks(strict=True)
        self.timeline = Timeline()
        hooks.subscribe(self.timeline.record)
        self.engine: Engine = small_engine(hooks=hooks, **options)  # type: ignore[arg-type]  # as a test says them

    def add(self, tokens: Iterable[int], max_tokens: int = 1, salt: str | None = None) -> int:
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=False)
        return self.engine.add(list(tokens), RequestOptions(sampling, salted((), salt)))

    def play(self, tokens: Iterable[int], max_tokens: int = 1, salt: str | None = None) -> int:
        """Add a request, and run until all are finished."""
        request_id = self.add(tokens, max_tokens, salt)
        while not self.engine.scheduler.is_idle:
            self.engine.step()
        return request_id

    def why(self, moment: int | None = None, **subject: object) -> Why:
        return why(self.timeline, subject, moment)
