"""Draws the pictures of notebooks 00, 09 and 14: `python docs/course_pictures.py` writes them to notebooks/pictures.

Grey ink and strong fills on no ground, or dark ink on a light one: readable on a light page and on a dark one.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "notebooks" / "pictures"
RUN_OF_09 = Path(__file__).with_name("runs") / "09_corruption_or_rounding.json.xz"
HUES = {"A": "#56b4e9", "B": "#009e73", "C": "#e69f00"}
"""Three of Okabe and Ito's colours, as in the dashboard."""

INK = "#787878"
"""A grey of 4.2 to 1 or more against white and against JupyterLab's dark ground."""

FONT = "font-family:system-ui,'DejaVu Sans',sans-serif"
CELL = 22


def text(x: float, y: float, words: str, *, size: int = 14, fill: str = INK, bold: bool = False, end: str = "") -> str:
    """Words at a place; end: "middle" or "end"."""
    look = f'font-size="{size}" fill="{fill}"' + (' font-weight="700"' if bold else "")
    anchor = f' text-anchor="{end}"' if end else ""
    return f'<text x="{x:g}" y="{y:g}" {look}{anchor}>{escape(words)}</text>'


def slot(x: float, y: float, owner: str | None, words: str = "", size: int = CELL) -> str:
    """One slot: filled if it is written, hatched if it is only held, empty if it is free."""
    fill = "none" if owner is None else HUES.get(owner, f"url(#held{owner[-1]})")
    box = f'<rect x="{x:g}" y="{y:g}" width="{size}" height="{size}" fill="{fill}" stroke="{INK}" stroke-width="1"/>'
    return box + (
        text(x + size / 2, y + size / 2 + 5, words, size=13, fill="#111", bold=True, end="middle") if words else ""
    )


def frame(x: float, y: float, num_slots: int) -> str:
    """The border of a block, or of a reserved stretch."""
    width = num_slots * CELL
    return f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{CELL}" fill="none" stroke="{INK}" stroke-width="3"/>'


def drawn(width: int, height: int, title: str, *parts: str) -> str:
    """A whole SVG file."""
    hatches = "".join(
        f'<pattern id="held{name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="2" height="6" fill="{hue}"/></pattern>'
        for name, hue in HUES.items()
    )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" style="{FONT}">\n<title>{escape(title)}</title>\n<defs>{hatches}</defs>\n{body}\n</svg>\n'
    )


def row(x: float, y: float, held: str, written: int) -> Iterator[str]:
    """The slots of a stretch: `held` names the owner of each, "." is free; the first `written` ones are written."""
    for i, owner in enumerate(held):
        name = None if owner == "." else owner if i < written else f"held{owner}"
        yield slot(x + i * CELL, y, name)


def contiguous_and_paged() -> str:
    """The same 32 slots, reserved in stretches of 16 and in blocks of 4."""
    x, parts = 20, [text(20, 24, "contiguous: each request reserves 16 slots", bold=True)]
    for i, (name, written) in enumerate((("A", 6), ("B", 9))):
        parts += [*row(x + i * 16 * CELL, 38, name * 16, written), frame(x + i * 16 * CELL, 38, 16)]
        label = f"{name}: {written} written, {16 - written} held for nothing"
        parts.append(text(x + i * 16 * CELL, 80, label))
    parts.append(text(x, 100, "C waits: no stretch of 16 is free."))
    parts.append(text(x, 140, "paged: blocks of 4 slots, handed out one by one", bold=True))
    for i, (name, written) in enumerate(zip("AABBBC.C", (4, 2, 4, 4, 1, 4, 0, 3), strict=True)):
        parts += [*row(x + i * 4 * CELL, 154, name * 4, written), frame(x + i * 4 * CELL, 154, 4)]
        parts.append(text(x + i * 4 * CELL + 2 * CELL, 196, f"block {i}", size=13, end="middle"))
    parts.append(text(x, 222, "A 6, B 9, C 7 written; 6 slots held for nothing, and one block is free."))
    for i, (owner, label) in enumerate((("A", "written"), ("heldA", "held, never written"), (None, "free"))):
        parts += [slot(x + i * 190, 240, owner), text(x + i * 190 + 30, 256, label)]
    title = "Contiguous reservation holds 32 slots for two requests that write 15; paging serves three requests in 28."
    return drawn(744, 274, title, *parts)


