"""A question to the reader that the lab's next step answers, and the reader's prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from labengine.config import ConfigError, shown

QuestionKind = Literal["block", "request", "hash", "number"]
Prediction = int | str
Mark = tuple[str, Prediction]
"""A mark in a view: "block", "request" or "hash", and which one."""


@dataclass(slots=True)
class Question:
    """A question that is asked before a step. Views show it, and take a click or a number as the prediction.

    accept: called with a view's answer; keeps the prediction, or raises ConfigError for an invalid one.
    prediction: a block's or a request's number, "group:hex" for a hash, or a number; None before any. verdict: the
    result of the newest judged prediction, in a sentence; empty before. reason: why, if it was wrong. said, truth: the
    marks of the prediction and of the right answer, after a verdict. hint: the hints asked for so far.
    is_open: a prediction can be made. offers: other commands for the reader, by name: "go" takes the step, "again",
    "hint", "another".
    """

    text: str
    kind: QuestionKind
    accept: Callable[[Any], object]
    prediction: Prediction | None = None
    verdict: str = ""
    is_right: bool | None = None
    is_open: bool = True
    reason: str = ""
    said: tuple[Mark, ...] = ()
    truth: tuple[Mark, ...] = ()
    hint: str = ""
    offers: Mapping[str, Callable[[], object]] = field(default_factory=dict)

    def ask_for(self, wish: object) -> object:
        """Do one of the question's offers. Raises ConfigError for any other."""
        if not isinstance(wish, str) or wish not in self.offers:
            raise ConfigError(f"the question offers {', '.join(self.offers) or 'nothing'}, got {shown(wish)}")
        return self.offers[wish]()

    def to_dict(self) -> dict[str, Any]:
        """Return the question serialised for the browser (JSON types only)."""
        return {
            "text": self.text,
            "kind": self.kind,
            "prediction": self.prediction,
            "verdict": self.verdict,
            "is_right": self.is_right,
            "is_open": self.is_open,
            "reason": self.reason,
            "said": [list(mark) for mark in self.said],
            "truth": [list(mark) for mark in self.truth],
            "hint": self.hint,
            "offers": [*self.offers],
        }
