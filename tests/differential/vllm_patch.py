"""What changed from one row to the next: plain JSON that hardly differs from its predecessor, in few bytes.

A patch is [] (no change), [value] (another value), or one of
    {"=": patches by key, "-": keys gone}     of a mapping
    {"#": a patch for each item}              of a list of the same length
    {"@": [index, value, index, value ...]}   of integers, some changed in place
    {"~": [piece, piece ...]}                 of integers: each piece an integer, or [start, end] of the old list
"""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from typing import Any


def patch(old: Any, new: Any) -> Any:
    """What `patched` needs to make new of old."""
    if old == new:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        return _of_mapping(old, new)
    if _is_row_of_integers(old) and _is_row_of_integers(new):
        return min(_of_integers(old, new), key=lambda change: len(json.dumps(change)))
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return {"#": [patch(*pair) for pair in zip(old, new, strict=True)]}
    return [new]


def patched(old: Any, change: Any) -> Any:
    """New from old; old stays as it is."""
    if isinstance(change, list):
        return change[0] if change else old
    if "~" in change:
        return [item for piece in change["~"] for item in (old[slice(*piece)] if isinstance(piece, list) else [piece])]
    if "@" in change:
        return _with_changes(old, change["@"])
    if "#" in change:
        return [patched(*pair) for pair in zip(old, change["#"], strict=True)]
    kept = {key: value for key, value in old.items() if key not in change.get("-", ())}
    return kept | {key: patched(old.get(key), deeper) for key, deeper in change["="].items()}


def _of_mapping(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    changed = {key: patch(old[key], value) if key in old else [value] for key, value in new.items()}
    gone = [key for key in old if key not in new]
    return {"=": {key: change for key, change in changed.items() if change != []}} | ({"-": gone} if gone else {})


def _of_integers(old: list[int], new: list[int]) -> list[Any]:
    """Every encoding of it."""
    ways: list[Any] = [[new], {"~": _pieces(old, new)}]
    if len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        ways.append({"@": [item for index, (was, now) in pairs if was != now for item in (index, now)]})
    return ways


def _pieces(old: list[int], new: list[int]) -> list[Any]:
    pieces: list[Any] = []
    for tag, start, end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal" and end - start > 1:
            pieces.append([start, end])
        else:
            pieces += new[new_start:new_end]
    return pieces


def _with_changes(old: list[int], flat: list[int]) -> list[int]:
    new = list(old)
    for index, value in zip(flat[::2], flat[1::2], strict=True):
        new[index] = value
    return new


def _is_row_of_integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)
