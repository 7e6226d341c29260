"""Failed steps: which exceptions a part has raised, and in which method."""

from __future__ import annotations

from types import FrameType, TracebackType

from labengine.core.connector import LoadError
from labengine.events import StepFailed

MAX_MESSAGE = 1000

_OWN = "labengine."
_STEP_ITSELF = ("labengine.engine.engine", "labengine.engine.ahead", "labengine.engine.interrupts")
_DELIVERY = "labengine.record.hooks"

_CALLS_RUNNER = ("_forward", "_sample", "_attempt", "step")
"""The engine's methods that call only the runner, and not the core."""


class StepBrokenOffError(BaseException):
    """Ends a step on purpose, at the place where it was once broken off; see session/history/rerun.py."""


class RaisedOnPurposeError(BaseException):
    """Raised at an event as if a part had raised it. Not an Exception: a listener that raises one is dropped."""


class RecordedFailureError(Exception):
    """Raised to repeat a recorded failure at its place; StepFailed has the same text."""

    def __init__(self, failed: StepFailed) -> None:
        super().__init__(failed.message)
        self.failed = failed


def name_of(error: BaseException) -> str:
    """Return the name of the exception's class, or of the recorded one."""
    return error.failed.error if isinstance(error, RecordedFailureError) else type(error).__name__


def failure_event(step: int, error: BaseException) -> StepFailed:
    """Return the StepFailed event of an exception."""
    if isinstance(error, RecordedFailureError):
        return error.failed
    return StepFailed(step, name_of(error), message_of(error), raising_method(error))


def is_failure(error: BaseException) -> bool:
    """Return True for an exception that a part raised.

    False for interrupts, closed steps and exceptions that the engine handles.
    """
    return not isinstance(error, (KeyboardInterrupt, GeneratorExit, LoadError, StepBrokenOffError))


def message_of(error: BaseException) -> str:
    """Return the exception's text, cut at MAX_MESSAGE characters.

    Its __str__ may be a user's and may fail.
    """
    try:
        return str(error)[:MAX_MESSAGE]
    except Exception as second:
        return f"(its __str__ raised {type(second).__name__})"


def is_of_runner(error: BaseException) -> bool:
    """Return True if the model's runner raised it, so that the engine's last call was to a method of the runner."""
    own = [frame for frame in _frames(error.__traceback__) if _module(frame) in _STEP_ITSELF]
    return bool(own) and own[-1].f_code.co_name in _CALLS_RUNNER


def raising_method(error: BaseException) -> str:
    """Return the innermost method inside the step, as Class.method; for a listener's exception, "a listener".

    If the method is labengine's, the innermost override that led to it is appended.
    """
    frames = _frames(error.__traceback__)
    delivered = [index for index, frame in enumerate(frames) if _module(frame) == _DELIVERY]
    is_of_listener = bool(delivered) and not isinstance(error, RaisedOnPurposeError)
    if is_of_listener:  # the part that emitted the event has not failed
        frames = frames[delivered[-1] + 1 :]
    methods = [_qualified(frame) for frame in frames if _is_of_a_part(frame)]
    if not methods:
        return "a listener" if is_of_listener else "the engine"
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
    """Return True for a method of an object other than the engine, which is in every stack."""
    if "self" not in frame.f_locals or _module(frame) in (*_STEP_ITSELF, _DELIVERY):
        return False
    return all(kind.__module__ not in _STEP_ITSELF for kind in type(frame.f_locals["self"]).__mro__)


def _qualified(frame: FrameType) -> tuple[str, bool]:
    """Return (Class.method, True if it is labengine's own)."""
    name = frame.f_code.co_qualname.rpartition("<locals>.")[2]
    return name, _module(frame).startswith(_OWN)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
