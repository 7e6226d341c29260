"""A finding: one cause of many misses, with examples, its price, and the change that mends it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from labengine.prefix_doctor.play.figures import Figures

Kind = Literal[
    "clock",
    "id",
    "counter",
    "tenant",
    "varying_text",
    "edited_history",
    "truncated_history",
    "short_prompt",
    "salt",
    "adapter",
    "image",
    "evicted",
    "evicted_by_one",
    "reset",
    "other_replica",
    "state_boundary",
    "window",
    "same_time",
    "preempted",
    "not_used",
    "drafter",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt that missed, beside an earlier one with the same text behind the divergence.

    position: the token at which they diverge. before: the text they share up to there; mine, its: the text in which
    they differ; again: the same text behind it, which has to be computed again.
    """

    name: str
    other: str
    position: int
    num_lost: int
    before: str
    mine: str
    its: str
    again: str


@dataclass(frozen=True, slots=True)
class Cure:
    """A change, and the figures of the same traffic before it and after it, on the exact edition."""

    words: str
    before: Figures
    after: Figures

    @property
    def num_saved(self) -> int:
        """Tokens that need not be computed."""
        return self.before.num_computed - self.after.num_computed


@dataclass(frozen=True, slots=True)
class Price:
    """What lost tokens cost. seconds: of prefill. gib: of KV that was computed again. money: in the user's currency."""

    seconds: float | None = None
    gib: float | None = None
    money: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Misses with one cause. num_lost: the tokens computed again for it. title: a few words; sentence: what happened.

    num_prompts: of the prompts that lost tokens. where: the token position, text or message at which they diverge, the
    tenant, or the evicting request. shown: numbers of a few prompts, in order, that show it when they are run alone.
    """

    kind: Kind
    title: str
    sentence: str
    num_prompts: int
    num_lost: int
    where: str = ""
    examples: tuple[Example, ...] = ()
    shown: tuple[int, ...] = ()
    price: Price | None = None
    cure: Cure | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        cure = self.cure
        played = None
        if cure is not None:
            sides = {"before": cure.before.to_dict(), "after": cure.after.to_dict()}
            played = {"words": cure.words, "num_saved": cure.num_saved, **sides}
        price = None if self.price is None else asdict(self.price)
        found = {
            name: getattr(self, name) for name in ("kind", "title", "sentence", "num_prompts", "num_lost", "where")
        }
        shown = {"examples": [asdict(one) for one in self.examples], "shown": list(self.shown)}
        return {**found, **shown, "price": price, "cure": played}
