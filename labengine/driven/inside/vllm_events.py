"""Events of a driven vLLM scheduler: the tap of labengine-vllm, with its messages kept in a list."""

from __future__ import annotations

from typing import Any

from labengine_vllm import tap
from labengine_vllm.encoding import plain
from labengine_vllm.engine import Engine
from labengine_vllm.header import header
from labengine_vllm.outbox import Sender
from labengine_vllm.tap import Tap

tap.SECONDS_BETWEEN_KEYFRAMES = 0.0  # a change without an event is followed by the state at the next step

_headers: dict[str, dict[str, Any]] = {}


class MessageList(Sender):
    """Keeps the tap's messages."""

    has_audience = True

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []

    def put(self, message: dict[str, Any], num_events: int) -> bool:
        """Keep a message."""
        self.messages.append(plain(message))
        return True


class Events:
    """The events of one engine from now on. key: identifies its settings, which determine the header."""

    def __init__(self, driven: Any, key: str) -> None:
        scheduler = driven.scheduler
        if key not in _headers:  # reading the methods' lines takes as long as ten workloads
            engine = Engine.of(scheduler)
            _headers[key] = {**header(engine, "driven"), "file": 1, "pid": 1, "model": "no-weights"}
        else:
            manager = scheduler.kv_cache_manager
            groups = tuple(manager.coordinator.single_type_managers)
            pool = manager.block_pool
            engine = Engine(scheduler, manager, pool, pool.free_block_queue, groups)
        self.header = _headers[key]
        self._outbox = MessageList()
        self._tap = Tap(engine, self._outbox)

    def take(self) -> list[dict[str, Any]]:
        """Return the stream's messages since the last call."""
        messages, self._outbox.messages = self._outbox.messages, []
        return messages

    def look(self) -> None:
        """Send all events up to now, and the engine's state."""
        self._tap.send_state()

    def end(self) -> None:
        """End the stream with the engine's state, and remove the wrappers."""
        self._tap.close()
