"""The lab as its views see it: labengine_widgets.bench.Bench, with wishes carried out on the lab's own thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from labengine.desk.stepper import Stepper
from labengine.fold import Fold
from labengine.hooks import Hooks
from labengine.timeline import Timeline


@dataclass(slots=True)
class LabBench:
    """Reads go straight through; wishes are posted, because widget callbacks may arrive on any thread.

    wishes: what the lab does for each action that a view may ask for.
    """

    title: str
    hooks: Hooks
    timeline: Timeline | None
    stepper: Stepper
    token_text: Callable[[int], str]
    wishes: Mapping[str, Callable[..., Any]]

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself."""
        return self.stepper.is_running

    @property
    def phase(self) -> str | None:
        """The phase done last in an open step, None between steps."""
        return None if self.stepper.phase == "update" else self.stepper.phase

    def fold(self) -> Fold:
        """A copy of the state now."""
        with self.stepper.turn_to_look():
            return Fold.of(self.stepper.engine.snapshot())

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have the lab's own thread do `action`; the Future carries the error, if any."""
        return self.stepper.background.post(partial(self.wishes[action], **arguments))
