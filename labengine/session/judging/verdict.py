"""The verdict on two runs of one request, in words, as JSON and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import isfinite
from textwrap import fill
from typing import Any, Literal

from labengine.record.violation import Violation
from labengine.record.wording import readable
from labengine.session.judging.measured import Figures, TieMargin

Kind = Literal["wrong content", "other rounding", "equal", "not the KV"]

_WIDTH = 100


@dataclass(frozen=True, slots=True, repr=False)
class RunVerdict:
    """The reason that two runs of one request differ.

    kind: "wrong content": a run has attended to KV of other tokens, or its KV does not match its tokens. "other
    rounding": the tokens differ, but K, V and logits only by rounding. "equal": the tokens are equal; the message says
    whether the bits are, too. "not the KV": K and V agree, but logits or sampling do not.
    names: of the runs. misreads: per run, the reads of other tokens' KV, each with step, block and first_event, an
    event of the run's lab. figures: None for the simulated model, and if a run could not be repeated.
    """

    kind: Kind
    message: str
    names: tuple[str, str]
    misreads: tuple[tuple[Violation, ...], tuple[Violation, ...]]
    figures: Figures | None

    @property
    def first_difference(self) -> int | None:
        """Position of the first differing token; None without one or without figures."""
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
        """The figures as (label, value)."""
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
            rows.append(("from the request by itself", f"{distances}, in lengths of a vector"))
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


# -- the tie margin as bars --------------------------------------------------------------------------------------------


_COLUMNS = 40
_WIDTH, _ROW, _LABEL, _VALUE = 640, 22, 300, 70
_COLOURS = ("#4c78a8", "#4c78a8", "#e45756")


def margin_rows(margin: TieMargin, names: tuple[str, str]) -> list[tuple[str, float]]:
    """Return (label, logits) of each bar: the margin of each run, and the largest difference between their logits."""
    rows = [
        (f"margin of {readable(token, 24)!r} in {name}", value)
        for token, name, value in zip(margin.tokens, names, margin.margins, strict=True)
    ]
    return [*rows, ("difference of the runs' logits", margin.logit_difference)]


def margin_text(margin: TieMargin, names: tuple[str, str]) -> str:
    """Return the bars as text, 40 columns for the longest one."""
    rows = margin_rows(margin, names)
    width, scale = max(len(label) for label, _ in rows), _scale(rows)
    bars = [
        f"{label.ljust(width)}  {'█' * round(_COLUMNS * _length(value, scale))} {value:.3g}" for label, value in rows
    ]
    return "\n".join([_title(margin), *bars])


def margin_svg(margin: TieMargin, names: tuple[str, str]) -> str:
    """Return the bars as an SVG element, for a notebook or a page."""
    rows, title = margin_rows(margin, names), escape(_title(margin))
    scale, height = _scale(rows), (len(margin_rows(margin, names)) + 1) * _ROW
    room = _WIDTH - _LABEL - _VALUE
    lines = [f'<text x="0" y="15" font-weight="bold">{title}</text>']
    for number, ((label, value), colour) in enumerate(zip(rows, _COLOURS, strict=True), 1):
        y, length = number * _ROW, max(1, round(room * _length(value, scale)))
        lines.append(f'<text x="0" y="{y + 15}">{escape(label)}</text>')
        lines.append(f'<rect x="{_LABEL}" y="{y + 4}" width="{length}" height="{_ROW - 8}" fill="{colour}"/>')
        lines.append(f'<text x="{_LABEL + length + 6}" y="{y + 15}">{value:.3g}</text>')
    style = "font:13px sans-serif;fill:currentColor;max-width:100%"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" style="{style}">{"".join(lines)}</svg>'
    )


def _title(margin: TieMargin) -> str:
    return f"The first differing token, position {margin.position} (in logits)"


def _length(value: float, scale: float) -> float:
    """Return a bar's length from 0 to 1: 1 for infinity, and for NaN, which broken KV may cause."""
    return value * scale if isfinite(value) else 1.0


def _scale(rows: list[tuple[str, float]]) -> float:
    """Return the factor that scales the longest bar to 1."""
    longest = max((value for _, value in rows if isfinite(value)), default=0.0)
    return 1 / longest if longest else 0.0
