"""The first line of each file of a stream: the meaning of the rows, and their engine."""

from __future__ import annotations

import inspect
import os
from importlib import import_module
from typing import Any

from labengine_vllm.engine import Engine
from labengine_vllm.kinds import DECIDED_BY, KINDS
from labengine_vllm.settings import settings

FORMAT, FORMAT_VERSION = "labengine stream", 1

QUEUE_METHODS = ("peek_request", "pop_request", "add_request", "prepend_request", "prepend_requests")
"""Methods of vLLM's waiting queue that decide which request is admitted next."""


def header(engine: Engine, stream_id: str, *, has_tokens: bool = True) -> dict[str, Any]:
    """Return the header of one engine's stream. has_tokens: False if the stream leaves out token ids."""
    scheduler = engine.scheduler
    config = getattr(scheduler, "vllm_config", None)
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "stream": stream_id,
        "kinds": KINDS,
        "engine": f"vllm {engine_version()}",
        "scheduler": type(scheduler).__name__,
        "rank": rank_of(scheduler),
        "pid": os.getpid(),
        "model": str(getattr(getattr(config, "model_config", None), "model", "unknown model")),
        "num_blocks": len(engine.pool.blocks),
        "groups": engine.group_rows(),
        "settings": settings(engine),
        "methods": {kind: place for kind, names in DECIDED_BY.items() if (place := _place(engine, *names))},
        **({} if has_tokens else {"has_tokens": False}),
    }


def engine_version() -> str:
    """Return the version of vLLM in this process; "unknown" without one."""
    try:
        return str(import_module("vllm").__version__)
    except (ImportError, AttributeError):
        return "unknown"


def rank_of(scheduler: Any) -> int:
    """Return the data-parallel rank of a scheduler; 0 if there is only one."""
    parallel = getattr(getattr(scheduler, "vllm_config", None), "parallel_config", None)
    rank = getattr(parallel, "data_parallel_index", None)
    return int(rank if rank is not None else getattr(parallel, "data_parallel_rank", 0) or 0)


def _place(engine: Engine, role: str, name: str) -> dict[str, Any] | None:
    """Return the class, method, module and line of a method in the engine's class; None without one."""
    if role == "waiting":
        return _place_in_queue(getattr(engine.scheduler, "waiting", None))
    target = dict(reversed(list(engine.objects()))).get(role)  # no state group, no place
    return _place_on(target, name)


def _place_in_queue(queue: Any) -> dict[str, Any] | None:
    """Return the method that orders the waiting requests: the first of several that is not vLLM's."""
    places = [place for name in QUEUE_METHODS if (place := _place_on(queue, name))]
    changed = (place for place in places if not place["module"].startswith("vllm."))
    return next(changed, places[0] if places else None)


def _place_on(target: Any, name: str) -> dict[str, Any] | None:
    for owner in type(target).__mro__:
        if name in vars(owner):
            function = vars(owner)[name]
            module = getattr(function, "__module__", None) or owner.__module__  # a patched method has another module
            return {"class": owner.__name__, "method": name, "module": module, "line": _line(function)}
    return None


def _line(function: Any) -> int:
    try:
        return inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return 0
