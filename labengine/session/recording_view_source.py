"""A recording that has ended, as its views see it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from labengine.config import ConfigError
from labengine.fold import Fold
from labengine.hooks import Hooks
from labengine.timeline import Timeline


@dataclass(slots=True)
class RecordingViewSource:
    """labengine_widgets.view_source.ViewSource for a recording: nothing happens in it any more, and wishes are refused.

    refusal: why there is nothing to step, and what to do instead. moment: the one that pictures show; None: the end.
    """

    title: str
    lab: str
    timeline: Timeline | None
    token_text: Callable[[int], str]
    code: dict[str, Any]
    refusal: str
    moment: int | None = None
    note: str = ""
    hooks: Hooks | None = None
    is_live: bool = False
    is_running: bool = False
    phase: str | None = None
    stopped: str | None = None

    def fold(self) -> Fold:
        """The state at the moment that pictures show."""
        assert self.timeline is not None
        return self.timeline.state(self.moment)

    def seams(self) -> dict[str, Any]:
        """Which method decided an event, as the code was when it was recorded."""
        return self.code

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Refused: the Future carries the error."""
        refused: Future[Any] = Future()
        refused.set_exception(ConfigError(f"{action}: {self.refusal}"))
        return refused
