"""Traffic whose varying text stands behind the text that is the same each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from labengine.core.request import Image
from labengine.prefix_doctor.causes.content import TOKEN, WIDTH, packed, same_after, same_before
from labengine.prefix_doctor.causes.conversations import find
from labengine.prefix_doctor.causes.groups import TextGroup
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic

_PLACES = (0, WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH)
"""Tokens of a part by which it is found: its first ones may differ by chance."""


@dataclass(frozen=True)
class Template:
    """A prefix, and the parts behind it that prompts have again; packed."""

    prefix: bytes
    parts: tuple[bytes, ...]

    @classmethod
    def of(cls, group: TextGroup) -> Template:
        """Return what the prompts of a group share."""
        text = group.template
        parts = tuple(text[TOKEN * start : TOKEN * end] for start, end in group.behind())
        return cls(text[: TOKEN * group.position], parts)


def with_text_moved(traffic: Traffic, templates: Sequence[Template]) -> Traffic:
    """Return the traffic with each template's parts first, and what stood between them behind them."""
    return replace(traffic, read=partial(_read, traffic, templates))


def _read(traffic: Traffic, templates: Sequence[Template]) -> Iterator[Prompt]:
    for prompt in traffic:
        data = packed(prompt.token_ids, prompt.images)
        moved = next(filter(None, (_order(data, one) for one in templates)), None)
        images = () if moved is None else _moved_images(prompt.images, moved)
        if moved is None or len(images) < len(prompt.images):
            yield prompt
        else:
            tokens = [token for start, end in moved for token in prompt.token_ids[start:end]]
            yield replace(prompt, token_ids=tokens, images=images, message_starts=())


def _moved_images(images: Sequence[Image], parts: Sequence[tuple[int, int]]) -> tuple[Image, ...]:
    """Return the images in the new order of a prompt's parts, without those that no part has in full."""
    found, behind = list[Image](), 0
    for start, end in parts:
        inside = (one for one in images if start <= one.start and one.start + one.length <= end)
        found += [one._replace(start=behind + one.start - start) for one in inside]
        behind += end - start
    return tuple(found)


def _order(data: bytes, template: Template) -> list[tuple[int, int]] | None:
    """Return the parts of a prompt in their new order; None if it does not have the template's text."""
    found, cursor = list[tuple[int, int]](), 0
    for part in template.parts:
        place = _place(data, part, cursor)
        if place is None:
            break
        start, there = place
        cursor = start + same_after(data, start, part, there)
        found.append((start, cursor))
        if TOKEN * (there + cursor - start) < len(part):
            break
    if not found:
        return None
    prefix = min(same_after(data, 0, template.prefix, 0), found[0][0])
    ends = [prefix, *(end for _, end in found)]
    between = [(end, start) for end, (start, _) in zip(ends, found, strict=False)]
    return [(0, prefix), *found, *between, (cursor, len(data) // TOKEN)]


def _place(data: bytes, part: bytes, cursor: int) -> tuple[int, int] | None:
    """Return where a part begins in a prompt, and the token of the part that stands there."""
    for there in _PLACES:
        shingle = part[TOKEN * there : TOKEN * (there + WIDTH)]
        start = find(data, shingle, cursor) if len(shingle) == TOKEN * WIDTH else -1
        if start >= 0:
            before = same_before(data, start, part, there, start - cursor)
            return start - before, there - before
    return None
