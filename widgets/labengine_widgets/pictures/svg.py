"""The pool as a static SVG, for saved notebooks, web pages and reports without live widgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from labengine.events import ViolationFound
from labengine.record.fold_state import Key
from labengine.record.snapshot import BlockState, RequestState, Snapshot, map_key
from labengine.record.timeline import Timeline
from labengine.record.wording import counted, group_name, joined, readable, request_name
from labengine_widgets.pictures.ascii import (
    content_letter,
    content_letters,
    doubled_blocks,
    kept_blocks,
    violation_count,
)
from labengine_widgets.pictures.lettering import numbers_in
from labengine_widgets.words.names import content_name, content_number
from labengine_widgets.words.tier import KnownTier, known_tier

HUES = ("#56b4e9", "#009e73", "#f0e442", "#cc79a7", "#0072b2", "#e69f00")
"""Okabe and Ito's palette; contents get hues in order of appearance, as in the browser half."""

LOST_HUE = "#d55e00"
ALARM = "#b00020"
OTHER = "of other tokens"
"""Shown instead of a block's tokens where its KV belongs to others; only the slots of a live view show which."""

WIDTH = 900
MAX_CARDS = 64
MAX_CELLS = 1024
MAX_ROWS = 8
MAX_CHIPS = 24
MAX_SHELVES = 60
_SHELF = 86.0
"""Width of a content of the external tier, with the gap after it."""
_CARDS, _SQUARES = (8, 108.5, 64.0), (62, 14.0, 14.0)
"""Columns of the pool, and the width and height of a block's cell."""

_INK, _SOFT, _FAINT = "#222222", "#666666", "#f1f1f1"
_STYLE = "font-family:system-ui,'DejaVu Sans',sans-serif;font-size:13px"
_PATTERNS = (
    '<defs><pattern id="le-lost" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="2.5" height="8" fill="{LOST_HUE}"/></pattern>'
    '<pattern id="le-partial" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="1.6" height="6" fill="#bbbbbb"/></pattern></defs>'
)


def block_map_svg(
    snapshot: Snapshot,
    token_text: Callable[[int], str] = str,
    title: str = "",
    timeline: Timeline | None = None,
) -> str:
    """Return the snapshot as one SVG element, 900 px wide, a few kilobytes; of a large pool, the first 1024 blocks.

    timeline: the snapshot's recording; letters and hues are then those of its views.
    """
    tier = known_tier(timeline)
    letters = content_letters(snapshot, timeline)
    picture = _Picture(snapshot, token_text, letters, _misnamed(snapshot, letters, timeline))
    body = (
        picture.head(readable(title, 120), violation_count(snapshot, timeline))
        + picture.pool()
        + picture.tables()
        + picture.map()
        + picture.queue()
    )
    body += picture.tier(tier, {} if timeline is None else numbers_in(timeline, tier))
    height, summary = picture.y + 8, escape(_summary(snapshot))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" role="img" style="{_STYLE}"><title>{summary}</title>{_PATTERNS}'
        f'<rect width="100%" height="100%" rx="6" fill="#ffffff"/>{body}</svg>'
    )


def _misnamed(snapshot: Snapshot, letters: Mapping[str, str], timeline: Timeline | None) -> dict[int, str]:
    """Return {block: letter of its real content} for blocks whose KV is known not to match their hash."""
    found: dict[int, str] = {}
    for event in () if timeline is None else timeline.of_kind(ViolationFound):
        for block_id, group, block_hash, held in event.misnamed:
            if (group, block_hash.hex()) in snapshot.blocks[block_id].grouped_hashes:
                found[block_id] = letters.get(map_key(group, held), "?")
    return found


def _summary(snapshot: Snapshot) -> str:
    return (
        f"Step {snapshot.step}: {snapshot.num_used_blocks} of {len(snapshot.blocks)} blocks used, "
        f"{len(snapshot.prefix_map)} findable, {len(snapshot.lost_blocks)} lost"
    )


def _text(
    x: float, y: float, text: str, *, size: int = 13, color: str = _INK, bold: bool = False, anchor: str = "start"
) -> str:
    look = f'font-size="{size}" fill="{color}" text-anchor="{anchor}"' + (' font-weight="700"' if bold else "")
    return f'<text x="{x:g}" y="{y:g}" {look}>{escape(text)}</text>'


def _rect(
    x: float, y: float, w: float, h: float, fill: str, *, stroke: str = "none", dash: str = "", opacity: float = 1
) -> str:
    look = f'fill="{fill}" fill-opacity="{opacity:g}" stroke="{stroke}" stroke-width="1.8"'
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5" {look}{dashed}/>'


