"""The pool as a static SVG: what a saved notebook, a web page or a report shows where no widget lives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from labengine.snapshot import NULL_BLOCK, BlockState, RequestState, Snapshot
from labengine_widgets.ascii import content_letters
from labengine_widgets.names import joined, readable, request_name

HUES = ("#56b4e9", "#009e73", "#f0e442", "#cc79a7", "#0072b2", "#e69f00")
"""Okabe and Ito's palette; by order of appearance, as in the browser half."""

LOST_HUE = "#d55e00"

WIDTH = 900
MAX_CARDS = 64
MAX_CELLS = 1024
MAX_ROWS = 8
MAX_CHIPS = 24
_INK, _SOFT, _FAINT = "#222222", "#666666", "#f1f1f1"
_STYLE = "font-family:system-ui,'DejaVu Sans',sans-serif;font-size:13px"
_PATTERNS = (
    '<defs><pattern id="le-lost" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<rect width="2.5" height="8" fill="{LOST_HUE}"/></pattern>'
    '<pattern id="le-partial" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="1.6" height="6" fill="#bbbbbb"/></pattern></defs>'
)


def block_map_svg(snapshot: Snapshot, token_text: Callable[[int], str] = str, title: str = "") -> str:
    """The snapshot as one SVG element of 900 px width and a few kilobytes; a large pool shows its first 1024 blocks."""
    picture = _Picture(snapshot, token_text)
    body = picture.head(readable(title, 120)) + picture.pool() + picture.tables() + picture.map() + picture.queue()
    height, told = picture.y + 8, escape(_summary(snapshot))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'role="img" aria-label="{told}" style="{_STYLE}"><title>{told}</title>{_PATTERNS}'
        f'<rect width="100%" height="100%" rx="6" fill="#ffffff"/>{body}</svg>'
    )


def _summary(snapshot: Snapshot) -> str:
    return (
        f"Step {snapshot.step}: {snapshot.num_used_blocks} of {len(snapshot.blocks)} blocks used, "
        f"{len(snapshot.prefix_map)} findable, {len(snapshot.lost_blocks)} lost"
    )


def _text(x: float, y: float, text: str, *, size: int = 13, color: str = _INK, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="700"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}"{weight} text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: float, y: float, w: float, h: float, fill: str, *, stroke: str = "none", dash: str = "", opacity: float = 1) -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{5 if w > 20 else 0}" fill="{fill}" '
        f'fill-opacity="{opacity:g}" stroke="{stroke}" stroke-width="1.8"{dashed}/>'
    )


