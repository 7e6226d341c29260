"""Searchers on a Ray cluster, by the interface of concurrent.futures. Ray is no dependency, and no extra."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from labengine.config import ConfigError


class RayExecutor(Executor):
    """An executor whose calls are Ray tasks; classes of a notebook's cells go with them. Starts Ray if it is not up."""

    def __init__(self) -> None:
        """Raises ConfigError where Ray is not installed."""
        if find_spec("ray") is None:
            raise ConfigError(
                "workers='ray' needs ray: pip install ray; without it, workers=8 takes eight processes here"
            )
        self._ray: Any = import_module("ray")
        if not self._ray.is_initialized():
            self._ray.init()
        self._max_workers = max(2, int(self._ray.cluster_resources().get("CPU", 2)))
        self._tasks: list[tuple[Any, Future[Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call somewhere in the cluster."""
        task = self._ray.remote(fn).remote(*args, **kwargs)
        future: Future[Any] = task.future()
        self._tasks.append((task, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel the calls that are not over; Ray itself stays up."""
        for task, future in self._tasks:
            if not future.done():
                self._ray.cancel(task, force=True)
        self._tasks = []