class _Picture:
    """The SVG while it is drawn, from the top down; the next part begins at `y`."""

    def __init__(
        self,
        snapshot: Snapshot,
        token_text: Callable[[int], str],
        letters: dict[str, str],
        misnamed: Mapping[int, str] | None = None,
    ) -> None:
        """misnamed: for each block whose KV does not match its hash, the letter of its real content."""
        self.snapshot = snapshot
        self.token_text = token_text
        self.letters = letters
        self.hues = {name: HUES[content_number(name) % len(HUES)] for name in letters.values()}
        self.lost = frozenset(snapshot.lost_blocks)
        self.doubled = doubled_blocks(snapshot)
        self.kept = kept_blocks(snapshot)
        self.findable = frozenset(block_id for ids in snapshot.prefix_map.values() for block_id in ids)
        self.misnamed = misnamed or {}
        self.y = 0.0

    def head(self, title: str, violations: str) -> str:
        """Draw title and score."""
        used, total = str(self.snapshot.num_used_blocks), len(self.snapshot.blocks)
        found, lost = len(self.snapshot.prefix_map), len(self.lost)
        facts = f"used of {total} · {found} findable · {lost} lost · step {self.snapshot.step}"
        self.y = 74
        big = _text(16, 60, used, size=34, bold=True)
        alarm = _text(WIDTH - 16, 60, violations, size=15, bold=True, color=ALARM, anchor="end") if violations else ""
        return _text(16, 24, title, color=_SOFT) + big + _text(26 + 22 * len(used), 60, facts, size=15) + alarm

    def pool(self) -> str:
        """Draw a card per block, or a small square in a larger pool."""
        blocks = self.snapshot.blocks[:MAX_CELLS]
        is_small = len(self.snapshot.blocks) > MAX_CARDS
        columns, width, height = _SQUARES if is_small else _CARDS
        places = [(block, 16 + i % columns * width, self.y + i // columns * height) for i, block in enumerate(blocks)]
        drawn = self._squares(places) if is_small else "".join(self._card(*place) for place in places)
        self.y += -(-len(blocks) // columns) * height + 20
        if len(self.snapshot.blocks) > len(blocks):
            drawn += self._line(f"… and {len(self.snapshot.blocks) - len(blocks)} more blocks")
        return drawn

    def tables(self) -> str:
        """Draw a line per open request."""
        rows = [item for item in self.snapshot.requests.items() if item[1].status != "finished"]
        limit = max(2, MAX_ROWS // max(1, len(self.snapshot.groups)))
        drawn = "".join(self._line(text) for item in rows[:limit] for text in _row_texts(*item, self.snapshot))
        return drawn + (self._line(f"… and {len(rows) - limit} more requests") if len(rows) > limit else "")

    def map(self) -> str:
        """Draw the prefix map in a line."""
        entries = [
            f"{self.letters.get(key, '?')} → {', '.join(f'#{i}' for i in ids)}"
            for key, ids in list(self.snapshot.prefix_map.items())[:MAX_CHIPS]
        ]
        return self._line(_listed("prefix map", entries, len(self.snapshot.prefix_map)))

    def queue(self) -> str:
        """Draw the free queue in a line."""
        queue = self.snapshot.free_queue
        return self._line(_listed("free queue, head first", [f"#{i}" for i in queue[:MAX_CHIPS]], len(queue)))

    def tier(self, tier: KnownTier, numbers: Mapping[Key, int]) -> str:
        """Draw the external tier's contents as shelves; empty without a tier."""
        if not len(tier):
            return ""
        drawn = self._line(f"external tier, {counted(len(tier), 'block')}; ● also in the pool, ○ only there:")
        shown = list(tier)[-MAX_SHELVES:]
        columns = int((WIDTH - 32) // _SHELF)
        for place, key in enumerate(shown):
            x, y = 16 + place % columns * _SHELF, self.y + 2 + place // columns * 26
            drawn += self._shelf(key, tier.pins.get(key, 0), numbers.get(key), x, y)
        self.y += -(-len(shown) // columns) * 26 + 4
        return drawn + (self._line(f"… and {len(tier) - len(shown)} older") if len(tier) > len(shown) else "")

    def _shelf(self, key: Key, pins: int, number: int | None, x: float, y: float) -> str:
        fill = "#ffffff" if number is None else HUES[number % len(HUES)]
        name = f"{key[1].hex()[:4]}…" if number is None else content_name(number)
        where = "●" if map_key(*key) in self.snapshot.prefix_map else "○"
        pinned = f" pin ×{pins}" if pins > 1 else " pin" * pins
        box = _rect(x, y, _SHELF - 6, 22, fill, stroke=_INK if pins else _SOFT, opacity=0.3)
        return box + _text(x + 6, y + 15, f"{name} {where}{pinned}", size=12, bold=pins > 0)

    def _look(self, block: BlockState) -> tuple[str, float, str]:
        """Return fill, its opacity, and border: fill shows the content, border the state."""
        if block.block_id in self.lost:
            return "url(#le-lost)", 1, LOST_HUE
        letter = content_letter(block, self.letters)
        if block.block_id not in self.kept:
            return (self.hues[letter], 0.45, _INK) if letter else ("url(#le-partial)", 1, _INK)
        return (self.hues[letter], 0.22, _SOFT) if letter else (_FAINT, 1, "none")

    def _squares(self, places: Sequence[tuple[BlockState, float, float]]) -> str:
        """Draw equal squares as one path, so that a thousand squares take a few kilobytes."""
        paths: dict[tuple[str, float, str], list[str]] = {}
        for block, x, y in places:
            paths.setdefault(self._look(block), []).append(f"M{x:g} {y:g}h12v12h-12z")
        return "".join(
            f'<path fill="{fill}" fill-opacity="{opacity:g}" stroke="{stroke}" d="{"".join(squares)}"/>'
            for (fill, opacity, stroke), squares in paths.items()
        )

    def _card(self, block: BlockState, x: float, y: float) -> str:
        box = (x, y, _CARDS[1] - 6, _CARDS[2] - 6)
        fill, opacity, stroke = self._look(block)
        letter = content_letter(block, self.letters)
        under = _rect(*box, self.hues[letter], opacity=0.3) if block.block_id in self.lost else ""
        dash = "4 3" if block.block_id in self.kept else ""
        return under + _rect(*box, fill, stroke=stroke, dash=dash, opacity=opacity) + self._words(block, box, letter)

    def _words(self, block: BlockState, box: tuple[float, float, float, float], letter: str) -> str:
        x, y, w, h = box
        is_live, right = block.block_id not in self.kept, x + w - 6
        name = _text(x + 6, y + 15, f"#{block.block_id}", size=12, bold=is_live, color=_INK if is_live else _SOFT)
        if block.block_id == self.snapshot.null_block:
            return name + _text(right, y + 15, "null", size=11, color=_SOFT, anchor="end")
        if not is_live:
            return name + (self._kept(block, right, y, y + h - 7, letter) if letter else "")
        is_other = block.block_id in self.misnamed
        text = (
            OTHER if is_other else readable(joined([readable(self.token_text(t), 24) for t in block.token_ids[:8]]), 14)
        )
        owners = " ".join(request_name(i) for i in block.owners[:5]) + (" lost" if block.block_id in self.lost else "")
        owners += ", twice!" if block.block_id in self.doubled else ""
        return (
            name
            + _text(right, y + 15, f"ref {block.ref_count}", size=11, anchor="end")
            + _text(x + 6, y + 33, text, size=11, color=ALARM if is_other else _INK)
            + _text(x + 6, y + h - 7, owners, size=12, bold=True)
            + self._letter(block, right, y + h - 7, letter)
        )

    def _letter(self, block: BlockState, right: float, y: float, letter: str, color: str = _INK) -> str:
        """Draw the letter of a block's hash; if its KV is another content, struck through, then that one's."""
        held = self.misnamed.get(block.block_id)
        if held is None or not letter:
            return _text(right, y, letter, size=14, bold=True, color=color, anchor="end")
        struck = f'<tspan text-decoration="line-through">{escape(letter)}</tspan> {escape(held)}'
        look = f'font-size="14" fill="{color}" text-anchor="end" font-weight="700"'
        return f'<text x="{right:g}" y="{y:g}" {look}>{struck}</text>'

    def _kept(self, block: BlockState, right: float, top: float, bottom: float, letter: str) -> str:
        """Return the word for a free block with content: kept, as long as a look-up finds it."""
        word = "kept" if block.block_id in self.findable else "freed"
        text = _text(right, top + 15, word, size=11, color=_SOFT, anchor="end")
        return text + self._letter(block, right, bottom, letter, _SOFT)

    def _line(self, text: str) -> str:
        self.y += 21
        return _text(16, self.y - 6, readable(text, 120))


def _row_texts(request_id: int, request: RequestState, snapshot: Snapshot) -> list[str]:
    """Return a line for the request, and with several groups one line for each."""
    tables = [
        " ".join("–" if i == snapshot.null_block else f"#{i}" for i in ids[:MAX_CHIPS]) for ids in request.block_tables
    ]
    progress = f"{request.status}, {request.num_computed_tokens} of {len(request.token_ids)} tokens"
    text = f"{request_name(request_id)} · {progress}"
    if len(tables) == 1 or not any(tables):
        return [f"{text} → {tables[0] or 'no blocks'}"]
    return [text, *(f"    {group_name(snapshot.groups, group)} → {ids}" for group, ids in enumerate(tables))]


def _listed(name: str, entries: Sequence[str], total: int) -> str:
    more = f" … {total - len(entries)} more" if total > len(entries) else ""
    return f"{name}:  {'   '.join(entries) or 'empty'}{more}"
