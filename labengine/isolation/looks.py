"""Periodic looks that detect sleeping code. Standard library only: other engines' interpreters import it, too."""

from __future__ import annotations

import time

LOOK_S = 0.05
"""Seconds between two looks."""
NUM_ASLEEP = 100
"""Consecutive looks at a sleeping operation that computed nothing, after which it counts as waiting forever. Counted,
not timed: a process that is starved, stopped or waiting for a disk does not sleep; a frozen machine does not look."""
ASLEEP_S = 0.0003
"""Processor seconds between two looks below which only the look itself was computed."""


class Looks:
    """The looks at this thread."""

    def __init__(self) -> None:
        self._num_asleep, self._computed = 0, 0.0

    def restart(self) -> None:
        """Start counting again: a new operation begins."""
        self._num_asleep = 0

    def is_asleep_for_good(self) -> bool:
        """Look; return True once the thread has slept at too many consecutive looks."""
        computed = time.thread_time()
        self._num_asleep = self._num_asleep + 1 if computed - self._computed < ASLEEP_S else 0
        self._computed = computed
        if self._num_asleep <= NUM_ASLEEP:
            return False
        self.restart()
        return True