class _Picture:
    """Draws from the top down; `y` is where the next part begins."""

    def __init__(self, snapshot: Snapshot, token_text: Callable[[int], str]) -> None:
        self.snapshot = snapshot
        self.token_text = token_text
        self.letters = content_letters(snapshot)
        self.hues = {name: HUES[i % len(HUES)] for i, name in enumerate(dict.fromkeys(self.letters.values()))}
        self.lost = frozenset(snapshot.lost_blocks)
        self.y = 0.0

    def head(self, title: str) -> str:
        used, peak = self.snapshot.num_used_blocks, len(self.snapshot.blocks)
        facts = f"used of {peak} · {len(self.snapshot.prefix_map)} findable · {len(self.lost)} lost · step {self.snapshot.step}"
        self.y = 74
        return _text(16, 24, title, color=_SOFT) + _text(16, 60, str(used), size=34, bold=True) + _text(
            24 + 21 * len(str(used)), 60, facts, size=15
        )

    def pool(self) -> str:
        blocks = self.snapshot.blocks[:MAX_CELLS]
        columns, width, height = self._grid(len(blocks))
        drawn = "".join(
            self._cell(block, 16 + (i % columns) * width, self.y + (i // columns) * height, width, height)
            for i, block in enumerate(blocks)
        )
        self.y += -(-len(blocks) // columns) * height + 20
        if len(self.snapshot.blocks) > len(blocks):
            drawn += self._line(f"… and {len(self.snapshot.blocks) - len(blocks)} blocks more")
        return drawn

    def tables(self) -> str:
        rows = [item for item in self.snapshot.requests.items() if item[1].status != "finished"]
        drawn = "".join(self._line(_row_text(request_id, request)) for request_id, request in rows[:MAX_ROWS])
        return drawn + (self._line(f"… and {len(rows) - MAX_ROWS} requests more") if len(rows) > MAX_ROWS else "")

    def map(self) -> str:
        entries = [
            f"{self.letters.get(key.split(':')[1], '?')} → {', '.join(f'#{i}' for i in ids)}"
            for key, ids in list(self.snapshot.prefix_map.items())[:MAX_CHIPS]
        ]
        return self._line(_listed("hash map", entries, len(self.snapshot.prefix_map)))

    def queue(self) -> str:
        queue = self.snapshot.free_queue
        return self._line(_listed("free queue, next first", [f"#{i}" for i in queue[:MAX_CHIPS]], len(queue)))

    @staticmethod
    def _grid(number: int) -> tuple[int, float, float]:
        columns, width, height = (8, 108.5, 64.0) if number <= MAX_CARDS else (62, 14.0, 14.0)
        return columns, width, height

    def _cell(self, block: BlockState, x: float, y: float, width: float, height: float) -> str:
        gap = 6 if width > 20 else 1
        letter = self.letters[block.block_hashes[0]] if block.block_hashes else ""
        box = (x, y, width - gap, height - gap)
        drawn = _rect(*box, _FAINT) + self._content(block, box, letter) + self._border(block, box)
        return drawn + (self._words(block, box, letter) if width > 20 else "")

    def _content(self, block: BlockState, box: tuple[float, float, float, float], letter: str) -> str:
        drawn = ""
        if letter:
            drawn = _rect(*box, self.hues[letter], opacity=0.45 if block.ref_count else 0.22)
        elif block.ref_count:
            drawn = _rect(*box, "url(#le-partial)")
        return drawn + (_rect(*box, "url(#le-lost)") if block.block_id in self.lost else "")

    def _border(self, block: BlockState, box: tuple[float, float, float, float]) -> str:
        if block.ref_count:
            return _rect(*box, "none", stroke=LOST_HUE if block.block_id in self.lost else _INK)
        return _rect(*box, "none", stroke=_SOFT, dash="4 3") if block.block_hashes else ""

    def _words(self, block: BlockState, box: tuple[float, float, float, float], letter: str) -> str:
        x, y, w, h = box
        drawn = _text(x + 6, y + 15, f"#{block.block_id}", size=12, bold=bool(block.ref_count), color=_INK if block.ref_count else _SOFT)
        if not block.ref_count:
            return drawn + (_text(x + w - 6, y + 15, "freed", size=11, color=_SOFT, anchor="end") if letter else "")
        drawn += _text(x + w - 6, y + 15, f"ref {block.ref_count}", size=11, anchor="end")
        text = joined([readable(self.token_text(t), 24) for t in block.token_ids[:8]])
        drawn += _text(x + 6, y + 33, readable(text, 14), size=11)
        owners = " ".join(request_name(i) for i in block.owners[:5])
        lost = " lost" if block.block_id in self.lost else ""
        return drawn + _text(x + 6, y + h - 7, owners + lost, size=12, bold=True) + _text(x + w - 6, y + h - 7, letter, size=14, bold=True, anchor="end")

    def _line(self, text: str) -> str:
        self.y += 21
        return _text(16, self.y - 6, readable(text, 120))


def _row_text(request_id: int, request: RequestState) -> str:
    tables = " | ".join(
        " ".join("–" if i == NULL_BLOCK else f"#{i}" for i in table[:MAX_CHIPS]) for table in request.block_tables
    )
    return f"{request_name(request_id)} · {request.status}, {request.num_computed_tokens} of {len(request.token_ids)} tokens → {tables or 'no blocks'}"


def _listed(name: str, entries: Sequence[str], total: int) -> str:
    more = f" … {total - len(entries)} more" if total > len(entries) else ""
    return f"{name}:  {'   '.join(entries) or 'empty'}{more}"
