"""Wrappers on an engine's objects: the engine's own method runs between two observers, each behind a guard."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from labengine_vllm.recorder import Recorder

Before = Callable[..., Any]
"""Called with a method's arguments; its result is passed on to After."""

After = Callable[..., None]
"""Called with what Before returned, the method's result, and its arguments."""

_NOTHING = object()


class Wrapping:
    """The wrappers of one engine. They sit on instances, so `remove` brings the engine's own methods back.

    detach: called with a method's name and the exception that one of its observers raised.
    """

    def __init__(self, recorder: Recorder, detach: Callable[[str, Exception], None]) -> None:
        self._recorder, self._detach = recorder, detach
        self._replaced: list[tuple[Any, str, object, Callable[..., Any]]] = []

    def watch(self, target: Any, name: str, before: Before | None = None, after: After | None = None) -> None:
        """Have observers called around a method, while the recorder listens.

        An exception of the engine's own method passes through as it is; rows are then missing until a keyframe.
        """
        self.replace(target, name, self._watched(target, name, before, after))

    def _watched(self, target: Any, name: str, before: Before | None, after: After | None) -> Callable[..., Any]:
        original, recorder, detach = getattr(target, name), self._recorder, self._detach
        where = f"{type(target).__name__}.{name}"

        def method(*args: Any, **kwargs: Any) -> Any:
            if not recorder.is_listening:
                return original(*args, **kwargs)
            found = None
            if before is not None:
                try:
                    found = before(*args, **kwargs)
                except Exception as error:
                    detach(where, error)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                recorder.lose(f"{where} raised {type(error).__name__}", where)
                raise
            if after is not None and recorder.is_listening:
                try:
                    after(found, result, *args, **kwargs)
                except Exception as error:
                    detach(where, error)
            return result

        return method

    def replace(self, target: Any, name: str, method: Callable[..., Any]) -> None:
        """Put a method on an instance."""
        self._replaced.append((target, name, vars(target).get(name, _NOTHING), method))
        setattr(target, name, method)

    def remove(self) -> None:
        """Take all wrappers off, except one that somebody has wrapped since: it passes calls on."""
        replaced, self._replaced = self._replaced, []
        for target, name, former, method in reversed(replaced):
            if vars(target).get(name) is not method:
                continue
            if former is _NOTHING:
                delattr(target, name)
            else:
                setattr(target, name, former)


class Entries(Wrapping):
    """The wrappers that stay while nobody listens: on the methods by which vLLM enters its scheduler.

    gate: held inside each of them. Who holds it elsewhere sees a state that no method is changing.
    num_entered: calls of these methods so far.
    """

    def __init__(self, recorder: Recorder, detach: Callable[[str, Exception], None]) -> None:
        super().__init__(recorder, detach)
        self.gate = RLock()
        self.num_entered = 0

    def enter(
        self,
        target: Any,
        name: str,
        before: Before | None = None,
        after: After | None = None,
        first: Before | None = None,
    ) -> None:
        """Watch a method as `watch` does. first: called before it, also while nobody listens."""
        watched, gate, detach = self._watched(target, name, before, after), self.gate, self._detach
        where = f"{type(target).__name__}.{name}"

        def method(*args: Any, **kwargs: Any) -> Any:
            with gate:
                self.num_entered += 1
                if first is not None:
                    try:
                        first(*args, **kwargs)
                    except Exception as error:
                        detach(where, error)
                return watched(*args, **kwargs)

        self.replace(target, name, method)
