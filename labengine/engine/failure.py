"""How a step failed: which exceptions are a part's own, and the method that raised one."""

from __future__ import annotations

from types import FrameType, TracebackType

from labengine.core.connector import LoadError

MAX_MESSAGE = 1000

_OWN = "labengine."
_STEP_ITSELF = ("labengine.engine.engine", "labengine.engine.ahead", "labengine.engine.interrupts")


class StepBrokenOffError(BaseException):
    """Ends a step on purpose, where one was once broken off; see desk/time/rerun.py."""


def is_failure(error: BaseException) -> bool:
    """True for what a part has raised; False for an interrupt, a step that is closed, and what the engine handles."""
    return not isinstance(error, (KeyboardInterrupt, GeneratorExit, LoadError, StepBrokenOffError))


def message_of(error: BaseException) -> str:
    """The exception's text, in at most MAX_MESSAGE characters: it may hold anything, and may itself fail."""
    try:
        return str(error)[:MAX_MESSAGE]
    except Exception as second:
        return f"(its text cannot be made: {type(second).__name__})"


def raising_method(error: BaseException) -> str:
    """The innermost method inside the step, as Class.method; behind it the innermost override on the way there."""
    methods = [_qualified(frame) for frame in _frames(error.__traceback__) if _is_of_a_part(frame)]
    if not methods:
        return "the engine"
    name, is_own = methods[-1]
    override = next((other for other, own in reversed(methods) if not own), None)
    return name if not is_own or override is None else f"{name}, called by {override}"


def _frames(traceback: TracebackType | None) -> list[FrameType]:
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return frames


def _is_of_a_part(frame: FrameType) -> bool:
    """True for a method of some object, other than the engine's own way through a step."""
    return "self" in frame.f_locals and frame.f_globals.get("__name__", "") not in _STEP_ITSELF


def _qualified(frame: FrameType) -> tuple[str, bool]:
    """(Class.method, True if it is one of labengine's own)."""
    name = frame.f_code.co_qualname.rpartition("<locals>.")[2]
    return name, str(frame.f_globals.get("__name__", "")).startswith(_OWN)
