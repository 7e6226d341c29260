"""Sentences that know what their words stand for: a reader can point at a block, a request or a content in them.

In Python a sentence is text. A browser gets its parts: it numbers contents from the oldest event that it has, and so
writes the letters of its own pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any, NamedTuple

from labengine.record.wording import block_name, entry_suffix, request_name, separated

SHORT, LONG = 6, 24
"""Words of a list beyond which its middle is left out: in a caption, and where two sentences are compared."""


class Mention(NamedTuple):
    """A word that stands for something. kind: "block", "request" or "content".

    number: the id of the block or request; for a content, the block that holds it at the sentence's moment.
    """

    kind: str
    number: int
    text: str


class Sentence(str):
    """Text with mentions. Slices of it, and strings formatted with it, are plain text."""

    parts: tuple[str | Mention, ...]

    def __new__(cls, *parts: str | Mention) -> Sentence:
        """Join parts; those of sentences keep their mentions."""
        joined: list[str | Mention] = []
        for part in chain.from_iterable(p.parts if isinstance(p, Sentence) else (p,) for p in parts):
            if isinstance(part, str) and joined and isinstance(joined[-1], str):
                joined[-1] += part
            elif part:
                joined.append(part)
        made = super().__new__(cls, "".join(part.text if isinstance(part, Mention) else part for part in joined))
        made.parts = tuple(joined)
        return made

    def without_stop(self) -> Sentence:
        """Return the sentence without its full stop, to go on with."""
        *before, last = self.parts
        return Sentence(*before, str(last).removesuffix(".")) if isinstance(last, str) else self

    def row(self) -> list[Any]:
        """Return the parts as JSON types: text, or [kind, number]."""
        return [[part.kind, part.number] if isinstance(part, Mention) else part for part in self.parts]


def the_block(block_id: int) -> Sentence:
    """Return a block's name: #7."""
    return Sentence(Mention("block", block_id, block_name(block_id)))


def the_request(request_id: int) -> Sentence:
    """Return a request's name: A."""
    return Sentence(Mention("request", request_id, request_name(request_id)))


def the_entry(request_id: int, group: int, index: int) -> Sentence:
    """Return the name of a block table's entry: A's table[2]."""
    return Sentence(the_request(request_id), entry_suffix(group, index))


def the_blocks(block_ids: Iterable[int]) -> Sentence:
    """Return blocks' names as a list, each once: '#0, #1 and #2'."""
    return listing(map(the_block, dict.fromkeys(block_ids)))


def the_requests(request_ids: Iterable[int]) -> Sentence:
    """Return requests' names as a list: 'A, B and C'."""
    return listing(map(the_request, request_ids))


def listing(words: Iterable[str]) -> Sentence:
    """Return words as a list, as wording.listed does; inside `in_full` most of them."""
    return Sentence(*separated(words, _limit.get()))


_limit = ContextVar("_limit", default=SHORT)


@contextmanager
def in_full() -> Iterator[None]:
    """Leave nothing out of lists of up to LONG words: their order may be what a sentence is about."""
    before = _limit.set(LONG)
    try:
        yield
    finally:
        _limit.reset(before)
