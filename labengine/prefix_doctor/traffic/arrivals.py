"""Arrivals in seconds since the first one, in the order of the prompts."""

from __future__ import annotations

from collections.abc import Iterator

from labengine.record.wording import counted


class Arrivals:
    """Turns the times of successive prompts into arrivals that never go back."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last: float | None = None
        self._num_back = self._num_untimed = 0

    def of(self, time: float | None) -> float | None:
        """Return the arrival of the next prompt; None if neither it nor an earlier one has a time."""
        if time is None:
            self._num_untimed += 1
            return self._last
        if self._first is None or self._last is None:
            self._first, self._last = time, 0.0
        if time - self._first < self._last:
            self._num_back += 1
        else:
            self._last = time - self._first
        return self._last

    def notes(self) -> Iterator[str]:
        """Yield sentences on times that are missing or go back."""
        if self._last is None and self._num_untimed > 1:
            yield (
                "The prompts have no times, so all wait from the beginning: preemptions and waiting times are those of "
                "a full queue."
            )
        if self._last is not None and self._num_untimed:
            yield f"{counted(self._num_untimed, 'prompt')} without a time: each arrives with the prompt before it."
        if self._num_back:
            yield (
                f"Times go back at {counted(self._num_back, 'prompt')}: the file's order counts, so such a prompt "
                "arrives with the one before it."
            )
