"""What joins the two sides of a comparison: the beats, the guide, and where the editions part, as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from labengine.timeline import Timeline
from labengine_widgets.compared import Compared, Parting, Stop
from labengine_widgets.view_source import ViewSource


class PairViewSource(Protocol):
    """The sources of both views of a comparison, as their view sees them."""

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
    def view_sources(self) -> tuple[ViewSource, ...]:
        """Left and right."""

    @property
    def follow_up_question(self) -> str:
        """The words of the button that goes on with the story, which is there while has_follow_up."""

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """The recordings, left and right."""

    @property
    def aligned_at(self) -> tuple[int, int]:
        """The moments up to which both sides have done the same."""

    @property
    def last_boundary(self) -> tuple[int, int]:
        """The moments at which both last stood between two steps."""

    @property
    def is_live(self) -> bool:
        """True when it can be stepped."""

    @property
    def is_running(self) -> bool:
        """True while both step by themselves."""

    @property
    def has_follow_up(self) -> bool:
        """Whether "later" may be asked for."""

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have both do something; the Future carries the error, if any."""


class Joint:
    """The words of a comparison as they grow, and as they travel."""

    def __init__(self, source: PairViewSource) -> None:
        left, right = source.timelines
        words = (source.view_sources[0].token_text, source.view_sources[1].token_text)
        self.view_source = source
        self.beats = Compared(left, right, words, source.guide, signs_letters=True)
        self._told_parting: tuple[Parting, dict[str, Any]] | None = None
        self.grow()

    def grow(self) -> int | None:
        """Tell what has happened on both sides since; the number of the first new beat, None without any."""
        return self.beats.grow(self.view_source.aligned_at, self.view_source.last_boundary)

    def payload(self, first: int | None = None) -> dict[str, Any]:
        """The beats from a number on (by default all), and what stands around them."""
        beats, source = self.beats, self.view_source
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
            "guide": [stop.sentence for stop in source.guide],
            "questions": [stop.question for stop in source.guide],
            "later": source.follow_up_question if source.has_follow_up else None,
            "title": source.title,
            "names": source.names,
            "roles": source.roles,
            "is_running": source.is_running,
            "is_live": source.is_live,
        }

    def _parted(self, parting: Parting | None) -> dict[str, Any] | None:
        """Why the two part, as the drawer shows it; asked for once."""
        if parting is None:
            return None
        if self._told_parting is None or self._told_parting[0] != parting:
            from labengine_widgets.why import why_parted

            left, right = self.view_source.view_sources
            seams = (left.seams(), right.seams())
            why = why_parted(*self.view_source.timelines, parting.left, parting.right, seams, self.view_source.names)
            self._told_parting = parting, why.to_dict()
        return self._told_parting[1]
