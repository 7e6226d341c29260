"""A lab without an engine: it holds hooks and a timeline, and emits the events that a test gives it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline


class FakeViewSource:
    """Everything a dashboard may know of a lab. Commands are kept in `posted`; `answer` decides their results."""

    def __init__(self, events: Iterable[ev.Event] = ()) -> None:
        self.lab = f"fake {id(self)}"
        self.is_live, self.note = True, ""
        self.title = "fake · 12 blocks of 4"
        self.hooks = Hooks()
        self.timeline: Timeline | None = Timeline()
        self.hooks.subscribe(self.timeline.record)
        self.is_running = False
        self.phase: str | None = None
        self.stopped: str | None = None
        self.asked: dict[str, Any] | None = None
        self.request_options: tuple[str, ...] = ()
        self.words: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.say(events)

    def say(self, events: Iterable[ev.Event]) -> None:
        """Emit events, as an engine would."""
        for event in events:
            self.hooks.emit(event)

    def fold(self) -> Fold:
        assert self.timeline is not None
        return self.timeline.state()

    def token_text(self, token_id: int) -> str:
        return self.words.get(token_id, f" t{token_id}")

    def engine_id(self, request_id: int) -> str:
        return self.names.get(request_id, "")

    def seams(self) -> dict[str, Any]:
        return {}

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        self.posted.append((action, arguments))
        future: Future[Any] = Future()
        if self.error:
            future.set_exception(self.error)
        else:
            future.set_result(None)
        return future
