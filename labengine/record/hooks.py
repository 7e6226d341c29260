"""Hooks: ordered delivery of events from the engine to listeners, guarded by kind; a failing listener is dropped.

A site in the engine reads

    if BlockFreed in hooks:
        hooks.emit(BlockFreed(...))

so that no event is built without a listener. Hooks is a dict from event kind to listeners, so the guard is one look-up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from traceback import walk_tb
from typing import Any

from labengine.events import EVENT_KINDS, Event
from labengine.system.closing import Closing

Listener = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class HookFailure:
    """A listener that raised and was therefore dropped."""

    listener: Listener
    event: Event
    error: Exception


class Subscription(Closing):
    """One listener on some kinds of events. `close()` ends it; a second call is harmless."""

    def __init__(self, hooks: Hooks, listener: Listener, kinds: tuple[type[Event], ...]) -> None:
        self.listener = listener
        self.kinds = kinds
        self._hooks = hooks

    def close(self) -> None:
        """Stop listening."""
        self._hooks._remove(self)


class Hooks(dict[type[Event], tuple[Subscription, ...]]):
    """Listeners by event kind.

    Events are delivered in emission order, each to its listeners in subscription order. An event emitted inside a
    listener waits until all listeners have received the current one. A listener that raises is dropped and kept in
    `failures`; with strict=True its error is raised instead. An interrupt is raised only after the other listeners have
    received the event, because a state that follows the engine's events must not miss one. Listeners only read.
    """

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict
        self.failures: list[HookFailure] = []
        self.num_subscribed = 0
        """Subscriptions ever made. A caller that holds back events compares it to notice a new listener."""
        self._pending: deque[Event] = deque()
        self._emitting = Lock()

    @property
    def is_emitting(self) -> bool:
        """True while a listener is being called."""
        return self._emitting.locked()

    def subscribe(self, listener: Listener, *kinds: type[Event]) -> Subscription:
        """Call `listener(event)` for each event of `kinds`, by default of every kind."""
        for kind in kinds:
            if kind not in EVENT_KINDS:
                raise TypeError(f"kind must be an event kind (see labengine.events), got {kind!r}")
        self.num_subscribed += 1
        subscription = Subscription(self, listener, kinds or EVENT_KINDS)
        for kind in subscription.kinds:
            self[kind] = (*self.get(kind, ()), subscription)
        return subscription

    def emit(self, event: Event) -> None:
        """Deliver one event; the class docstring gives order and failures."""
        if self._emitting.locked():
            self._pending.append(event)
            return
        with self._emitting:
            self._pending.clear()
            self._deliver(event)
            while self._pending:
                self._deliver(self._pending.popleft())

    @contextmanager
    def held(self) -> Iterator[list[Event]]:
        """Collect the events emitted inside the block instead of delivering them; the caller may emit them later.

        Not inside a listener. Only kinds with a listener at that time are built and collected.
        """
        held: list[Event] = []
        with self._emitting:
            self._pending.clear()
            yield held
            held.extend(self._pending)
            self._pending.clear()

    def emit_all(self, events: Iterable[Event]) -> None:
        """Deliver collected events in their order, as if emitted one by one. Not inside a listener."""
        with self._emitting:
            self._pending.clear()
            left = iter(events)
            try:
                self._deliver_all(left)
            except Exception:
                raise
            except BaseException:
                self._deliver_all(left)
                raise

    def _deliver_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._deliver(event)
            while self._pending:
                self._deliver(self._pending.popleft())

    def _deliver(self, event: Event) -> None:
        for subscription in self.get(type(event), ()):
            try:
                subscription.listener(event)
            except Exception as error:
                self._drop(subscription, event, error)
                if self.strict:
                    raise
            except BaseException:
                self._deliver_after(subscription, event)
                raise

    def _deliver_after(self, interrupted: Subscription, event: Event) -> None:
        """Deliver to the listeners after the interrupted one, and deliver the events emitted meanwhile."""
        listeners = self.get(type(event), ())
        after = listeners.index(interrupted) + 1 if interrupted in listeners else 0
        for subscription in listeners[after:]:
            try:
                subscription.listener(event)
            except Exception as error:
                self._drop(subscription, event, error)
        while self._pending:
            self._deliver(self._pending.popleft())

    def _drop(self, subscription: Subscription, event: Event, error: Exception) -> None:
        self._remove(subscription)
        self.failures.append(HookFailure(subscription.listener, event, error))

    def _remove(self, subscription: Subscription) -> None:
        for kind in subscription.kinds:
            left = tuple(s for s in self.get(kind, ()) if s is not subscription)
            if left:
                self[kind] = left
            else:
                self.pop(kind, None)


def is_of_listener(error: BaseException) -> bool:
    """Return True if an exception came out of a listener. A change with several events may then lack some of them."""
    return any(frame.f_globals is globals() for frame, _ in walk_tb(error.__traceback__))
