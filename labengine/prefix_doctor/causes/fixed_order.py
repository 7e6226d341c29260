"""Traffic whose pieces of text, such as documents or tools, always come in the same order."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace

from labengine.prefix_doctor.causes.content import TOKEN, Content, Stretch, packed, same_after
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic

MAX_SEPARATOR = 8
"""Tokens at most between two pieces that stay where they are: commas, line breaks, the beginning of the next piece."""


def in_fixed_order(traffic: Traffic) -> Traffic:
    """Return the traffic with each prompt's known pieces in the order of their first occurrence, then the rest."""
    return replace(traffic, read=lambda: _read(traffic))


def _read(traffic: Traffic) -> Iterator[Prompt]:
    content = Content()
    for number, prompt in enumerate(traffic):
        data = packed(prompt.token_ids, prompt.images)
        known = content.add(number, data + packed(prompt.answer), 0, hash(prompt.extra_keys))
        pieces = [one for one in known if one.there and TOKEN * one.end <= len(data)]
        ordered = _ordered(data, pieces, content) if pieces and not prompt.images else data
        same = ordered == data
        yield prompt if same else replace(prompt, token_ids=array("i", ordered).tolist(), message_starts=())


def _ordered(data: bytes, pieces: Iterable[Stretch], content: Content) -> bytes:
    """Return a prompt with its pieces in the order of their first occurrence, and the separators that stood there."""
    order = sorted(pieces, key=lambda one: (one.number, one.there))
    number, template = order[0].number, content.get(order[0].number) or b""
    end = same_after(data, 0, template, 0)
    parts, used = [template[: TOKEN * end]], [(0, end)]
    for one in order:
        if one.number != number:
            number, template, end = one.number, content.get(one.number) or b"", one.there
        again = max(0, end - one.there)
        if again < one.end - one.start:
            if one.there - end <= MAX_SEPARATOR:
                parts.append(template[TOKEN * end : TOKEN * one.there])
            parts.append(data[TOKEN * (one.start + again) : TOKEN * one.end])
            used.append((one.start + (again if again > MAX_SEPARATOR else 0), one.end))
            end = one.there + one.end - one.start
    parts += [data[TOKEN * start : TOKEN * end] for start, end in _between(used, len(data) // TOKEN)]
    return b"".join(parts)


def _between(used: Iterable[tuple[int, int]], num_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the tokens between those that are used, in order."""
    behind = 0
    for start, end in [*sorted(used), (num_tokens, num_tokens)]:
        if start > behind:
            yield behind, start
        behind = max(behind, end)
