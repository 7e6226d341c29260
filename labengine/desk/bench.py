"""The lab as its views see it: labengine_widgets.bench.Bench, with wishes carried out on the lab's own thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labengine.hooks import Hooks
    from labengine.lab import Lab
    from labengine.timeline import Fold, Timeline


class LabBench:
    """Reads go straight through; wishes are posted, because widget callbacks may arrive on any thread."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.title: str = lab.title
        self.hooks: Hooks = lab.hooks
        self.timeline: Timeline | None = lab.timeline

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself."""
        return self._lab.is_running

    @property
    def phase(self) -> str | None:
        """The phase done last in an open step, None between steps."""
        return None if self._lab.phase == "update" else self._lab.phase

    def fold(self) -> Fold:
        """A copy of the state now."""
        return self._lab.fold()

    def token_text(self, token_id: int) -> str:
        """Readable text of one token."""
        return self._lab.token_text(token_id)

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have the lab's own thread do `action`; the Future carries the error, if any."""
        wishes: dict[str, Callable[..., Any]] = {
            "step": self._lab.step,
            "phase": self._lab.next_phase,
            "start": self._lab.start,
            "pause": self._lab.pause,
            "reset": self._lab.reset,
            "abort": self._lab.abort,
            "add": self._add,
        }
        return self._lab.post(partial(wishes[action], **arguments))

    def _add(self, prompt: str, copies: int, max_tokens: int) -> list[int]:
        return [self._lab.add(prompt, max_tokens=max_tokens) for _ in range(copies)]
