"""One request's look-up in the prefix cache, and the cause of each token that it did not find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from labengine.prefix_doctor.look_ups.content import LostContent

Cause = Literal[
    "new",
    "short_of_a_block",
    "tail",
    "evicted",
    "other_replica",
    "reset",
    "not_registered_yet",
    "never_registered",
    "other_salt",
    "dropped",
    "passed_over",
    "unknown",
]

CAUSES: dict[Cause, str] = {
    "evicted": "evicted before",
    "other_replica": "cached on another replica",
    "reset": "forgotten: the cache was reset, or the content was not trusted",
    "not_registered_yet": "being computed by another request, and not registered yet",
    "never_registered": "computed before, but never registered",
    "other_salt": "the same under another salt, adapter or image",
    "dropped": "cached but recomputed: the last block of a hit, for the drafter",
    "passed_over": "cached, but not used by the engine",
    "unknown": "unknown: the recording cannot tell",
    "short_of_a_block": "shared, but in a block that is shared only in part",
    "new": "new: no request had them after this prefix",
    "tail": "end of the prompt: part of a block, or the last token",
}
"""The words of every cause in the sums."""


MAX_NAME = 24
"""Most characters printed of a request's name."""


@dataclass(frozen=True, slots=True)
class MissedTokens:
    """Tokens [start, end) of a look-up that were not found for one cause.

    request_id: the request that the cause is about. group: the missing block's; None if the cause is not about a block.
    loss: how the content was lost.
    """

    cause: Cause
    start: int
    end: int
    request_id: int | None = None
    group: int | None = None
    loss: LostContent | None = None

    @property
    def num_tokens(self) -> int:
        """Number of tokens that must be computed for this cause."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class LookUp:
    """The result of a request's look-up at its admission.

    moment: number of events before it. number: 1 for the first admission of a request; a preemption leads to another.
    num_tokens: the request's tokens. num_hit: those found in the cache; num_external: those in the external tier after
    them. num_shared: length of the longest common prefix with an earlier admitted request, shared_with (or None).
    """

    request_id: int
    name: str
    number: int
    step: int
    moment: int
    num_tokens: int
    num_hit: int
    num_external: int
    num_shared: int
    shared_with: int | None
    misses: tuple[MissedTokens, ...]
    sentence: str = ""

    @property
    def is_first(self) -> bool:
        """True for the look-up of the prompt; False for one after a preemption."""
        return self.number == 1

    @property
    def verdict(self) -> str:
        """The cause of the first token that could have been hit but was not; "hit" without one."""
        return next((miss.cause for miss in self.misses if miss.cause != "tail"), "hit" if self.num_hit else "tail")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "request": self.request_id,
            "name": self.name,
            "number": self.number,
            "step": self.step,
            "num_tokens": self.num_tokens,
            "num_hit": self.num_hit,
            "num_external": self.num_external,
            "num_shared": self.num_shared,
            "shared_with": self.shared_with,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "misses": [_plain(miss) for miss in self.misses],
        }


def _plain(miss: MissedTokens) -> dict[str, Any]:
    found: dict[str, Any] = {"cause": miss.cause, "start": miss.start, "end": miss.end, "request": miss.request_id}
    if miss.loss is not None:
        loss = miss.loss
        found["loss"] = {"reason": loss.reason, "step": loss.step, "by": loss.request_id, "is_prefill": loss.is_prefill}
    return found
