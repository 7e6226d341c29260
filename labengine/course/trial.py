"""Playing a workload with a reader's code, which may raise, loop or break rules; the outcome is a sentence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_origin, get_type_hints

from labengine.config import is_single_int, shown
from labengine.core.editions import LABENGINE, edition
from labengine.core.parts import Parts, given_parts
from labengine.course.alone import MEMORY, begin_run
from labengine.engine.failure import raising_method
from labengine.events import DecisionDiffered, EngineStarted, Event, ViolationFound, entry_of
from labengine.isolation.endings import OF_THE_USER, named
from labengine.isolation.limits import EndlessOperationError, ends_soon
from labengine.lab import Lab
from labengine.session.patch.override import parts_with

Workload = Callable[[Lab], object]
"""Adds requests to a lab and takes steps."""
Act = tuple[str | Sequence[int], int] | int
"""(prompt, max_tokens) adds a request; a number takes that many steps, RUN all of them."""
RUN = -1

_ASKED = {
    ("BlockCached", "mapped"): ("mapped_after", "a tuple of block ids, such as `(3,)`"),
}
"""By event and field: the method that returns the value, and the kind of value it must return."""
_KINDS = {int: "number", list: "list", set: "set", str: "text"}
Ending = Literal["ended", "raised", "broke a rule", "endless", "odd value"]


@dataclass(frozen=True)
class LabMaker:
    """Maker of an exercise's simulated labs. parts: the engine that an answer overrides. settings: keywords of Lab."""

    parts: Parts = LABENGINE
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> LabMaker:
        """Return the maker for keywords of Lab; `edition` or `parts` is the engine to override. Raises ConfigError."""
        others = {name: value for name, value in settings.items() if name not in ("edition", "policy", "parts")}
        base = edition(settings.get("edition", LABENGINE.name), settings.get("policy", "fcfs"))
        if (parts := settings.get("parts")) is not None:
            base = given_parts(parts).overriding(base)
        maker = cls(base, others)
        maker.lab().close()  # wrong settings are refused now
        return maker

    def lab(self, parts: Parts | None = None, **changed: Any) -> Lab:
        """Return an empty lab, with optional changes to the settings.

        The setting `external` may be a function that makes a tier for each lab.
        """
        settings = {"model": "simulated", **self.settings, **changed}
        if callable(settings.get("external")):
            settings["external"] = settings["external"]()
        lab = Lab(**settings, parts=parts or self.parts)
        lab.session.violation_warnings.is_silent = True
        return lab

    def with_override(self, override: object) -> Parts:
        """Return the parts with an answer in place. Raises ConfigError for anything but an override."""
        kinds: Collection[str] = {group.kind for group in self.settings.get("groups") or ()} or {"full"}
        return parts_with(override, self.parts, kinds)


@dataclass(frozen=True)
class Trial:
    """The outcome of one workload. The lab is open until `played` ends.

    problem: a sentence on the fault; empty if there is none. moment: the number of events up to the faulty one; None
    for the end.
    """

    lab: Lab
    ending: Ending = "ended"
    problem: str = ""
    moment: int | None = None

    @property
    def num_events(self) -> int:
        """Number of events of the run."""
        assert self.lab.timeline is not None
        return self.lab.timeline.end

    @property
    def behaviour(self) -> tuple[object, ...]:
        """The ending, and the events except those that name parts or report a check."""
        assert self.lab.timeline is not None
        left_out = (EngineStarted, ViolationFound, DecisionDiffered)
        events = self.lab.timeline.events() if self.ending != "endless" else []
        return (self.ending, *(event for event in events if not isinstance(event, left_out)))


def plays(*acts: Act) -> Workload:
    """Return the workload that does these acts in order. A prompt is a text or a list of token ids."""

    def play(lab: Lab) -> None:
        for act in acts:
            match act:
                case str() as text, max_tokens:
                    lab.add(text, max_tokens=max_tokens, ignore_eos=True)
                case token_ids, max_tokens:
                    lab.add(token_ids=token_ids, max_tokens=max_tokens, ignore_eos=True)
                case num_steps:
                    lab.run() if num_steps == RUN else lab.step(num_steps)

    return play


@contextmanager
def played(maker: LabMaker, parts: Parts, workload: Workload) -> Iterator[Trial]:
    """Play a workload on a new lab with these parts; the lab closes at the end of the block."""
    with maker.lab(parts) as lab:
        yield trial_of(lab, workload)


