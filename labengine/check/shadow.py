"""The shadow of a user's overrides: production's methods, asked beside them on the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from inspect import getattr_static
from typing import Any, NamedTuple

from labengine.check.answers import UNKNOWN, differ, num_found, plain, request_of, said, said_apart
from labengine.check.production import Production
from labengine.config import ConfigError
from labengine.core.guard import refused_answers
from labengine.core.journal import Journal
from labengine.core.part_methods import class_name, definers, is_custom, is_method
from labengine.core.parts import parts_of
from labengine.core.pure_decisions import LOOK_UPS, REFUSALS, is_pure
from labengine.core.scheduler import Scheduler
from labengine.core.seams import Decider, overrides_of
from labengine.record.hooks import Hooks
from labengine.system.code_roles import passes_calls_on

_CALLED_BEFORE = ("refuse_what_it_lacks",)
"""Called while the core is assembled, before it can be watched."""


class Difference(NamedTuple):
    """An override's answer, and the different one of production's method on the same state."""

    method: str
    replaces: str
    decided: str
    instead_of: str
    request_id: int | None
    num_found: tuple[int, int] | None = None
    """For a look-up that finds less: the tokens that it finds, and those that the replaced method finds."""


class _Seam(NamedTuple):
    """An override in use on one part, and the method that it replaces; `replaces` is empty if none can be asked."""

    part: Any
    method: str
    name: str
    replaces: str


class Shadow:
    """Calls production's pure decisions beside the overrides of one core, and notes which overrides are called.

    Until `close`, an attribute of the part hides each override; parts without overrides stay unchanged. Production's
    methods are asked first, so that nothing an override does can change their answer. An exception is an answer too.
    After its first different decision an override is asked alone; a look-up that has found less is still compared with
    production's for other requests.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        hooks: Hooks,
        journal: Journal,
        report: Callable[[Difference], object],
        fail: Callable[[Exception], object],
    ) -> None:
        """report: called right after a decision that differs. fail: called with an error of the shadow itself."""
        self.called: dict[str, bool] = {}
        """Per override that was called, True if it has decided otherwise than production."""
        self._report, self._fail = report, fail
        self._reported: set[tuple[str, int | None]] = set()
        self._hidden: list[_Seam] = []
        self._values: list[_Seam] = []
        parts = parts_of(scheduler)
        look_up = getattr(scheduler.manager, "_prefix_lookup", None)
        changes = not getattr(look_up, "changes_nothing", True)
        seams = [seam for part in parts for seam in _seams(part, changed_by_look_ups=changes)]
        if not seams:
            return
        self._production = Production(parts, hooks, journal)
        for seam in seams:
            self._follow(seam)

    def close(self) -> None:
        """Restore the parts. A second call has no effect."""
        for seam in self._hidden:
            vars(seam.part).pop(seam.method, None)
        self._hidden, self._values = [], []

    @property
    def never_called(self) -> tuple[str, ...]:
        """Overridden methods that nothing has called so far."""
        return tuple(dict.fromkeys(seam.name for seam in self._hidden if seam.name not in self.called))

    def settle(self) -> None:
        """Compare the attributes that are decisions, once each has been read."""
        for seam in self._values:
            value = _value(seam)
            if value is not UNKNOWN and seam.name not in self.called:
                self.called[seam.name] = False
                self._compare(seam, (), {}, self._expected(seam, None, {}), value)

    def _follow(self, seam: _Seam) -> None:
        if not is_method(getattr_static(type(seam.part), seam.method)):
            if seam.replaces:
                self._values.append(seam)
        elif seam.method not in vars(seam.part):
            asks = self._judging if seam.method in REFUSALS else self._asking
            hide = asks if seam.replaces else self._noting
            vars(seam.part)[seam.method] = hide(seam, getattr(seam.part, seam.method))
            self._hidden.append(seam)

    def _noting(self, seam: _Seam, override: Callable[..., Any]) -> Callable[..., Any]:
        called, name = self.called, seam.name

        @passes_calls_on
        def note(*arguments: Any, **named: Any) -> Any:
            called.setdefault(name, False)
            return override(*arguments, **named)

        return note

    def _asking(self, seam: _Seam, override: Callable[..., Any]) -> Callable[..., Any]:
        @passes_calls_on
        def ask(*arguments: Any, **named: Any) -> Any:
            if self.called.setdefault(seam.name, False) and seam.method not in LOOK_UPS:
                return override(*arguments, **named)
            expected = self._expected(seam, arguments, named)
            try:
                decided = override(*arguments, **named)
            except Exception as error:
                for refused in refused_answers(error, seam.part, seam.method):
                    self._compare(seam, arguments, named, expected, refused)
                raise
            self._compare(seam, arguments, named, expected, decided)
            return decided

        return ask

    def _judging(self, seam: _Seam, override: Callable[..., Any]) -> Callable[..., Any]:
        """Hide an override that refuses by raising ConfigError: its decision is whether it raises."""

        @passes_calls_on
        def judge(*arguments: Any, **named: Any) -> Any:
            if self.called.setdefault(seam.name, False):
                return override(*arguments, **named)
            answer, _ = self._expected(seam, arguments, named)
            verdict = "refused" if isinstance(answer, ConfigError) else "accepted"
            try:
                override(*arguments, **named)
            except ConfigError:
                self._compare(seam, (), {}, (verdict, verdict), "refused")
                raise
            self._compare(seam, (), {}, (verdict, verdict), "accepted")

        return judge

    # -- asking and comparing ------------------------------------------------------------------------------------------

    @passes_calls_on
    def _expected(
        self, seam: _Seam, arguments: Sequence[object] | None, named: Mapping[str, object]
    ) -> tuple[Any, Any]:
        """Return production's answer and its plain value; for both, the exception that production raised."""
        try:
            if arguments is None:
                answer = self._production.value(seam.part, seam.method)
            else:
                answer = self._production.ask(seam.part, seam.method, arguments, named)
            return answer, plain(answer)
        except Exception as error:
            return error, error

    def _compare(
        self,
        seam: _Seam,
        arguments: Sequence[object],
        named: Mapping[str, object],
        expected: tuple[Any, Any],
        decided: object,
    ) -> None:
        try:
            answer, plain_answer = expected
            request = request_of(arguments, named, decided)
            request_id = None if request is None else request.request_id
            found = None if isinstance(answer, Exception) else _found_less(seam, answer, decided, request)
            is_first = not self.called[seam.name] and differ(plain_answer, plain(decided))
            if is_first or (found is not None and (seam.name, request_id) not in self._reported):
                self.called[seam.name] = True
                self._reported.add((seam.name, request_id))
                words = _said_apart(decided, answer)
                self._report(Difference(seam.name, seam.replaces, *words, request_id, found))
        except Exception as error:
            self._fail(error)


