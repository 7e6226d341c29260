"""Block tables as rows: one per request and KV-cache group, and only what is new in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labengine.snapshot import NULL_BLOCK
from labengine_widgets.names import joined, readable, request_name
from labengine_widgets.scene import Scene

MAX_OPEN_ROWS = 64
MAX_ENDED_ROWS = 6
MAX_TEXT_BLOCKS = 32
"""A longer table is drawn without its tokens; a block's own text can still be asked for in the pool."""
MAX_TABLE = 512
MAX_GENERATED = 80
"""Newest sampled tokens that are shown."""


@dataclass(frozen=True, slots=True)
class Row:
    """A request's table in one group, as shown; NULL_BLOCK where it has no block, whatever the engine's null is."""

    status: str
    num_tokens: int
    num_computed: int
    table: tuple[int, ...]
    texts: tuple[tuple[str, ...], ...]
    generated: str


def shown_rows(scene: Scene) -> list[tuple[int, int]]:
    """(request, group): a row per group of everyone who waits or runs, one of those who finished last.

    The oldest go first when there are too many.
    """
    requests, groups = scene.fold.requests, range(len(scene.fold.groups))
    ended = [i for i, request in requests.items() if request.status == "finished"]
    open_ids = [i for i, request in requests.items() if request.status != "finished"]
    last = ended[-max(2, MAX_ENDED_ROWS // max(1, len(groups))) :]
    rows = [(request_id, 0) for request_id in last]
    return sorted(rows + [(request_id, group) for request_id in open_ids[:MAX_OPEN_ROWS] for group in groups])


def row(scene: Scene, request_id: int, group: int, old: Row | None = None) -> Row:
    """One row as it is now; `old` spares work, for tokens are only ever appended."""
    request = scene.fold.requests[request_id]
    tokens, size = request.token_ids, scene.fold.groups[group].block_size
    num_texts = -(-len(tokens) // size) if len(tokens) <= size * MAX_TEXT_BLOCKS else 0
    kept = old.texts[: min(old.num_tokens // size, num_texts)] if old else ()
    texts = kept + tuple(scene.slot_texts(tokens[i * size : (i + 1) * size]) for i in range(len(kept), num_texts))
    newest = tokens[request.num_prompt_tokens :][-MAX_GENERATED:]
    generated = joined([scene.token_text(token) for token in newest])
    return Row(
        request.status,
        len(tokens),
        request.num_computed_tokens,
        tuple(NULL_BLOCK if i == scene.fold.null_block else i for i in request.block_tables[group][:MAX_TABLE]),
        texts,
        readable(generated, 4 * MAX_GENERATED),
    )


def row_diff(key: tuple[int, int], new: Row, old: Row | None) -> dict[str, Any] | None:
    """What a browser that has `old` lacks of `new`; None when nothing is missing."""
    if new == old:
        return None
    base = old or Row("", 0, 0, (), (), "")
    diff: dict[str, Any] = {
        "key": f"{key[0]}:{key[1]}",
        "status": new.status,
        "num_tokens": new.num_tokens,
        "num_computed": new.num_computed,
        "length": len(new.table),
        "num_texts": len(new.texts),
    }
    if old is None:
        diff |= {"request": key[0], "group": key[1], "name": request_name(key[0])}
    if table := _changed(new.table, base.table):
        diff["table"] = table
    if texts := _changed(new.texts, base.texts):
        diff["texts"] = texts
    if new.generated != base.generated or old is None:
        diff["generated"] = new.generated
    return diff


def _changed(new: tuple[Any, ...], old: tuple[Any, ...]) -> list[tuple[int, Any]]:
    return [(i, value) for i, value in enumerate(new) if i >= len(old) or old[i] != value]
