"""Rounds of figures as tables: medians and spread, ratios, shares of the machine's limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from cases import Figure, Figures

Rounds = dict[str, list[Figures]]
"""One dictionary per round, by engine."""


def of_rounds(rounds: Iterable[Figures], key: str) -> list[float]:
    """Return one figure of every round that has it."""
    return [figures[key] for figures in rounds if not math.isnan(figures.get(key, math.nan))]


def number(value: float) -> str:
    """Format a number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def spread(values: Sequence[float]) -> str:
    """Return the median, with the lowest and highest value if there are several."""
    if not values:
        return "–"
    middle = number(median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"


def absolute_table(names: dict[str, str], kinds: dict[str, Figure], rounds: Rounds) -> str:
    """Return a table with a row per figure and a column per engine."""
    lines = ["| | " + " | ".join(names.values()) + " |", "|---|" + "---:|" * len(names)]
    for key, figure in kinds.items():
        cells = " | ".join(spread(of_rounds(rounds[engine], key)) for engine in names)
        lines.append(f"| {figure.name}, {figure.unit} | {cells} |")
    return "\n".join(lines)


def ratios(ours: list[Figures], theirs: list[Figures], key: str, figure: Figure) -> list[float]:
    """Return our speed divided by theirs, in each round that both have."""
    pairs = [(of_rounds([a], key), of_rounds([b], key)) for a, b in zip(ours, theirs, strict=True)]
    return [a[0] / b[0] if figure.is_rate else b[0] / a[0] for a, b in pairs if a and b]


def ratio_table(names: dict[str, str], kinds: dict[str, Figure], rounds: Rounds, limits: list[Figures]) -> str:
    """Return a table with a row per figure: the machine's limit, our share of it, and our speed relative to each."""
    peers = [engine for engine in names if engine != "ours"]
    columns = ["limit", "share of it", *(f"x {names[engine]}" for engine in peers)]
    lines = ["| | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for key, figure in kinds.items():
        limit = median(of_rounds(limits, key))
        shares = ratios(rounds["ours"], limits, key, figure)
        cells = [number(limit), f"{median(shares):.0%}" if shares else "–"]
        for engine in peers:
            found = ratios(rounds["ours"], rounds[engine], key, figure)
            cells.append(spread(found))
        lines.append(f"| {figure.name}, {figure.unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
