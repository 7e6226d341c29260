"""Loads beside the engine: each on a thread of its own, given up after a while."""

from __future__ import annotations

import math
import time
from threading import Event, Thread

from labengine.config import ConfigError
from labengine.core.connector import Connector
from labengine.engine.external.late import LateLoads
from labengine.engine.external.staging import PendingLoad


class Threaded(LateLoads):
    """A store that reads on daemon threads. A load that takes longer than timeout_s has failed, whatever comes of it.

    Its keys count as missing until they are saved again, so that nobody waits for the same slow content twice.
    """

    def __init__(self, inner: Connector, timeout_s: float = 30.0) -> None:
        super().__init__(inner)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
            raise ConfigError(f"timeout_s must be a number of seconds above 0, got {timeout_s!r}")
        self.timeout_s = float(timeout_s)
        self._something_is_over = Event()

    def wait(self, timeout_s: float) -> None:
        """Wait until some load is over or given up."""
        if not self._pending:
            return
        self._something_is_over.clear()
        if any(self._is_due(load) for load in self._pending.values()):
            return
        until_given_up = min(load.began_at for load in self._pending.values()) + self.timeout_s - time.monotonic()
        self._something_is_over.wait(max(0.0, min(timeout_s, until_given_up)))

    def describe(self) -> str:
        """Return the inner one's line, and how loads come."""
        return f"{super().describe()}; read on threads, {self.timeout_s:g} s at most"

    def _begin(self, load: PendingLoad) -> None:
        Thread(target=self._run, args=(load,), name="labengine-load", daemon=True).start()

    def _run(self, load: PendingLoad) -> None:
        load.run(self.inner)
        self._something_is_over.set()

    def _is_due(self, load: PendingLoad) -> bool:
        return load.over.is_set() or time.monotonic() - load.began_at >= self.timeout_s
