"""The moment and the selection that all views of one lab show."""

from __future__ import annotations

from labengine.record.timeline import Timeline
from labengine_widgets.feed.payload import Payload
from labengine_widgets.selection import Selection


class ShownState:
    """The moment and the selection that all views of one lab show.

    moment: the moment that the views show; None: the newest one, and they follow.
    num_shows, num_selects: how often Python has set the moment, and the selection. Views answer with the counts that
    they have heard of: what a reader did before the newest one was heard is outdated, however late it arrives.
    """

    def __init__(self) -> None:
        self.moment: int | None = None
        self.selection: Selection | None = None
        self.num_shows = self.num_selects = 0
        self._shown_at = (-1, 0)

    def show(self, moment: int | None, timeline: Timeline | None) -> None:
        """Note the moment that Python has the views show, and how far the recording was then."""
        self.moment = moment
        self.num_shows += 1
        self._shown_at = (-1, 0) if timeline is None else (timeline.generation, timeline.end)

    def select(self, selection: Selection | None) -> None:
        """Note the selection that Python makes in every view."""
        self.selection = selection
        self.num_selects += 1

    def move_on(self, now: tuple[int, int]) -> None:
        """Show the newest moment again if the recording has gained events. now: its generation and end."""
        if self._shown_at < now:
            self.moment = None

    def payload(self) -> Payload:
        """Return the fields of a full payload."""
        return {
            "selection": self.selection and self.selection.to_dict(),
            "shown": self.moment,
            "num_shows": self.num_shows,
            "num_selects": self.num_selects,
        }