def _found_less(seam: _Seam, answer: Any, decided: Any, request: Any) -> tuple[int, int] | None:
    """Return the tokens that a look-up finds and those that production's finds, if the latter are more.

    None if a policy declares that it may find less. None also for `find_prefix` if production's hits the whole request,
    as some editions may: an override may leave the last token to compute.
    """
    if seam.method not in LOOK_UPS or not getattr(seam.part, "finds_longest", True):
        return None
    size = getattr(seam.part, "block_size", 1)
    less, more = num_found(decided, size), num_found(answer, size)
    is_capped = seam.method == "find_prefix" and request is not None and more == request.num_tokens
    return None if less is None or more is None or less >= more or is_capped else (less, more)


def _said_apart(decided: object, answer: object) -> tuple[str, str]:
    if not isinstance(answer, Exception):
        return said_apart(decided, answer)
    try:
        return said(decided), said(f"an error ({type(answer).__name__}: {answer})")
    except Exception:
        return said(decided), f"an error ({type(answer).__name__})"


# -- the overrides of a part -------------------------------------------------------------------------------------------


def _seams(part: Any, *, changed_by_look_ups: bool) -> Iterator[_Seam]:
    """Yield the public overrides of a part, if its attributes are in a dictionary."""
    if not hasattr(part, "__dict__"):
        return
    cls: type = type(part)
    for one in overrides_of(cls):
        if not one.method.startswith("_") and one.method not in _CALLED_BEFORE:
            yield _Seam(part, one.method, str(one), _replaced(cls, one, changed_by_look_ups=changed_by_look_ups))


def _replaced(cls: type, one: Decider, *, changed_by_look_ups: bool) -> str:
    """Return labengine's method that an override replaces; empty if there is none or it may change something."""
    below = next((owner for owner in definers(cls, one.method) if not is_custom(owner)), None)
    if below is None or not is_pure(one.method, changed_by_look_ups=changed_by_look_ups):
        return ""
    return f"{class_name(below)}.{one.method}"


def _value(seam: _Seam) -> object:
    """Return an attribute that decides; UNKNOWN if not yet computed, or for a property, whose every read decides."""
    own = getattr_static(type(seam.part), seam.method)
    if isinstance(own, cached_property):
        return vars(seam.part).get(seam.method, UNKNOWN)
    return UNKNOWN if hasattr(own, "__get__") else own
