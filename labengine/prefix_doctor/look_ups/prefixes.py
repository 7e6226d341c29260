"""The prefixes that would have saved most, had they stayed in the cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from labengine.prefix_doctor.look_ups.examine import Examination
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.look_ups.prefix_tree import Node


@dataclass(frozen=True, slots=True)
class LostPrefix:
    """A prefix that look-ups missed because it had been evicted or reset.

    num_saved: tokens that would not have been recomputed. num_tokens: its length. num_blocks: blocks needed to keep it.
    request_ids: of the look-ups that it would have served. text: its first and last tokens.
    """

    num_saved: int
    num_tokens: int
    num_blocks: int
    request_ids: tuple[int, ...]
    names: tuple[str, ...]
    text: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        counts = {"num_saved": self.num_saved, "num_tokens": self.num_tokens, "num_blocks": self.num_blocks}
        return {**counts, "requests": list(self.request_ids), "names": list(self.names), "text": self.text}


Lost = list[tuple[Node, int]]
"""The loss of one look-up: the prefixes at which it lost tokens, shortest first, and the number lost up to each."""


def lost_prefixes(examination: Examination, most: int) -> list[tuple[LostPrefix, int]]:
    """Return the prefixes that save most, each with a request; tokens saved by one do not count for the next."""
    losses = {number: found for number, one in enumerate(examination.look_ups) if (found := _lost(examination, one))}
    selected = list[tuple[LostPrefix, int]]()
    while losses and len(selected) < most:
        node, served = _paying_most(losses)
        saved = sum(amount for amount in served.values())
        look_ups = [examination.look_ups[number] for number in served]
        tokens = node.depth * examination.sequences.size
        ids = tuple(dict.fromkeys(one.request_id for one in look_ups))
        names = tuple(dict.fromkeys(one.name for one in look_ups))
        blocks = sum(tokens // group.block_size for group in examination.groups)
        selected.append((LostPrefix(saved, tokens, blocks, ids, names), look_ups[0].request_id))
        for number, amount in served.items():
            losses[number] = [(one, total - amount) for one, total in losses[number] if one.depth > node.depth]
            if not losses[number]:
                del losses[number]
    return selected


def _lost(examination: Examination, look_up: LookUp) -> Lost:
    unit, total, found = examination.unit, 0, Lost()
    for miss in look_up.misses:
        if miss.cause not in ("evicted", "reset"):
            continue
        for end in range(miss.start // unit * unit + unit, miss.end + 1, unit):
            total += end - max(miss.start, end - unit)
            if node := examination.sequences.node_at(look_up.request_id, end):
                found.append((node, total))
    return found


def _paying_most(losses: dict[int, Lost]) -> tuple[Node, dict[int, int]]:
    """Return the prefix that saves most (the shortest of several), and the tokens that it saves per look-up."""
    sums = defaultdict[Node, int](int)
    for lost in losses.values():
        for node, total in lost:
            sums[node] += total
    largest = max(sums, key=lambda node: (sums[node], -node.depth))
    return largest, {number: amount for number, lost in losses.items() if (amount := _amount(lost, largest))}


def _amount(lost: Iterable[tuple[Node, int]], node: Node) -> int:
    return next((total for one, total in lost if one is node), 0)


def merged(found: Iterable[Sequence[LostPrefix]], most: int) -> tuple[LostPrefix, ...]:
    """Return the best prefixes of several recordings."""
    return tuple(sorted((one for some in found for one in some), key=lambda one: -one.num_saved)[:most])
