"""The widgets of one lab, and the moment and the selection that all of them show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from labengine.timeline import Timeline
from labengine_widgets.feed.payload import Payload, packed
from labengine_widgets.selection import Selection


class Viewer(Protocol):
    """A widget, as its feed sees it."""

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send a message to all browser halves of the widget."""

    def close(self) -> None:
        """Detach the widget from its lab and remove it from the page."""

    def update_saved(self) -> None:
        """Refresh what a saved notebook keeps; the lab has paused."""


class Audience:
    """The viewers of one lab, each with its side of a comparison.

    Changed under the feed's lock, read from any thread.
    """

    def __init__(self) -> None:
        self._seats: list[tuple[Viewer, int]] = []

    def __bool__(self) -> bool:
        return bool(self._seats)

    def admit(self, viewer: Viewer, side: int) -> None:
        """Add a viewer. side: 0, or 1 for the right half of a comparison."""
        self._seats = [*self._seats, (viewer, side)]

    def dismiss(self, viewer: Viewer) -> None:
        """Remove a viewer; a second time does nothing."""
        self._seats = [seat for seat in self._seats if seat[0] is not viewer]

    def each(self, act: Callable[[Viewer], object]) -> None:
        """Call `act` with every viewer, also with those that are removed meanwhile."""
        for viewer, _ in self._seats:
            act(viewer)

    def send(self, content: dict[str, Any], payload: Payload | None = None) -> int:
        """Send a message to every viewer; the payload is encoded once. Returns the payload bytes sent in all."""
        seats, buffers = self._seats, None if payload is None else [packed(payload)]
        for viewer, side in seats:
            viewer.send(content | {"side": side}, buffers)
        return len(buffers[0]) * len(seats) if buffers else 0


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
