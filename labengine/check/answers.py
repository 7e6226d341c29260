"""Answers of decisions, as comparable values and as text. They may be a user's objects of any kind."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import takewhile
from operator import index
from typing import Any

from labengine.core.block import Block
from labengine.core.connector import BlockTransfer, LocalHit
from labengine.core.prefix_lookup import Hit
from labengine.core.radix.node import Node
from labengine.core.radix.prefix_tree import Found
from labengine.core.request import Request

UNKNOWN = object()
"""Stands for an answer that cannot be compared, such as an iterator: reading it would exhaust it."""

MAX_TEXT = 80
"""Most characters of an answer as text."""

_HASH_DIGITS, _BEFORE = 12, 20
"""Digits of a hash, and characters before the first difference of two long answers."""

_ATOMS = (int, str, bytes, float, bool, type(None))
_LISTS = (list, tuple, range, deque, Hit, Found)


def plain(answer: object) -> Any:
    """Return an answer as an immutable value of built-in types; UNKNOWN for another kind."""
    kind = type(answer)
    if kind in _ATOMS or kind in (BlockTransfer, LocalHit):
        return answer
    if kind in _LISTS:
        items = [*map(plain, answer)]  # type: ignore[call-overload]
        return UNKNOWN if any(item is UNKNOWN for item in items) else tuple(items)
    if isinstance(answer, (Request, Block, Node)):
        return _named(answer)
    try:
        return index(answer)  # type: ignore[arg-type]  # of NumPy, for example
    except Exception:
        return UNKNOWN


def differ(expected: Any, decided: Any) -> bool:
    """Return True if two plain answers are different decisions; of a yes-or-no decision only the truth value counts."""
    if expected is UNKNOWN or decided is UNKNOWN:
        return False
    return bool(decided) is not expected if isinstance(expected, bool) else bool(decided != expected)


def said(answer: object) -> str:
    """Return an answer in a few words."""
    return _cut(_said(answer, _HASH_DIGITS))


def said_apart(one: object, other: object) -> tuple[str, str]:
    """Return two answers in a few distinguishing words each: for long ones, the end in which they differ."""
    short = said(one), said(other)
    if short[0] != short[1]:
        return short
    left, right = _said(one), _said(other)
    num_equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
    start = max(0, num_equal - _BEFORE)
    return _cut(left, start), _cut(right, start)


def _cut(text: str, start: int = 0) -> str:
    text = f"…{text[start:]}" if start else text
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _said(answer: object, num_digits: int | None = None) -> str:
    if isinstance(answer, (Request, Block, Node)):
        return _named(answer)
    if isinstance(answer, Hit):
        return f"a hit of {answer.num_tokens} tokens in blocks {_said(answer.block_ids)}"
    if isinstance(answer, BlockTransfer):
        return f"entry {answer.index} (block {answer.block_id}, {_said(answer.block_hash, num_digits)})"
    if isinstance(answer, LocalHit):
        return _said(answer.transfer, num_digits) + ("" if answer.is_intact else " lost")
    if isinstance(answer, bytes):
        return answer.hex()[:num_digits] or "no hash"
    if isinstance(answer, _LISTS):
        return f"[{', '.join(_said(item, num_digits) for item in answer)}]"
    return str(answer) if type(answer) in _ATOMS else f"an object of {type(answer).__name__}"


def _named(answer: Request | Block | Node) -> str:
    if isinstance(answer, Node):
        return str(answer)
    return f"request {answer.request_id}" if isinstance(answer, Request) else f"block {answer.block_id}"


def num_found(answer: Any, block_size: int) -> int | None:
    """Return how many tokens a look-up has found. answer: a hit, blocks, blocks per group, or one block."""
    if isinstance(answer, Hit):
        return answer.num_tokens
    if answer is None or type(answer) is int:
        return 0 if answer is None else block_size
    if not isinstance(answer, (list, tuple)):
        return None
    blocks = answer[0] if answer and isinstance(answer[0], (list, tuple)) else answer
    return len(blocks) * block_size


def request_of(arguments: Sequence[object], named: Mapping[str, object], decided: object) -> Request | None:
    """Return the request that a decision is about: its first argument that is a request, else its answer."""
    return next((one for one in (*arguments, *named.values(), decided) if isinstance(one, Request)), None)
