"""A question to the reader that the lab's next step answers, and the reader's prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

QuestionKind = Literal["block", "request", "hash", "number"]
Prediction = int | str


@dataclass(slots=True)
class Question:
    """A question that is asked before a step. Views show it, and take a click or a number as the prediction.

    accept: called with what a view sends; it keeps the prediction, and raises ConfigError for what is none.
    prediction: a block's or a request's number, "group:hex" for a hash, or a number; None for nothing yet. verdict:
    what came of the newest prediction that a step has judged, in a sentence; empty before. is_open: a prediction can
    be made.
    """

    text: str
    kind: QuestionKind
    accept: Callable[[Any], object]
    prediction: Prediction | None = None
    verdict: str = ""
    is_right: bool | None = None
    is_open: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the question serialised for the browser (JSON types only)."""
        return {
            "text": self.text,
            "kind": self.kind,
            "prediction": self.prediction,
            "verdict": self.verdict,
            "is_right": self.is_right,
            "is_open": self.is_open,
        }
