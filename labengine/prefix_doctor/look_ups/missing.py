"""The blocks that one look-up did not find, and why each was not in the cache."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import lcm

from labengine.config import GroupSpec
from labengine.prefix_doctor.look_ups.look_up import Cause, MissedTokens
from labengine.record.snapshot import GroupState

_FIRST_TO_LAST: tuple[Cause, ...] = (
    "new",
    "other_salt",
    "unknown",
    "not_registered_yet",
    "never_registered",
    "reset",
    "evicted",
    "other_replica",
)
"""The causes that represent several missing blocks: had only the others stayed, the look-up would still have missed."""


CauseOf = Callable[[int, int], MissedTokens | None]


class Missing:
    """The blocks missing from the cache at a request's look-up.

    cause_of: (group, end of a block in tokens) -> the reason that the block is not cached; None if it is.
    """

    def __init__(self, groups: Sequence[GroupState | GroupSpec], cause_of: CauseOf) -> None:
        self._groups, self._cause_of = groups, cause_of
        self._worst: dict[int, MissedTokens] = {}
        """Per group of full attention, the miss that represents all blocks up to `_seen`."""
        self._seen: dict[int, int] = defaultdict(int)

    def before(self, start: int, end: int) -> MissedTokens:
        """Return the reason that no hit ends at `end`, as the cause of the tokens from start on."""
        found = list[MissedTokens]()
        for number, group in enumerate(self._groups):
            of_kind = {"sliding_window": self._of_window, "state": self._of_state}.get(group.kind, self._of_run)
            found += of_kind(number, group, end)
        if not found:
            return MissedTokens("passed_over", start, end)
        return replace(min(found, key=_rank), start=start, end=end)

    def _of_window(self, number: int, group: GroupState | GroupSpec, end: int) -> Iterator[MissedTokens]:
        """Yield the missing blocks among those (at least one) that the first token after `end` reads."""
        assert group.window is not None
        num_blocks, last = max(1, -(-(group.window - 1) // group.block_size)), end // group.block_size
        for index in range(max(0, last - num_blocks), last):
            if miss := self._cause_of(number, (index + 1) * group.block_size):
                yield miss

    def _of_state(self, number: int, group: GroupState | GroupSpec, end: int) -> Iterator[MissedTokens]:
        """Yield the miss of the state after `end` tokens, the only one that a hit needs."""
        if miss := self._cause_of(number, end):
            yield miss

    def _of_run(self, number: int, group: GroupState | GroupSpec, end: int) -> Iterator[MissedTokens]:
        """Yield the miss that represents all missing blocks from the start, all of which full attention needs."""
        for block_end in range(self._seen[number] + group.block_size, end + 1, group.block_size):
            miss, worst = self._cause_of(number, block_end), self._worst.get(number)
            if miss and (worst is None or _rank(miss) < _rank(worst)):
                self._worst[number] = miss
            self._seen[number] = block_end
        if worst := self._worst.get(number):
            yield worst


def misses_of(
    missing: Missing,
    start: int,
    num_tokens: int,
    unit: int,
    *,
    shared: int,
    shared_with: int | None = None,
    new_from: int | None = None,
) -> Iterator[MissedTokens]:
    """Yield the causes of all tokens from start on: those that a hit could have had, then the prompt's end.

    shared: length of the longest common prefix with an earlier request. new_from: blocks that end behind it are new.
    """
    last = (num_tokens - 1) // unit * unit
    for end in range(start // unit * unit + unit, last + 1, unit):
        if new_from is not None and end > new_from:
            yield from _split(MissedTokens("new", max(start, end - unit), last, shared_with), shared)
            break
        yield from _split(missing.before(max(start, end - unit), end), shared)
    if num_tokens > max(start, last):
        yield MissedTokens("tail", max(start, last), num_tokens)


def _split(miss: MissedTokens, shared: int) -> Iterator[MissedTokens]:
    """Yield a miss; for new tokens, first those that another request shares, but not to the block's end."""
    if miss.cause == "new" and miss.start < shared < miss.end:
        yield replace(miss, cause="short_of_a_block", end=shared)
        yield replace(miss, start=shared)
    else:
        yield miss


def joined(misses: Iterable[MissedTokens]) -> tuple[MissedTokens, ...]:
    """Join neighbours with the same cause; the first one's details represent all."""
    found = list[MissedTokens]()
    for miss in misses:
        if found and found[-1].cause == miss.cause:
            found[-1] = replace(found[-1], end=miss.end)
        else:
            found.append(miss)
    return tuple(found)


def unit_of(groups: Sequence[GroupState | GroupSpec]) -> int:
    """Return the least common multiple of the block sizes."""
    return lcm(*(group.block_size for group in groups))


def _rank(miss: MissedTokens) -> int:
    return _FIRST_TO_LAST.index(miss.cause)
