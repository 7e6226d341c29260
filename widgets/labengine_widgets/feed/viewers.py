"""The widgets of one lab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from labengine_widgets.feed.payload import Payload, packed

BYTES_A_SECOND = 500_000
"""Upper bound of the average rate to a widget: a Jupyter server drops messages above a million."""


class Viewer:
    """A widget's interface to its feed."""

    def send(self, content: dict[str, Any], buffers: list[bytes] | None = None) -> None:
        """Send a message to every browser half of the widget."""
        raise NotImplementedError

    def update_saved(self) -> None:
        """Refresh the state of a saved page; the lab has paused."""
        raise NotImplementedError


class Viewing(NamedTuple):
    """A viewer, its side of a comparison, and the bytes a second that the connection to its browser can take."""

    viewer: Viewer
    side: int
    bytes_a_second: int


class Viewers:
    """The viewers of one lab. Changed under the feed's lock, read from any thread."""

    def __init__(self) -> None:
        self._viewings: list[Viewing] = []

    def __len__(self) -> int:
        return len(self._viewings)

    @property
    def bytes_a_second(self) -> int:
        """Upper bound of the average rate, which the slowest viewer sets."""
        return min((rate for _, _, rate in self._viewings), default=BYTES_A_SECOND)

    def admit(self, viewer: Viewer, side: int, bytes_a_second: int) -> None:
        """Add a viewer. side: 0, or 1 for the right half of a comparison."""
        self._viewings = [*self._viewings, Viewing(viewer, side, bytes_a_second)]

    def dismiss(self, viewer: Viewer) -> None:
        """Remove a viewer; a second time does nothing."""
        self._viewings = [viewing for viewing in self._viewings if viewing.viewer is not viewer]

    def each(self, act: Callable[[Viewer], object]) -> None:
        """Call `act` with every viewer, also with those that are removed meanwhile."""
        for viewer, *_ in self._viewings:
            act(viewer)

    def send(self, content: dict[str, Any], payload: Payload | None = None) -> int:
        """Send a message to every viewer; the payload is encoded once. Returns the payload bytes sent in all."""
        viewings, buffers = self._viewings, None if payload is None else [packed(payload)]
        for viewer, side, _ in viewings:
            viewer.send(content | {"side": side}, buffers)
        return len(buffers[0]) * len(viewings) if buffers else 0
