"""A workload: a lab's inputs, with any number of copies of one prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from labengine.session.history.inputs import AbortInput, AddInput, BranchInput, BrokenStep, Input

Together = tuple[AddInput, ...]
"""A request and its forks: its n answers, or the beams of its search."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Inputs, without the steps that were broken off, and the requests that can be copied.

    copied: ids of the longest (and first) run of equal requests that came together.
    copy: the requests of one copy, whose leader_id counts from the first of them.
    """

    inputs: tuple[Input, ...]
    copied: range
    copy: Together

    @classmethod
    def of(cls, inputs: Sequence[Input]) -> Workload:
        """Return the workload of a lab with these inputs, at least one of which adds a request."""
        kept = tuple(one for one in inputs if not isinstance(one, BrokenStep))
        copied, copy = max(_equal_requests(kept), key=lambda run: len(run[0]) // len(run[1]))
        return cls(kept, copied, copy)

    @property
    def num_copies(self) -> int:
        """The recorded number of copies."""
        return len(self.copied) // len(self.copy)

    def inputs_with(self, copies: int) -> Iterator[Input]:
        """Yield the inputs with `copies` (>= 1) of the copied request; an abort of an omitted request is omitted."""
        request_id = -1
        for one in self.inputs:
            if isinstance(one, AddInput):
                request_id += 1
                if request_id not in self.copied:
                    yield self._moved(one, copies)
                elif request_id == self.copied.start:
                    for number in range(copies):
                        yield from _moved_by(self.copy, self.copied.start + number * len(self.copy))
            elif not isinstance(one, AbortInput):
                yield one
            elif (renumbered := self._renumbered(one.request_id, copies)) is not None:
                yield replace(one, request_id=renumbered)

    def source(self, request_id: int, copies: int) -> int:
        """Return the request of the workload that a request of inputs_with(copies) repeats."""
        number, place = divmod(request_id - self.copied.start, len(self.copy))
        if number < 0:
            return request_id
        if number < copies:
            return self.copied.start + min(number, self.num_copies - 1) * len(self.copy) + place
        return request_id - self._num_more(copies)

    def _num_more(self, copies: int) -> int:
        return (copies - self.num_copies) * len(self.copy)

    def _renumbered(self, request_id: int, copies: int) -> int | None:
        if request_id >= self.copied.stop:
            return request_id + self._num_more(copies)
        return request_id if request_id < self.copied.start + copies * len(self.copy) else None

    def _moved(self, one: AddInput, copies: int) -> AddInput:
        """Return a request that is not copied, with the new id of the request that it forks from or branches."""
        if one.leader_id is not None:
            one = replace(one, leader_id=self._renumbered(one.leader_id, copies))
        if isinstance(one, BranchInput):
            parent = self._renumbered(one.request_id, copies)
            one = replace(one, request_id=self.copied.start if parent is None else parent)
        return one


def _equal_requests(inputs: Sequence[Input]) -> Iterator[tuple[range, Together]]:
    """Yield each run of equal requests added in a row before the same step: the ids, and one of the requests."""
    first = 0
    for together, equal in groupby(_together(inputs)):
        if together is not None:
            stop = first + len(together) * len([*equal])
            yield range(first, stop), together
            first = stop


def _together(inputs: Sequence[Input]) -> Iterator[Together | None]:
    """Yield each request with its forks, leader_id counted from it; None for any other input."""
    found: list[AddInput] = []
    num_requests = 0
    for one in inputs:
        is_fork = isinstance(one, AddInput) and one.leader_id is not None
        if found and not is_fork:
            yield _moved_by(found, len(found) - num_requests)
            found = []
        if isinstance(one, AddInput):
            found.append(one)
            num_requests += 1
        else:
            yield None
    if found:
        yield _moved_by(found, len(found) - num_requests)


def _moved_by(together: Sequence[AddInput], distance: int) -> Together:
    return tuple(one if one.leader_id is None else replace(one, leader_id=one.leader_id + distance) for one in together)
