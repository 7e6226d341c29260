"""Looks at whether code sleeps. Standard library only: other engines' interpreters import it, too."""

from __future__ import annotations

import time

LOOK_S = 0.05
"""Seconds between two looks at whether an operation sleeps."""
NUM_ASLEEP = 100
"""Looks in a row at which an operation slept, and had computed nothing, after which it waits for ever. Counted, not
timed: a process that is starved, stopped or waits for a disk does not sleep, and a frozen machine looks at nothing."""
ASLEEP_S = 0.0003
"""Processor seconds between two looks, below which nothing was computed but the look."""


class Looks:
    """The looks at what this thread does."""

    def __init__(self) -> None:
        self._num_asleep, self._computed = 0, 0.0

    def restart(self) -> None:
        """Begin to count: something else is done now."""
        self._num_asleep = 0

    def is_asleep_for_good(self) -> bool:
        """Look. Returns True once the thread has slept at too many looks in a row."""
        computed = time.thread_time()
        self._num_asleep = self._num_asleep + 1 if computed - self._computed < ASLEEP_S else 0
        self._computed = computed
        if self._num_asleep <= NUM_ASLEEP:
            return False
        self.restart()
        return True
