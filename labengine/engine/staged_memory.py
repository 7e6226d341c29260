"""Memory for a step's numbers and block tables: written on the host, and copied to the device in one piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Numbers = Sequence[int] | NDArray[np.int32]

ALIGNMENT = 64
"""Alignment of an array's start in numbers (256 bytes); kernels load 16 bytes at a time from there."""


class LastCopy:
    """The end of the last copy from pinned memory to a GPU; until then the memory must not change."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._finished = torch.cuda.Event()

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Wait for the last copy to end. Then the copies made in the with-block, even an interrupted one, are the last.

        The wait is usually short, because the step's tokens were read back, but a step that samples nothing may still
        run.
        """
        self._finished.synchronize()
        try:
            yield
        finally:
            self._finished.record(torch.cuda.current_stream(self._device))


class StagedMemory:
    """Int32 arrays that change with each step, and tables that stay. The memory grows but never shrinks.

        [ unused | arrays of this step | row 0 of each table | row 1 of each table | ... ]

    The arrays end where the tables begin, so a step uses one contiguous piece. On a CPU, host and device share the
    memory. On a GPU the host's memory is pinned, and `sent` copies without waiting; the copy must end before the next
    write (see StepStaging).
    """

    def __init__(self, device: torch.device, num_tables: int, *, is_copied: bool | None = None) -> None:
        """is_copied: True if host and device have separate memory; None: on a GPU only."""
        self._device, self._num_tables = device, num_tables
        self._is_copied = device.type == "cuda" if is_copied is None else is_copied
        self._allocate(1024, 16, 16)

    def _allocate(self, num_numbers: int, num_rows: int, width: int) -> None:
        shape = num_rows, self._num_tables, width
        pinned = self._device.type == "cuda"
        host = torch.zeros(num_numbers + prod(shape), dtype=torch.int32, device="cpu", pin_memory=pinned)
        on_device = torch.zeros_like(host, device=self._device) if self._is_copied else host
        written: NDArray[np.int32] = host.numpy()
        tables, seen = written[num_numbers:].reshape(shape), on_device[num_numbers:].view(shape)
        # All or none: without a call in between, no interrupt can come between them.
        self._host, self._on_device, self._written = host, on_device, written
        self._num_numbers, self.tables, self._tables_on_device = num_numbers, tables, seen
        self._views: list[Tensor] = []
        self._table_views: dict[int, Tensor] = {}

    def has_room(self, lengths: Sequence[int], num_rows: int, width: int) -> bool:
        """Return True if `reserve` would change nothing."""
        return all(wanted <= has for wanted, has in self._wanted(lengths, num_rows, width))

    def reserve(self, lengths: Sequence[int], num_rows: int, width: int) -> None:
        """Make room for arrays of these lengths, and for tables. Newly allocated memory holds zeros."""
        if not self.has_room(lengths, num_rows, width):
            wanted = self._wanted(lengths, num_rows, width)
            self._allocate(*(max(2 * has, aligned(need)) if need > has else has for need, has in wanted))

    def _wanted(self, lengths: Sequence[int], num_rows: int, width: int) -> list[tuple[int, int]]:
        """Return (wanted, available) for numbers, rows and columns."""
        has_rows, _, has_width = self.tables.shape
        return [(sum(map(aligned, lengths)), self._num_numbers), (num_rows, has_rows), (width, has_width)]

    def sent(self, arrays: Sequence[Numbers], num_rows: int) -> list[Tensor]:
        """Write the arrays, copy them and the first rows of the tables to the device, and return them there."""
        lengths = [len(array) for array in arrays]
        starts, end = [], self._num_numbers
        for array, length in zip(arrays, lengths, strict=True):
            end -= aligned(length)
            self._written[end : end + length] = array
            starts.append(end)
        if self._is_copied:
            last = self._num_numbers + num_rows * self.tables[0].size
            self._on_device[end:last].copy_(self._host[end:last], non_blocking=True)
        if [view.shape for view in self._views] != [(length,) for length in lengths]:  # else the last step's views do
            self._views = [
                self._on_device[start : start + length] for start, length in zip(starts, lengths, strict=True)
            ]
        return list(self._views)

    def table(self, number: int, num_rows: int, width: int) -> Tensor:
        """Return one table's first rows and columns on the device; its rows are strided."""
        view = self._table_views.get(number)
        if view is None or view.shape != (num_rows, width):
            view = self._table_views[number] = self._tables_on_device[:num_rows, number, :width]
        return view


def aligned(length: int) -> int:
    """Return the smallest multiple of ALIGNMENT that holds `length` numbers."""
    return -(-length // ALIGNMENT) * ALIGNMENT
