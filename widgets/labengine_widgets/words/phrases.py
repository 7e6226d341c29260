"""One sentence for an event, from the event alone. The words are in phrases.json, which the browser reads too.

A phrase is a template, or a choice of phrases by the value of one field ("*" stands for all other values). In a
template {step} is a field or a name of `_VALUES`, {num_tokens token} a number with its noun, {reason/freed} the word
that a table has for the field's value. widgets/browser/model/phrases.ts reads the same language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from labengine import events as ev
from labengine.record.wording import counted, group_suffix, hash_name, node_name, node_names, readable, request_name
from labengine_widgets.words.mentions import Sentence, the_block, the_blocks, the_entry, the_request

MAX_IMAGE = 40
"""Maximum number of characters shown of an image's identifier."""

MAX_TEXT = 200
"""Maximum number of characters shown of an error or a message."""

_TABLE = json.loads((Path(__file__).parent / "phrases.json").read_text(encoding="utf-8"))
_PLACEHOLDER = re.compile(r"\{(\w+)(?:/(\w+)| ([^{}]+))?\}")

Field = Callable[[str], Any]
"""Reads a field by its name."""


def phrase(event: ev.Event, token_text: Callable[[int], str] | None = None) -> Sentence:
    """Return one sentence that describes an event. token_text: returns a token's readable text; None shows its id."""

    def field(name: str) -> Any:
        if name in _VALUES:
            return _VALUES[name](field)
        return token_text if name == "token_text" else getattr(event, name)

    kind = type(event).__name__
    return _written(_TABLE["events"].get(kind, f"{kind} happens."), field)


def state_phrase(name: str, numbers: Mapping[str, Any]) -> Sentence:
    """Return the sentence for a lab's state ("empty", "running" ...), with its numbers."""
    return _written(_TABLE["states"][name], numbers.__getitem__)


def word(table: str, value: object) -> str:
    """Return a table's word for a value; the value itself if the table has none."""
    known = _TABLE["words"][table].get(_key(value))
    return readable(str(value), MAX_TEXT) if known is None else str(known)


def _written(phrase: Any, field: Field) -> Sentence:
    while not isinstance(phrase, str):
        ((name, choices),) = phrase.items()
        phrase = choices.get(_key(field(name)), choices.get("*"))
    parts: list[str] = []
    end = 0
    for found in _PLACEHOLDER.finditer(phrase):
        parts += phrase[end : found.start()], _filled(found, field)
        end = found.end()
    return Sentence(*parts, phrase[end:])


def _filled(found: re.Match[str], field: Field) -> str:
    name, table, noun = found.groups()
    value = field(name)
    if isinstance(value, Sentence):
        return value
    if table is not None:
        return word(table, value)
    if noun is not None:
        return counted(value if isinstance(value, int) else len(value), noun)
    return readable(str(value), MAX_TEXT)


def _key(value: object) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _entry(field: Field) -> Sentence:
    return the_entry(field("request_id"), field("group"), field("index"))


def _positions(first: int, num_tokens: int) -> str:
    return f"position {first}" if num_tokens == 1 else f"positions {first} to {first + num_tokens - 1}"


def _mapping(mapped: tuple[int, ...], block_id: int) -> str:
    """Return which blocks the map lists under a hash: none, only others, this one and others, or only this one."""
    if block_id not in mapped:
        return "others" if mapped else "none"
    return "shared" if len(mapped) > 1 else "alone"


def _tier_change(field: Field) -> str:
    """Return what the tier did by itself, in clauses."""
    added, dropped, pinned = len(field("added")), len(field("dropped")), len(field("pinned"))
    num_unpinned = sum(not pins for _, _, pins in field("pinned"))
    clauses = (
        (dropped, "leaves the external tier", "leave the external tier"),
        (
            added,
            "is stored in the external tier by another engine",
            "are stored in the external tier by another engine",
        ),
        (
            pinned - num_unpinned,
            "of the external tier is pinned by transfers",
            "of the external tier are pinned by transfers",
        ),
        (num_unpinned, "of the external tier is no longer pinned", "of the external tier are no longer pinned"),
    )
    return "; ".join(f"{counted(n, 'block')} {one if n == 1 else many}" for n, one, many in clauses if n)


def images_named(images: Iterable[tuple[int, int, str]]) -> str:
    """Return images with their positions, as "“cat.png” at positions 6 to 11"."""
    return ", ".join(f"“{readable(name, MAX_IMAGE)}” at {_positions(start, length)}" for start, length, name in images)


def _with_images(field: Field) -> str:
    return f" ({images_named(images)})" if (images := field("images")) else ""


def _touched_nodes(field: Field) -> str:
    node_ids = field("node_ids")
    return f"{node_names(node_ids).capitalize()} {'is' if len(node_ids) == 1 else 'are'}"


def _token(field: Field) -> str:
    text, token_id = field("token_text"), field("token_id")
    return f"token {token_id}" if text is None else f"“{text(token_id)}”"


_VALUES: dict[str, Callable[[Field], str]] = {
    "request": lambda field: the_request(field("request_id")),
    "from_request": lambda field: the_request(field("from_request_id")),
    "other_request": lambda field: request_name(field("other_request_id")),
    "block": lambda field: the_block(field("block_id")),
    "into_block": lambda field: the_block(field("into_block_id")),
    "null_block_name": lambda field: the_block(field("null_block")),
    "entry": _entry,
    "of_group": lambda field: group_suffix(field("group")),
    "hash": lambda field: hash_name(field("block_hash")),
    "mapping": lambda field: _mapping(field("mapped"), field("block_id")),
    "mapped_blocks": lambda field: the_blocks(field("mapped")),
    "transferred_blocks": lambda field: the_blocks(block_id for _, _, block_id, _ in field("transfers")),
    "named_blocks": lambda field: the_blocks(field("block_ids")),
    "parent_node": lambda field: node_name(field("parent_id")),
    "touched_nodes": _touched_nodes,
    "with_images": _with_images,
    "tier_change": _tier_change,
    "written_blocks": lambda field: the_blocks(block_id for block_id, _, _ in field("runs")),
    "scheduled_positions": lambda field: _positions(field("start"), field("num_tokens")),
    "written_positions": lambda field: _positions(field("start"), sum(length for _, _, length in field("runs"))),
    "token": _token,
}
"""Values that a template may name besides fields."""
