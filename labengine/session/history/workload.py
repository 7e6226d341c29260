"""A workload: the inputs that a lab has had, with one of its prompts in as many copies as wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from labengine.session.history.inputs import AbortInput, AddInput, BrokenStep, Input


@dataclass(frozen=True, slots=True)
class Workload:
    """Inputs, without the steps that were broken off, and the requests of which there may be more or fewer.

    copied: ids of equal requests that came together; of several such runs the longest one, the first of those.
    """

    inputs: tuple[Input, ...]
    copied: range

    @classmethod
    def of(cls, inputs: Sequence[Input]) -> Workload:
        """Return the workload of a lab with these inputs, of which at least one adds a request."""
        kept = tuple(one for one in inputs if not isinstance(one, BrokenStep))
        return cls(kept, max(_equal_requests(kept), key=len))

    def inputs_with(self, copies: int) -> Iterator[Input]:
        """Yield the inputs with so many (>= 1) copies of the copied request; an abort of one left out is left out."""
        request_id = -1
        for one in self.inputs:
            if isinstance(one, AddInput):
                request_id += 1
                if request_id not in self.copied:
                    yield one
                elif request_id == self.copied.start:
                    yield from [one] * copies
            elif not isinstance(one, AbortInput):
                yield one
            elif (renumbered := self._renumbered(one.request_id, copies)) is not None:
                yield replace(one, request_id=renumbered)

    def source(self, request_id: int, copies: int) -> int:
        """Return the request of the workload that a request of inputs_with(copies) repeats."""
        first, stop = self.copied.start, self.copied.stop
        if request_id < first + copies:
            return min(request_id, stop - 1)
        return request_id - copies + len(self.copied)

    def _renumbered(self, request_id: int, copies: int) -> int | None:
        if request_id >= self.copied.stop:
            return request_id + copies - len(self.copied)
        return request_id if request_id < self.copied.start + copies else None


def _equal_requests(inputs: Sequence[Input]) -> Iterator[range]:
    """Yield the ids of each run of equal requests, added one after the other before the same step."""
    first = 0
    for one, equal in groupby(inputs):
        if isinstance(one, AddInput):
            stop = first + len([*equal])
            yield range(first, stop)
            first = stop
