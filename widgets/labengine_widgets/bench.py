"""What a dashboard may know of the lab it stands in front of: its hooks, its state, and a letterbox for wishes."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from labengine.fold import Fold
from labengine.hooks import Hooks
from labengine.timeline import Timeline


@runtime_checkable
class Bench(Protocol):
    """A lab as its views see it. Views read and post; they never touch the engine.

    title: one line, such as "smollm2 · edition labengine · 32 blocks of 16".
    timeline: None when nothing is recorded.
    is_running: True while the lab steps by itself, False while the user steps by hand.
    phase: the phase done last in an open step (schedule, forward, sample or update); None between steps.
    """

    title: str
    hooks: Hooks
    timeline: Timeline | None

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself."""

    @property
    def phase(self) -> str | None:
        """The phase done last in an open step, None between steps."""

    def fold(self) -> Fold:
        """A copy of the state now; may be asked for inside a listener, too."""

    def token_text(self, token_id: int) -> str:
        """Readable text of one token."""

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have the lab's own thread do `action`; the Future carries the error, if any.

        Actions: step, phase, start, pause, reset, add(prompt, copies, max_tokens), abort(request_id).
        """