def trial_of(lab: Lab, workload: Workload) -> Trial:
    """Play a workload on a lab. A part's exception, an endless loop or a broken rule becomes the trial's problem."""
    begin_run("a workload")
    try:
        with ends_soon():
            workload(lab)
    except EndlessOperationError as error:
        return Trial(lab, "endless", f"It does not end: {error}, {after_event(lab)}.")
    except OF_THE_USER:
        raise
    except BaseException as error:
        return _with_odd_value(lab) or _raised(lab, error)
    return _with_odd_value(lab) or _judged(lab)


def _with_odd_value(lab: Lab) -> Trial | None:
    """Return the trial of an answer whose return value fits no event, up to the first such event."""
    assert lab.timeline is not None
    for number, event in enumerate(lab.timeline.events(), lab.timeline.num_dropped):
        for name, value in _odd_fields(event):
            return Trial(lab, "odd value", _said_of(type(event).__name__, name, value), number)
    return None


def _odd_fields(event: Event) -> Iterator[tuple[str, Any]]:
    for name, hint in _checked_fields(type(event)):  # type: ignore[arg-type]
        value = getattr(event, name)
        if not (is_single_int(value) if hint is int else _is_tuple(value, hint)):
            yield name, value


@cache
def _checked_fields(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Return the fields to check, with their types."""
    hints = get_type_hints(kind).items()
    return tuple((name, hint) for name, hint in hints if hint is int or get_origin(hint) is tuple)


def _is_tuple(value: object, hint: Any) -> bool:
    return isinstance(value, tuple) and (hint != tuple[int, ...] or all(map(is_single_int, value)))


def _said_of(event: str, field: str, value: object) -> str:
    yours = f"the {_KINDS[type(value)]} {shown(value)}" if type(value) in _KINDS else shown(value)
    if (event, field) in _ASKED:
        method, asked = _ASKED[event, field]
        return f"`{method}` must return {asked}; yours returned {yours}."
    return f"A method must return a value that {event}.{field} can hold; yours returned {yours}."


def _raised(lab: Lab, error: BaseException) -> Trial:
    crash = lab.crash
    more = f" It uses more than {MEMORY} of memory." if isinstance(error, MemoryError) else ""
    more = more if isinstance(error, Exception) else " That ends the process."
    if crash is None:
        raised = raising_method(error)
        return Trial(lab, "raised", f"It raises {named(error)} (in {raised}), {after_event(lab)}.{more}")
    text = f"{str(crash)[0].upper()}{str(crash)[1:]}, {after_event(lab, crash.moment)}.{more}"
    return Trial(lab, "raised", text, crash.moment)


def _judged(lab: Lab) -> Trial:
    known = [violation for violation in lab.violations if violation.first_event is not None]
    if not known:
        return Trial(lab)
    first = min(known, key=lambda violation: violation.first_event or 0)
    number = first.first_event or 0
    text = f"{event_name(lab, number, with_method=True)} breaks the rule “{first.rule}”: {first.message}."
    return Trial(lab, "broke a rule", text[0].upper() + text[1:], number + 1)


def event_at(lab: Lab, number: int) -> Event:
    """Return the event of this number."""
    assert lab.timeline is not None
    return lab.timeline.events(number, number + 1)[0]


def event_name(lab: Lab, number: int, *, with_method: bool = False) -> str:
    """Return "event 12 (BlockFreed)". with_method: also name the replaced method that decided it, if any."""
    event = event_at(lab, number)
    seam = entry_of(lab.view_source().seams(), event) if with_method else None
    decided = ""
    if seam is not None and seam["base"]:  # the engine's own methods are right, so none of them is the cause
        decided = f", decided by {seam['class']}.{seam['seam'].rpartition('.')[2]}"
    return f"event {number} ({type(event).__name__}{decided})"


def after_event(lab: Lab, moment: int | None = None) -> str:
    """Return "after event 12 (BlockFreed)": the last event before a moment (default: now)."""
    assert lab.timeline is not None
    end = lab.timeline.end if moment is None else moment
    return "before the first event" if end <= lab.timeline.num_dropped else f"after {event_name(lab, end - 1)}"


def picture_of(lab: Lab, moment: int | None) -> str:
    """Return the block tables and the pool at a moment, as SVG."""
    from labengine_widgets.pictures.svg import block_map_svg  # for views only

    timeline = lab.timeline
    assert timeline is not None
    snapshot = timeline.state(timeline.end if moment is None else moment).snapshot()
    return block_map_svg(snapshot, lab.token_text, lab.title, timeline)
