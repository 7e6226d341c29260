"""The widgets of one lab, as its feed sees them: what is sent goes to all of them, encoded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from labengine_widgets.feed.payload import Payload, packed


class Viewer(Protocol):
    """A widget, as the feed sees it."""

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """To all its browser halves."""

    def close(self) -> None:
        """Detach, and go."""

    def update_saved(self) -> None:
        """The lab has come to rest: a moment to save what there is to see."""


class Audience:
    """Viewers with the side on which each shows the lab. Changed under the feed's guard, read from any thread."""

    def __init__(self) -> None:
        self._seats: list[tuple[Viewer, int]] = []

    def __bool__(self) -> bool:
        return bool(self._seats)

    def admit(self, viewer: Viewer, side: int) -> None:
        """One more."""
        self._seats = [*self._seats, (viewer, side)]

    def dismiss(self, viewer: Viewer) -> None:
        """One less; twice is harmless."""
        self._seats = [seat for seat in self._seats if seat[0] is not viewer]

    def each(self, act: Callable[[Viewer], object]) -> None:
        """Do something with every viewer; who leaves meanwhile is met, too."""
        for viewer, _ in self._seats:
            act(viewer)

    def send(self, content: dict[str, Any], payload: Payload | None = None) -> int:
        """Send to everybody; returns the payload's bytes, a long one's zipped, as often as they went."""
        seats, buffers = self._seats, None if payload is None else [packed(payload)]
        for viewer, side in seats:
            viewer.send(content | {"side": side}, buffers)
        return len(buffers[0]) * len(seats) if buffers else 0
