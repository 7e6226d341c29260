"""The moment and the selection that all views of one lab show."""

from __future__ import annotations

from labengine.timeline import Timeline
from labengine_widgets.feed.payload import Payload
from labengine_widgets.selection import Selection


class ShownState:
    """The moment and the selection that all views of one lab show.

    moment: the moment that the views show; None: the newest one, and they follow.
    """

    def __init__(self) -> None:
        self.moment: int | None = None
        self.selection: Selection | None = None
        self._shown_at = (-1, 0)

    def show(self, moment: int | None, timeline: Timeline | None) -> None:
        """Note the moment that Python has the views show, and how far the recording was then."""
        self.moment = moment
        self._shown_at = (-1, 0) if timeline is None else (timeline.generation, timeline.end)

    def move_on(self, now: tuple[int, int]) -> None:
        """Show the newest moment again if the recording has gained events. now: its generation and end."""
        if self._shown_at < now:
            self.moment = None

    def payload(self) -> Payload:
        """Return the fields of a full payload."""
        return {"selection": self.selection and self.selection.to_dict(), "shown": self.moment}
