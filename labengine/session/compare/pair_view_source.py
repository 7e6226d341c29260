"""A comparison as its view sees it: both view_sources, the beats' moments, and wishes carried out on its own thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.timeline import Timeline

if TYPE_CHECKING:
    from labengine.session.compare.comparison import Comparison


class ComparisonViewSource:
    """labengine_widgets.joint.PairViewSource for a comparison."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self.title, self.guide = comparison.title, comparison.guide
        self.names, self.roles = comparison.names, comparison.roles
        self.view_sources = tuple(side.view_source() for side in comparison.sides)
        self.later_question = comparison.later_question
        self._wishes: dict[str, Callable[..., Any]] = {
            "step": comparison.step,
            "phase": comparison.next_phase,
            "start": comparison.start,
            "pause": comparison.pause,
            "reset": comparison.reset,
            "abort": comparison.abort,
            "add": self._add,
            "later": comparison.later,
            "goto": comparison.goto,
            "rewind": comparison.rewind,
        }

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """The recordings, left and right."""
        return self._comparison.timelines

    @property
    def level(self) -> tuple[int, int]:
        """The moments up to which both sides have done the same."""
        return self._comparison.level

    @property
    def rest(self) -> tuple[int, int]:
        """The moments at which both last stood between two steps."""
        return self._comparison.rest

    @property
    def is_live(self) -> bool:
        """False for opened traces."""
        return self._comparison.is_live

    @property
    def is_running(self) -> bool:
        """True while both step by themselves."""
        return self._comparison.is_running

    @property
    def has_later(self) -> bool:
        """Whether "later" may be asked for."""
        return self._comparison.has_later

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have the comparison's own thread do `action`; ConfigError for another. The Future has the error, if any."""
        if action not in self._wishes:
            raise ConfigError(f"a comparison cannot {action}; it can {', '.join(self._wishes)}")
        if action == "pause":  # posted, it would wait for a step that may not end
            self._comparison._background.hurry()
        return self._comparison.post(partial(self._wishes[action], **arguments))

    def _add(self, prompt: str, copies: int, max_tokens: int) -> Sequence[int]:
        return [self._comparison.add(prompt, max_tokens=max_tokens) for _ in range(copies)]
