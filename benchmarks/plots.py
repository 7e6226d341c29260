"""Plots of what the benchmarks keep with --out, as SVG: bars, growth curves, where the time of a step goes.

    pip install -e ".[bench]"
    python benchmarks/plots.py docs/benchmarks

Reads engine.json, growth.json, lab_cost.json and profile.json in that folder, as far as they are there, and writes the
plots beside them. Colours are told apart by all eyes (Okabe and Ito), and never alone: every engine has a marker or a
place of its own. The background is transparent, and ink is grey enough for light and dark pages.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#7a7f87"
STYLES = {
    "ours": ("#0072B2", "o"),
    "watched": ("#56B4E9", "D"),
    "vllm": ("#D55E00", "s"),
    "continuous": ("#009E73", "^"),
    "generate": ("#CC79A7", "v"),
    "llama_cpp": ("#E69F00", "P"),
    "limit": (INK, ""),
}
LOOK = {
    "svg.hashsalt": "labengine",
    "svg.fonttype": "none",
    "font.size": 10,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.transparent": True,
    "savefig.bbox": "tight",
}


def kept(figure: Figure, folder: Path, name: str) -> Path:
    """Written as SVG, the same bytes for the same figures."""
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def below(figure: Figure, found: dict[str, Any]) -> None:
    """Which machine, which day."""
    machine = found["machine"]
    reported = f"{machine['processor']}, {machine['threads']} threads, {machine['date']}"
    figure.text(0.01, -0.02, reported, fontsize=8, color=INK)


def middle(rounds: Iterable[dict[str, float]], key: str) -> list[float]:
    """One figure of all rounds that have it."""
    return [figures[key] for figures in rounds if not math.isnan(figures.get(key, math.nan))]


def plot_engine(found: dict[str, Any], folder: Path) -> Path:
    """One panel per figure, one bar per engine with the spread of the rounds; a line where the machine ends."""
    figure, panels = plt.subplots(2, 4, figsize=(13, 6.2))
    keys = list(found["figures"])
    for key, axes in zip(keys, panels.flat, strict=False):
        _bars(axes, found, key)
    _legend(panels.flat[len(keys)], found["names"])
    figure.suptitle(f"{found['model']}, {found['dtype']}: labengine beside its peers", color=INK)
    figure.tight_layout()
    below(figure, found)
    return kept(figure, folder, "engine")


def _bars(axes: Axes, found: dict[str, Any], key: str) -> None:
    name, unit = found["figures"][key]
    for place, engine in enumerate(found["names"]):
        values = middle(found["rounds"][engine], key)
        if values:
            height = median(values)
            reach = [[height - min(values)], [max(values) - height]]
            axes.bar(place, height, color=STYLES[engine][0], yerr=reach, ecolor=INK, width=0.8)
            axes.annotate(
                f"{height:,.0f}" if height >= 100 else f"{height:.3g}",
                (place, max(values)),
                ha="center",
                va="bottom",
                fontsize=8,
                color=INK,
            )
    axes.axhline(median(middle(found["limits"], key)), color=INK, linestyle="--", linewidth=1)
    axes.set_title(f"{name}\n{unit} ({'more' if unit == 'tok/s' else 'less'} is better)", fontsize=9, color=INK)
    axes.set_xticks([])


def _legend(axes: Axes, names: dict[str, str]) -> None:
    axes.axis("off")
    for engine, name in names.items():
        axes.bar(0, 0, color=STYLES[engine][0], label=name)
    axes.plot([], [], color=INK, linestyle="--", label="the machine's limit, same run")
    axes.legend(loc="center", frameon=False, fontsize=7.5, labelcolor=INK)


def plot_growth(found: dict[str, Any], folder: Path) -> Path:
    """One panel per curve, all engines in it, and the limit; the pool last."""
    figure, panels = plt.subplots(2, 3, figsize=(13, 7))
    for (curve, engines), axes in zip(found["curves"].items(), panels.flat, strict=False):
        for engine, values in engines.items():
            _curve(axes, values, engine, found["names"][engine])
        _frame(axes, found["titles"][curve], is_log=curve != "hit")
    pool = panels.flat[len(found["curves"])]
    for (name, values), marker in zip(found["pool"]["bookkeeping"].items(), "os^", strict=True):
        pool.plot([int(point) for point in values], list(values.values()), marker=marker, label=name)
    _frame(pool, "bookkeeping, microseconds, by blocks in the pool", is_log=True)
    step = panels.flat[len(found["curves"]) + 1]
    _curve(step, found["pool"]["step"], "ours", "labengine")
    _frame(step, "a real decode step of 16, ms, by blocks of 4 in the pool", is_log=True)
    figure.tight_layout()
    below(figure, found)
    return kept(figure, folder, "growth")


def _curve(axes: Axes, values: dict[str, float], engine: str, name: str) -> None:
    colour, marker = STYLES[engine]
    line = "--" if engine == "limit" else "-"
    axes.plot([int(point) for point in values], list(values.values()), line, marker=marker, color=colour, label=name)


def _frame(axes: Axes, title: str, *, is_log: bool) -> None:
    points = sorted({int(x) for line in axes.get_lines() for x in line.get_xdata()})
    if is_log:
        axes.set_xscale("log")
    axes.set_xticks(points, [f"{point:,}" for point in points], fontsize=8)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=9, color=INK)
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def plot_lab_cost(found: dict[str, Any], folder: Path) -> Path:
    """What the bookkeeping adds to a real silent step, by batch size: in thread CPU time, which noise does not move."""
    figure, axes = plt.subplots(figsize=(8, 3.6))
    kinds = [kind for kind in found["rows"][0]["bookkeeping"] if kind != "silent"]
    colours = [colour for colour, _ in STYLES.values()]
    for place, kind in enumerate(kinds):
        for group, row in enumerate(found["rows"]):
            added = median(row["bookkeeping"][kind]) - median(row["bookkeeping"]["silent"])
            at = group + (place - len(kinds) / 2) * 0.15
            label = kind if group == 0 else None
            axes.bar(at, added / median(row["real"]["silent"]) * 100, width=0.13, color=colours[place], label=label)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xticks(range(len(found["rows"])), [f"batch {row['batch']}" for row in found["rows"]])
    axes.set_ylabel("% added to a decode step")
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    below(figure, found)
    return kept(figure, folder, "lab_cost")


def plot_profile(found: dict[str, Any], folder: Path) -> Path:
    """What a step consists of, the largest part first."""
    figure, panels = plt.subplots(1, len(found["profiles"]), figsize=(4.4 * len(found["profiles"]), 4.2))
    for one, axes in zip(found["profiles"], panels if len(found["profiles"]) > 1 else [panels], strict=True):
        phases, ops = one["phases"], dict(one["ops"])
        ops["staging and the rest of the forward"] = max(0.0, one["rest"]["staging"])
        for phase in ("schedule", "sample", "update"):
            ops[phase] = phases[phase]
        parts = sorted(ops.items(), key=lambda item: item[1])[-12:]
        axes.barh([name for name, _ in parts], [took for _, took in parts], color=STYLES["ours"][0])
        axes.set_title(f"{one['title']}: {phases['whole']:.3g} ms", fontsize=9, color=INK)
        axes.set_xlabel("ms of a step")
    figure.tight_layout()
    below(figure, found)
    return kept(figure, folder, "profile")


PLOTS = {"engine": plot_engine, "growth": plot_growth, "lab_cost": plot_lab_cost, "profile": plot_profile}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    selected = parser.parse_args()
    with plt.rc_context(LOOK):
        for kind, plot in PLOTS.items():
            source = selected.folder / f"{kind}.json"
            if source.exists():
                print(plot(json.loads(source.read_text(encoding="utf-8")), selected.folder))
            else:
                print(f"{source} is not there: run its benchmark with --out {source}")


if __name__ == "__main__":
    main()
