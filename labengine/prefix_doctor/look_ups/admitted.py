"""The prefixes of requests admitted up to a moment, and the longest one that a new request shares."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from labengine.prefix_doctor.look_ups.prefix_tree import Chunk, Node, Sequences

_LAST = float("inf")
"""Sorts after every request in a pair (chunk, request)."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The longest common prefix of a request with all those admitted before it.

    request_id: a request with which it shares num_tokens; None without a common token. num_other_salt: number of equal
    tokens under another salt, at least num_tokens; other_salt_id: a request with them.
    """

    num_tokens: int
    request_id: int | None
    num_other_salt: int
    other_salt_id: int | None


class Admitted:
    """Marks prefixes in the tree as requests are admitted and grow."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences
        self._lengths: dict[int, int] = {}
        self._partial: dict[int, tuple[Node, Chunk]] = {}
        """Each request's last, incomplete chunk, and the node that it follows."""
        self._grown: dict[int, int] = {}

    def add(self, request_id: int, num_tokens: int) -> None:
        """Mark a request's first num_tokens tokens, for the look-ups after this one."""
        self._grown[request_id] = num_tokens

    def shared_by(self, request_id: int, num_tokens: int) -> Shared:
        """Return the common prefix of a request's first num_tokens tokens with all admitted ones, itself included."""
        for grown, length in self._grown.items():
            self._mark(grown, length)
        self._grown.clear()
        size, path = self._sequences.size, self._sequences.paths[request_id]
        known = path[: num_tokens // size]
        num_common = sum(1 for _ in takewhile(lambda node: node.requests, known))
        node = known[num_common - 1] if num_common else self._sequences.root
        other = node.requests[-1] if num_common else None
        start = num_common * size
        remaining = tuple(self._sequences.tokens[request_id][start : min(start + size, num_tokens)])
        length, nearest = _longest_common(node, remaining, size)
        deep, its_request = self._with_other_salt(request_id, num_tokens)
        return Shared(start + length, nearest if length else other, deep, its_request)

    def _mark(self, request_id: int, num_tokens: int) -> None:
        size, path = self._sequences.size, self._sequences.paths[request_id]
        before = self._lengths.get(request_id, 0)
        if num_tokens <= before:
            return
        self._lengths[request_id] = num_tokens
        if partial := self._partial.pop(request_id, None):
            node, chunk = partial
            node.continuations.remove((chunk, request_id))
        for node in path[before // size : num_tokens // size]:
            if not node.requests and node.parent is not None and self._sequences.has_tokens:
                insort(node.parent.continuations, (node.chunk, request_id))
            node.requests.append(request_id)
        start = num_tokens // size * size
        remaining = tuple(self._sequences.tokens[request_id][start:num_tokens])
        if remaining and self._sequences.has_tokens:
            node = path[start // size - 1] if start else self._sequences.root
            insort(node.continuations, (remaining, request_id))
            self._partial[request_id] = node, remaining

    def _with_other_salt(self, request_id: int, num_tokens: int) -> tuple[int, int | None]:
        """Return how far the tokens are equal under another salt, and a request with them."""
        size, tokens = self._sequences.size, self._sequences.tokens[request_id]
        nodes = [self._sequences.root]
        found: tuple[int, int | None] = 0, None
        for end, own in zip(range(size, num_tokens + 1, size), self._sequences.paths[request_id], strict=False):
            chunk = tuple(tokens[end - size : end])
            nodes = [child for node in nodes for child in node.children.get(chunk, ()) if child.requests]
            if others := [node for node in nodes if node is not own]:
                found = end, others[0].requests[-1]
        return found


def _longest_common(node: Node, remaining: Chunk, size: int) -> tuple[int, int | None]:
    """Return the longest common prefix of `remaining` with a continuation of a node, and the request that has it.

    In a sorted list it belongs to one of the two neighbours. An equal complete chunk has another salt.
    """
    longest: tuple[int, int | None] = 0, None
    for chunk, request_id in _neighbours(node.continuations, remaining, size):
        length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(remaining, chunk, strict=False)))
        if length > longest[0]:
            longest = length, request_id
    return longest


def _neighbours(continuations: list[tuple[Chunk, int]], remaining: Chunk, size: int) -> Iterator[tuple[Chunk, int]]:
    is_complete = len(remaining) == size
    low = high = bisect_left(continuations, (remaining, -1))
    if is_complete:
        last: Any = (remaining, _LAST)
        high = bisect_left(continuations, last, low)
    if low:
        yield continuations[low - 1]
    if high < len(continuations):
        yield continuations[high]
