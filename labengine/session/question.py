"""A question to the reader that the lab's next step answers, and the reader's prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from labengine.config import ConfigError, shown

QuestionKind = Literal["block", "request", "hash", "number"]
Prediction = int | str
Mark = tuple[str, Prediction]
"""What a view marks: "block", "request" or "hash", and which one."""


@dataclass(slots=True)
class Question:
    """A question that is asked before a step. Views show it, and take a click or a number as the prediction.

    accept: called with what a view sends; it keeps the prediction, and raises ConfigError for what is none.
    prediction: a block's or a request's number, "group:hex" for a hash, or a number; None for nothing yet. verdict:
    what came of the newest prediction that a step has judged, in a sentence; empty before. reason: why, if it was
    wrong. said, truth: what views mark as said, and as right, after a verdict. hint: the hints that were asked for.
    is_open: a prediction can be made. offers: what the reader may ask for besides, by name: "go" takes the step,
    "again", "hint", "another".
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
        """Do what the question offers under this name. Raises ConfigError for another one."""
        if not isinstance(wish, str) or wish not in self.offers:
            raise ConfigError(f"the question offers {', '.join(self.offers) or 'nothing'}; got {shown(wish)}")
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
