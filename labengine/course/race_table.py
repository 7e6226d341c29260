"""A table of runs and their figures that marks the best figure of each column."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from labengine.course.check_result import TextTable

MARK = "*"
"""Mark after a best figure in plain text."""
_LEFT, _RIGHT = (f"text-align:{side};color:inherit;background:none;padding:2px 8px" for side in ("left", "right"))
_BEST = "box-shadow:inset 0 0 0 2px #009E73;border-radius:4px"


@dataclass(frozen=True, slots=True, repr=False)
class RaceTable:
    """Runs by name, and their figures by column. more_is_better: columns whose largest figure is the best.

    A column whose figures are all equal has no best.
    """

    columns: Sequence[str]
    runs: Mapping[str, Mapping[str, float]]
    more_is_better: Collection[str] = ()

    def best(self, column: str) -> float | None:
        """Return the best figure of a column; None if all runs have the same."""
        figures = {run[column] for run in self.runs.values()}
        if len(figures) < 2:
            return None
        return max(figures) if column in self.more_is_better else min(figures)

    def is_best(self, name: str, column: str) -> bool:
        """Return True if a run has the best figure of a column."""
        return self.runs[name][column] == self.best(column)

    @property
    def _has_best(self) -> bool:
        return any(self.best(column) is not None for column in self.columns)

    @property
    def _directions(self) -> list[str]:
        return ["more" if column in self.more_is_better else "less" for column in self.columns]

    def __repr__(self) -> str:
        rows = [["", *self.columns], ["better is", *self._directions]]
        for name in self.runs:
            marks = [MARK if self.is_best(name, column) else "" for column in self.columns]
            figures = [self.runs[name][column] for column in self.columns]
            rows.append([name, *(f"{figure:g}{mark}" for figure, mark in zip(figures, marks, strict=True))])
        return f"{TextTable(rows)}\n({MARK} best in its column)" if self._has_best else str(TextTable(rows))

    def _repr_html_(self) -> str:
        heads = ["", *self.columns], ["better is", *self._directions]
        top = "".join(
            "<tr>" + "".join(f'<th style="{_RIGHT if i else _LEFT}">{escape(cell)}</th>' for i, cell in enumerate(row))
            for row in heads
        )
        body = "".join(f'<tr><td style="{_LEFT}">{escape(name)}</td>{self._cells(name)}</tr>' for name in self.runs)
        note = "<p>Framed: best in its column.</p>" if self._has_best else ""
        return f'<table style="color:inherit"><thead>{top}</thead><tbody>{body}</tbody></table>{note}'

    def _cells(self, name: str) -> str:
        cells = []
        for column in self.columns:
            figure, is_best = f"{self.runs[name][column]:g}", self.is_best(name, column)
            shown = f"<b>{figure}</b>" if is_best else figure
            cells.append(f'<td style="{_RIGHT}{";" + _BEST if is_best else ""}">{shown}</td>')
        return "".join(cells)
