"""What joins the two sides of a comparison: the beats, the guide, and where the editions part, as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from labengine.timeline import Timeline
from labengine_widgets.bench import Bench
from labengine_widgets.compared import Compared, Parting, Stop


class CompareBench(Protocol):
    """Two benches in lockstep, as their view sees them."""

    @property
    def title(self) -> str:
        """What is compared."""

    @property
    def names(self) -> tuple[str, str]:
        """What to call the sides."""

    @property
    def roles(self) -> tuple[str, str]:
        """What each side is in the story, such as the bug and the fix; empty where there is none."""

    @property
    def guide(self) -> Sequence[Stop]:
        """Sentences in the order in which they are due."""

    @property
    def benches(self) -> tuple[Bench, ...]:
        """Left and right."""

    @property
    def later_question(self) -> str:
        """The words of the button that goes on with the story, which is there while has_later."""

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """The recordings, left and right."""

    @property
    def level(self) -> tuple[int, int]:
        """The moments up to which both sides have done the same."""

    @property
    def rest(self) -> tuple[int, int]:
        """The moments at which both last stood between two steps."""

    @property
    def is_live(self) -> bool:
        """True when it can be stepped."""

    @property
    def is_running(self) -> bool:
        """True while both step by themselves."""

    @property
    def has_later(self) -> bool:
        """Whether "later" may be asked for."""

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have both do something; the Future carries the error, if any."""


class Joint:
    """The words of a comparison as they grow, and as they travel."""

    def __init__(self, bench: CompareBench) -> None:
        left, right = bench.timelines
        words = (bench.benches[0].token_text, bench.benches[1].token_text)
        self.bench = bench
        self.beats = Compared(left, right, words, bench.guide, signs_letters=True)
        self._told_parting: tuple[Parting, dict[str, Any]] | None = None
        self.grow()

    def grow(self) -> int | None:
        """Tell what has happened on both sides since; the number of the first new beat, None without any."""
        return self.beats.grow(self.bench.level, self.bench.rest)

    def payload(self, first: int | None = None) -> dict[str, Any]:
        """The beats from a number on (by default all), and what stands around them."""
        beats, bench = self.beats, self.bench
        start = beats.first if first is None else first
        parting = beats.parting
        return {
            "from": start,
            "first": beats.first,
            "starts": beats.starts,
            "beats": [beat.row() for beat in beats.beats[start - beats.first :]],
            "rest": beats.resting(),
            "parting": parting and parting.number,
            "parted": self._parted(parting),
            "guide": [stop.sentence for stop in bench.guide],
            "questions": [stop.question for stop in bench.guide],
            "later": bench.later_question if bench.has_later else None,
            "title": bench.title,
            "names": bench.names,
            "roles": bench.roles,
            "is_running": bench.is_running,
            "is_live": bench.is_live,
        }

    def _parted(self, parting: Parting | None) -> dict[str, Any] | None:
        """Why the two part, as the drawer shows it; asked for once."""
        if parting is None:
            return None
        if self._told_parting is None or self._told_parting[0] != parting:
            from labengine_widgets.why import why_parted

            left, right = self.bench.benches
            seams = (left.seams(), right.seams())
            why = why_parted(*self.bench.timelines, parting.left, parting.right, seams, self.bench.names)
            self._told_parting = parting, why.to_dict()
        return self._told_parting[1]
