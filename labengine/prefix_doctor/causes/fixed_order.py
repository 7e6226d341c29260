"""Traffic whose pieces of text, such as documents or tools, always come in the same order."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from labengine.prefix_doctor.causes.content import TOKEN, Content, Stretch, packed, same_after
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic

MAX_SEPARATOR = 8
"""Tokens at most between two pieces that stay where they are: commas, line breaks, the beginning of the next piece."""


def in_fixed_order(traffic: Traffic) -> Traffic:
    """Return the traffic with each prompt's known pieces in the order of an earlier one, and the rest behind them."""
    return replace(traffic, read=lambda: _read(traffic))


def _read(traffic: Traffic) -> Iterator[Prompt]:
    content = Content()
    for number, prompt in enumerate(traffic):
        data = packed(prompt.token_ids, prompt.images)
        known = content.add(number, data + packed(prompt.answer), 0, hash(prompt.extra_keys))
        ordered = None if prompt.images else _ordered(data, known, content)
        if ordered is None:
            yield prompt
        else:
            yield replace(prompt, token_ids=array("i", ordered).tolist(), message_starts=())


def _ordered(data: bytes, known: Sequence[Stretch], content: Content) -> bytes | None:
    """Return a prompt in the order of the one that has most of its pieces; None if they are in this order already."""
    pieces = [one for one in known if one.there and TOKEN * one.end <= len(data)]
    sizes = Counter[int]()
    for one in pieces:
        sizes[one.number] += one.end - one.start
    main = max(sizes, key=lambda number: sizes[number], default=-1)
    template = content.get(main)
    if template is None:
        return None
    its = [one for one in pieces if one.number == main]
    order = sorted(its, key=lambda one: one.there)
    if order == its:
        return None
    prefix = same_after(data, 0, template, 0)
    ordered, used = _joined(data, template, prefix, order)
    return ordered + b"".join(data[TOKEN * start : TOKEN * end] for start, end in _between(used, len(data) // TOKEN))


def _joined(data: bytes, template: bytes, end: int, order: Iterable[Stretch]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return pieces with the template's separators behind its prefix, and the tokens of the prompt that are in them.

    end: the token of the template up to which its text has been taken.
    """
    parts, used = [template[: TOKEN * end]], [(0, end)]
    for one in order:
        length, again = one.end - one.start, max(0, end - one.there)
        if again >= length:
            continue
        if one.there - end <= MAX_SEPARATOR:
            parts.append(template[TOKEN * end : TOKEN * one.there])
        parts.append(data[TOKEN * (one.start + again) : TOKEN * one.end])
        used.append((one.start + (again if again > MAX_SEPARATOR else 0), one.end))
        end = one.there + length
    return b"".join(parts), used


def _between(used: Iterable[tuple[int, int]], num_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the tokens between those that are used, in order."""
    behind = 0
    for start, end in [*sorted(used), (num_tokens, num_tokens)]:
        if start > behind:
            yield behind, start
        behind = max(behind, end)
