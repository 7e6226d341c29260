"""The views' interface to a running vLLM: its recording grows, and commands are refused."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.session.reasons import Seam
from labengine.session.view_source import refused

if TYPE_CHECKING:
    from labengine.vllm.stream.live import LiveStream

REFUSAL = "this is vLLM's own scheduler, which steps by itself: only its requests move it"


class LiveViewSource:
    """A labengine_widgets.ViewSource for a LiveStream."""

    phase: str | None = None
    stopped: str | None = None
    asked: dict[str, Any] | None = None
    request_options: tuple[str, ...] = ()

    def __init__(self, stream: LiveStream, lab: str) -> None:
        self.lab = lab
        self.hooks: Hooks | None = stream.reader.hooks
        self.timeline: Timeline | None = stream.timeline
        self._stream = stream

    @property
    def title(self) -> str:
        """Engine, rank, model and pool; and the piece, after a gap."""
        return self._stream.title

    @property
    def note(self) -> str:
        """Text in place of the controls: that it is live, and where it begins or ends."""
        return self._stream.note

    @property
    def is_live(self) -> bool:
        """True while the stream may bring events."""
        return self._stream.is_connected

    @property
    def is_running(self) -> bool:
        """True while events come."""
        return self._stream.is_running

    def fold(self) -> Fold:
        """Return a copy of the present state."""
        return self._stream.fold()

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""
        return self._stream.token_text(token_id)

    def engine_id(self, request_id: int) -> str:
        """Return vLLM's own id of a request."""
        return self._stream.engine_id(request_id)

    def seams(self) -> dict[str, Seam]:
        """Return vLLM's method that decides each kind of event."""
        return self._stream.seams

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Refuse the command: the Future carries the error."""
        return refused(action, REFUSAL)
