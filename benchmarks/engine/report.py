"""Rounds of figures as tables: medians and spread, ratios, shares of the machine's limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from cases import Figure, Figures

Rounds = dict[str, list[Figures]]
"""By engine, one dictionary per round."""


def of_rounds(rounds: Iterable[Figures], key: str) -> list[float]:
    """One figure in every round that has it."""
    return [figures[key] for figures in rounds if not math.isnan(figures.get(key, math.nan))]


def number(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def spread(values: Sequence[float]) -> str:
    """The median, and the lowest and highest if there are several."""
    if not values:
        return "–"
    middle = number(median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"


def absolute_table(names: dict[str, str], kinds: dict[str, Figure], rounds: Rounds) -> str:
    """One row per figure, one column per engine."""
    lines = ["| | " + " | ".join(names.values()) + " |", "|---|" + "---:|" * len(names)]
    for key, figure in kinds.items():
        cells = " | ".join(spread(of_rounds(rounds[engine], key)) for engine in names)
        lines.append(f"| {figure.name}, {figure.unit} | {cells} |")
    return "\n".join(lines)


def ratios(ours: list[Figures], theirs: list[Figures], key: str, figure: Figure) -> list[float]:
    """How many times as fast we are, in each round that both have."""
    pairs = [(of_rounds([a], key), of_rounds([b], key)) for a, b in zip(ours, theirs, strict=True)]
    return [a[0] / b[0] if figure.is_rate else b[0] / a[0] for a, b in pairs if a and b]


def ratio_table(names: dict[str, str], kinds: dict[str, Figure], rounds: Rounds, limits: list[Figures]) -> str:
    """One row per figure: the machine's limit and our share of it, and how many times as fast as each we are."""
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