def position_to_slot() -> str:
    """Position 6 of a request: entry 1 of its table, block 2, offset 2, slot 10."""
    x, table = 150, (5, 2, 7)
    parts = [text(x - 16, 36, "position", end="end"), text(x - 16, 116, "block table", end="end")]
    for position in range(10):
        name = "C" if position == 6 else "A"
        parts.append(slot(x + position * 32, 16, name, str(position), 32))
    for i, block_id in enumerate(table):
        name = "C" if i == 1 else "A"
        parts += [slot(x + 48 + i * 128, 94, name, f"#{block_id}", 32)]
        parts.append(text(x + 64 + i * 128, 144, f"entry {i}", size=13, end="middle"))
    parts += [arrow(x + 208, 50, x + 192, 90), text(x + 216, 78, "6 // 4 = 1")]
    parts.append(text(x - 16, 214, "pool", end="end"))
    for block_id in range(8):
        left = x + block_id * 4 * 17 + block_id * 6
        for offset in range(4):
            number, is_it = block_id * 4 + offset, (block_id, offset) == (2, 2)
            owned = block_id in table and table.index(block_id) * 4 + offset < 10
            parts.append(slot(left + offset * 17, 200, "C" if is_it else "A" if owned else None, size=17))
            if is_it:
                parts.append(text(left + offset * 17 + 8, 264, f"slot {number}", size=14, bold=True, end="middle"))
        parts.append(text(left + 34, 236, f"#{block_id}", size=13, end="middle"))
    end = x + 2 * 74 + 2 * 17 + 8
    parts += [arrow(x + 192, 150, end, 196), text(end + 34, 176, "6 % 4 = 2: offset 2 in #2, and 2 * 4 + 2 = 10")]
    return drawn(
        760, 278, "Position 6 is in entry 1 of the table, which is block 2; at offset 2 this is slot 10.", *parts
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line with a small head at its end, which points down."""
    head = f"M{x2 - 5:g} {y2 - 8:g}L{x2:g} {y2:g}L{x2 + 5:g} {y2 - 8:g}"
    return f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}{head}" fill="none" stroke="{INK}" stroke-width="2"/>'


def accepted_or_drawn_again() -> str:
    """Four words with probabilities p (the model) and q (the draft model): what they share, and where one is larger."""
    words = (("red", 10, 4), ("blue", 6, 12), ("green", 3, 2), ("grey", 1, 2))  # in twentieths
    x, wide, parts = 90, 36, [text(90, 24, "20 drafts, drawn with the draft model's probabilities q", bold=True)]
    for i, (word, p, q) in enumerate(words):
        y = 42 + 34 * i
        parts.append(text(x - 16, y + 16, word, end="end"))
        kinds = ["B"] * min(p, q) + ["heldC"] * (q - p) + ["heldA"] * (p - q)
        parts += [slot(x + j * wide, y, kind) for j, kind in enumerate(kinds)]
        parts.append(text(x + len(kinds) * wide + 8, y + 16, f"p = {p}/20, q = {q}/20", size=13))
    kept, moved = (sum(of(p, q) for _, p, q in words) for of in (min, lambda p, q: max(p - q, 0)))
    legend = (
        ("B", f"accepted: {kept} of 20, as many as p and q have in common"),
        ("heldC", f"rejected: {moved}, what q has more than p"),
        ("heldA", f"drawn again: the same {moved}, shared out over what p has more than q"),
    )
    for i, (owner, label) in enumerate(legend):
        parts += [slot(x, 188 + 28 * i, owner), text(x + 34, 204 + 28 * i, label)]
    title = f"Of 20 drafts {kept} are accepted and {moved} drawn again, so each word comes out as often as p says."
    return drawn(744, 278, title, *parts)


def recorded_verdict() -> str:
    """The first verdict of notebook 09 as HTML, from its recorded run."""
    outputs = json.loads(lzma.decompress(RUN_OF_09.read_bytes()))["outputs"]
    return next(out["data"] for cell in outputs for out in cell if out.get("kind") == "text/html")


def cold_and_warm() -> str:
    """The bars of that verdict: two margins, and how far the runs' logits differ."""
    found = re.search(r"<svg.*?</svg>", recorded_verdict())
    if found is None:
        raise SystemExit(f"{RUN_OF_09} was recorded where both runs are equal: record it where bfloat16 is multiplied")
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', found.group())[0])
    wide, high = width + 20, height + 12
    head, bars = re.sub(r'viewBox="[^"]+" width="\d+" height="\d+"', _size(wide, high), found.group()).split(">", 1)
    return f"{head.replace('currentColor', '#222')}>{_ground(wide, high)}{bars}\n"


def _size(width: int, height: int) -> str:
    return f'viewBox="-10 -4 {width} {height}" width="{width}" height="{height}"'


def _ground(width: int, height: int) -> str:
    """A light ground: figures of 13 pixels in grey are hard to read on a dark page."""
    return f'<rect x="-10" y="-4" width="{width}" height="{height}" rx="4" fill="#fff"/>'


PICTURES = {
    "contiguous_and_paged.svg": contiguous_and_paged,
    "position_to_slot.svg": position_to_slot,
    "cold_and_warm.svg": cold_and_warm,
    "accepted_or_drawn_again.svg": accepted_or_drawn_again,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
        print(FOLDER / name)
