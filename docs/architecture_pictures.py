"""Draws the pictures of docs/architecture.md: `python docs/architecture_pictures.py` writes them beside it.

Grey ink and strong fills on no ground, as in course_pictures.py: readable on a light page and on a dark one.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from course_pictures import FONT, INK, text

FOLDER = Path(__file__).resolve().parent

DECIDES = "#56b4e9"
COMPUTES = "#e69f00"
SHOWS = "#009e73"
GROUND = "#bbbbbb"
FRONT = "#cc79a7"
"""Four of Okabe and Ito's colours and a grey, each light enough for black text."""

BLACK = "#111"


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """Return a complete SVG file."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" style="{FONT}">\n<title>{escape(title)}</title>\n{body}\n</svg>\n'
    )


def box(x: float, y: float, width: float, height: float, fill: str, name: str, *lines: str) -> str:
    """Return a filled box with a name in bold and smaller lines below it."""
    rect = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}"/>'
    middle = x + width / 2
    top = y + height / 2 + 5 - 8.5 * len(lines)
    words = [text(middle, top, name, fill=BLACK, bold=True, end="middle")]
    words += [text(middle, top + 17 * i, line, size=12, fill=BLACK, end="middle") for i, line in enumerate(lines, 1)]
    return rect + "".join(words)


def outline(x: float, y: float, width: float, height: float) -> str:
    """Return a dashed frame."""
    look = f'fill="none" stroke="{INK}" stroke-width="1.5" stroke-dasharray="6 4"'
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" {look}/>'


def arrow(*points: tuple[float, float]) -> str:
    """Return a line through the points, with a head at its end."""
    (x1, y1), (x2, y2) = points[-2:]
    along = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    back = x2 - 8 * along[0], y2 - 8 * along[1]
    wing = 5 * along[1], 5 * along[0]
    head = f"M{back[0] - wing[0]:g} {back[1] - wing[1]:g}L{x2:g} {y2:g}L{back[0] + wing[0]:g} {back[1] + wing[1]:g}"
    line = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path d="{line}{head}" fill="none" stroke="{INK}" stroke-width="2"/>'


def packages() -> str:
    """Return the packages, stacked: each may import those under it."""
    foundation = "events, record/, system/, config"
    parts = [
        text(20, 22, "Each package may import those that lie under it.", bold=True),
        box(20, 36, 412, 56, FRONT, "scenarios/", "upstream bugs, each on labs of its own"),
        text(446, 60, "Only lab and session look up:", size=12),
        text(446, 76, "they open scenarios by name.", size=12),
        box(
            20,
            100,
            620,
            56,
            FRONT,
            "lab, session/, magics/, finder/, vllm/, course/ ...",
            "one lab or two, and their history",
        ),
        box(20, 164, 202, 64, COMPUTES, "engine/", "computes: models, attention,", "the engine that steps"),
        box(230, 164, 202, 64, COMPUTES, "check/", "rules, and the oracle that", "knows each slot's content"),
        box(440, 164, 200, 136, SHOWS, "labengine_widgets/", "words, answers, pictures,", "the feed"),
        box(20, 236, 412, 64, DECIDES, "core/", "decides: scheduler, KV-cache manager, block pool", "(no torch)"),
        box(20, 308, 620, 56, GROUND, foundation, "frozen records, hooks, the fold, recordings and their files"),
        outline(716, 158, 170, 76),
        text(801, 186, "widgets/browser/", bold=True, end="middle"),
        text(801, 204, "TypeScript: model,", size=12, end="middle"),
        text(801, 220, "stage, views, look", size=12, end="middle"),
        arrow((642, 196), (714, 196)),
        arrow((714, 208), (642, 208)),
        text(679, 188, "messages", size=12, end="middle"),
        text(716, 262, "torch is loaded by engine/", size=12),
        text(716, 278, "alone, with a real model.", size=12),
    ]
    return svg(898, 376, "The packages of labengine and their imports", parts)


def step_and_event() -> str:
    """Return the four phases of a step, and the stations of an event on its way to the screen."""
    phases = (
        (20, DECIDES, "1 schedule", "Scheduler.schedule", "blocks allocated"),
        (236, COMPUTES, "2 forward", "Runner.forward", "KV into the plan's slots"),
        (452, COMPUTES, "3 sample", "Runner.sample", "no state"),
        (668, DECIDES, "4 update", "Scheduler.update", "cached, merged, freed"),
    )
    parts = [text(20, 22, "A step: all four phases, or none", bold=True)]
    parts += [box(x, 36, 164, 66, fill, *words) for x, fill, *words in phases]
    for x, words in ((186, "plan"), (402, "logits"), (618, "tokens")):
        parts += [arrow((x, 69), (x + 48, 69)), text(x + 25, 60, words, size=12, end="middle")]
    parts += [
        outline(10, 28, 832, 112),
        text(
            419,
            128,
            "Journal: each change records its inverse; any exception plays the inverses back, newest first",
            size=13,
            end="middle",
        ),
        arrow((90, 140), (90, 196)),
        text(102, 172, "emit(event): only if Hooks has a listener for its kind", size=13),
    ]
    kernel = (
        ("Hooks", "listeners by kind,", "in order"),
        ("Timeline", "record(): one", "list append"),
        ("Feed", "own thread: reads what", "is new, encodes it once"),
        ("View", "the widget: one", "message to the browser"),
    )
    browser = (
        ("Wire, Inbox", "unpack; on a", "loss, ask again"),
        ("Recording", "keeps rows and", "keyframes"),
        ("Stage", "decides which", "moment shows"),
        ("Scene", "the state folded", "at that moment"),
        ("Painting", "once a frame:", "what changed"),
        ("paint()", "the view draws", "DOM or canvas"),
    )
    for i, (name, *lines) in enumerate(kernel):
        parts.append(box(20 + 216 * i, 198, 164, 66, GROUND if i < 2 else SHOWS, name, *lines))
        if i:
            parts.append(arrow((216 * i - 30, 231), (216 * i + 18, 231)))
    parts += [
        arrow((150, 198), (150, 184), (534, 184), (534, 196)),
        text(526, 178, "wakes", size=12, end="end"),
        text(20, 288, "kernel (Python)", size=12),
        arrow((750, 266), (750, 300), (90, 300), (90, 324)),
        text(419, 316, "browser (TypeScript)", size=12, end="middle"),
    ]
    for i, (name, *lines) in enumerate(browser):
        parts.append(box(20 + 140 * i, 326, 112, 66, SHOWS, name, *lines))
        if i:
            parts.append(arrow((140 * i - 6, 359), (140 * i + 18, 359)))
    return svg(852, 404, "A step, and the way of an event from emit to the screen", parts)


PICTURES = {"packages.svg": packages, "step_and_event.svg": step_and_event}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
        print(FOLDER / name)
