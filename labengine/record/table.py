"""Counts of several runs side by side: rows down, runs across."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """A table of counts, table[column][row]; rows run down, columns across."""

    title: str
    columns: Mapping[str, Mapping[str, int]]

    def __getitem__(self, column: str) -> Mapping[str, int]:
        return self.columns[column]

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of all rows, in the order in which they were measured."""
        return tuple(dict.fromkeys(row for column in self.columns.values() for row in column))

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the header, then each row, with a dash for a missing figure."""
        yield ("", *self.columns)
        for row in self.rows:
            yield (row, *(f"{column[row]:,}" if row in column else "-" for column in self.columns.values()))

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return plain JSON: {column: {row: count}}."""
        return {name: dict(column) for name, column in self.columns.items()}

    def __repr__(self) -> str:
        widths = [max(map(len, cells)) for cells in zip(*self.cells(), strict=True)]
        lines = [self.title] if self.title else []
        for first, *others in self.cells():
            numbers = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
            lines.append("  ".join([first.ljust(widths[0]), *numbers]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        header, *rows = self.cells()
        head = "".join(f'<th style="text-align:right">{escape(name)}</th>' for name in header)
        body = "".join(f"<tr>{_html_row(row)}</tr>" for row in rows)
        caption = (
            f'<caption style="text-align:left;white-space:nowrap">{escape(self.title)}</caption>' if self.title else ""
        )
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(cells: tuple[str, ...]) -> str:
    name, *counts = (escape(cell) for cell in cells)
    return f'<th style="text-align:left">{name}</th>' + "".join(f"<td>{count}</td>" for count in counts)
