"""The processor time of this process and of everything that it has started."""

from __future__ import annotations

from contextlib import suppress


class ProcessorClock:
    """Adds up what each process has spent since the last reading; a process that is gone takes nothing back."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last: dict[int, tuple[float, float]] = {}
        self.read()

    def read(self) -> float:
        """Return the processor seconds spent since this clock was made, by all processes together."""
        now = _of_each_process()
        own = sum(now[pid][0] - self._last.get(pid, (0.0, 0.0))[0] for pid in now)
        waited_for = sum(now[pid][1] - self._last.get(pid, (0.0, 0.0))[1] for pid in now)
        # What a process had spent when it was last seen is counted; its parent gets the sum when it has ended.
        counted = sum(sum(self._last[pid]) for pid in self._last.keys() - now.keys())
        self._seconds += own + max(0.0, waited_for - counted)
        self._last = now
        return self._seconds


def _of_each_process() -> dict[int, tuple[float, float]]:
    """Return by process what it has spent itself, and what its ended children have."""
    import psutil  # of an extra: tests without extras are not measured

    ours = psutil.Process()
    times = {}
    for process in (ours, *ours.children(recursive=True)):
        with suppress(psutil.Error):
            t = process.cpu_times()
            times[process.pid] = (t.user + t.system, t.children_user + t.children_system)
    return times
