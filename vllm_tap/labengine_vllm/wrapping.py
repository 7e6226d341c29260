"""Wrappers on an engine's objects: the engine's method runs between two observers, each with a guard."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any

from labengine_vllm.recorder import Recorder

Before = Callable[..., Any]
"""Called with a method's arguments; its result is passed on to After."""

After = Callable[..., None]
"""Called with Before's result, the method's result, and its arguments."""

_NOTHING = object()


class Wrapping:
    """The wrappers of one engine. They are on instances, so that `remove` restores the engine's own methods.

    detach: called with a method's name and the exception raised by one of its observers.
    """

    def __init__(self, recorder: Recorder, detach: Callable[[str, Exception], None]) -> None:
        self._recorder, self._detach = recorder, detach
        self._replaced: list[tuple[Any, str, object, Callable[..., Any]]] = []

    def watch(self, target: Any, name: str, before: Before | None = None, after: After | None = None) -> None:
        """Call observers around a method, while the recorder listens.

        An exception of the engine's method passes through unchanged; rows are then missing until a keyframe.
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
        """Replace a method on an instance."""
        self._replaced.append((target, name, vars(target).get(name, _NOTHING), method))
        setattr(target, name, method)

    def remove(self) -> None:
        """Remove all wrappers, except one that was wrapped again since, which passes calls on."""
        replaced, self._replaced = self._replaced, []
        for target, name, former, method in reversed(replaced):
            if vars(target).get(name) is not method:
                continue
            if former is _NOTHING:
                delattr(target, name)
            else:
                setattr(target, name, former)


class Entries(Wrapping):
    """The wrappers that stay without an audience: on the methods by which vLLM enters its scheduler.

    gate: held inside each of them; a caller that holds it elsewhere sees a state that no method is changing.
    num_entered: number of calls of these methods so far.
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
        """Watch a method as `watch` does. first: called before it, also without an audience."""
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
