"""The verdict on two runs of one request, in words, as JSON and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import Any, Literal

from labengine.record.violation import Violation
from labengine.session.judging.measured import Figures
from labengine.session.judging.picture import margin_svg, margin_text

Kind = Literal["wrong content", "other rounding", "equal", "not the KV"]

_WIDTH = 100


@dataclass(frozen=True, slots=True, repr=False)
class RunVerdict:
    """What makes two runs of one request differ.

    kind: "wrong content": a run has attended to KV of other tokens, or its KV is not that of its tokens. "other
    rounding": the tokens differ, and K, V and logits by no more than rounding. "equal": the tokens are equal; the
    message says whether the bits are. "not the KV": K and V agree, and logits or sampling do not.
    names: of the runs. misreads: per run, the reads of other tokens' KV, each with step, block and first_event, an
    event of the run's lab. figures: None for the simulated model, and where a run could not be repeated.
    """

    kind: Kind
    message: str
    names: tuple[str, str]
    misreads: tuple[tuple[Violation, ...], tuple[Violation, ...]]
    figures: Figures | None

    @property
    def first_difference(self) -> int | None:
        """Position of the first differing token; None without one, and without figures."""
        return None if self.figures is None or self.figures.margin is None else self.figures.margin.position

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "kind": self.kind,
            "message": self.message,
            "names": list(self.names),
            "misreads": [[_plain(misread) for misread in of_run] for of_run in self.misreads],
            "figures": None if self.figures is None else self.figures.to_dict(),
        }

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The figures as (what, how much)."""
        figures = self.figures
        if figures is None:
            return []
        far = figures.layers[figures.farthest_layer]
        rows = [
            ("tokens compared", f"{figures.num_tokens:,}, with K and V of {figures.num_positions:,} positions"),
            ("largest |dK|, |dV|", f"{figures.key_difference:.3g}, {figures.value_difference:.3g}"),
            (
                "layer that differs most",
                f"{figures.farthest_layer}: {far.relative:.2g} of a vector's length, at position {far.position} "
                f"(rounding stays below {figures.limit:g})",
            ),
            ("largest |dlogit|", f"{figures.logit_difference:.3g}"),
        ]
        if figures.distances is not None:
            pairs = zip(self.names, figures.distances, strict=True)
            distances = ", ".join(f"{distance:.2g} in {name}" for name, distance in pairs)
            rows.append(("from the request alone", f"{distances}, in lengths of a vector"))
        return rows

    @property
    def headline(self) -> str:
        """Kind and message in one line."""
        return f"{self._title}: {self.message}"

    @property
    def _title(self) -> str:
        return self.kind[0].upper() + self.kind[1:]

    def __repr__(self) -> str:
        width = max((len(what) for what, _ in self.rows), default=0)
        parts = [fill(self.headline, _WIDTH, break_on_hyphens=False)]
        if self.rows:
            parts.append("\n".join(f"{what.ljust(width)}  {value}" for what, value in self.rows))
        if self.figures is not None and self.figures.margin is not None:
            parts.append(margin_text(self.figures.margin, self.names))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        left = 'style="text-align:left"'
        rows = "".join(f"<tr><th {left}>{escape(a)}</th><td {left}>{escape(b)}</td></tr>" for a, b in self.rows)
        margin = None if self.figures is None else self.figures.margin
        return (
            f"<p><b>{escape(self._title)}:</b> {escape(self.message)}</p>"
            + (f"<table><tbody>{rows}</tbody></table>" if rows else "")
            + ("" if margin is None else margin_svg(margin, self.names))
        )


def _plain(misread: Violation) -> dict[str, Any]:
    return {
        "message": misread.message,
        "request_ids": list(misread.request_ids),
        "block_ids": list(misread.block_ids),
        "step": misread.step,
        "first_event": misread.first_event,
    }
