"""A recording as a pandas frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.engine.interrupts import interrupts_deferred
from labengine.events import EVENT_KINDS, Event, StepStarted
from labengine.record.phases import phase_after
from labengine.record.timeline import Timeline
from labengine.system.extras import how_to_install

if TYPE_CHECKING:
    import pandas

FIRST_COLUMNS = ("request_id", "block_id", "group")


def events_frame(timeline: Timeline | None) -> pandas.DataFrame:
    """Return one row per event, in order.

    event: its number in the recording. step: the step it belongs to, or the last one before it; 0 before any. phase:
    schedule, forward, sample or update; None between steps. kind: the event's class. Then the events' fields, missing
    if an event has no such field: integers stay integers (Int64), hashes are hex, sequences are tuples.
    ConfigError without pandas or a recording.
    """
    if timeline is None:
        raise ConfigError("this lab has no recording: make it with record=True to have its events as a frame")
    pandas = _pandas()
    first, state, events = timeline.kept()
    steps, phases = _steps_and_phases(state.step, events)
    columns: dict[str, list[Any]] = {
        "event": list(range(first, first + len(events))),
        "step": steps,
        "phase": phases,
        "kind": [type(event).__name__ for event in events],
        **_field_columns(events),
    }
    return pandas.DataFrame({name: _column(pandas, values) for name, values in columns.items()})


def _pandas() -> Any:
    try:
        with interrupts_deferred():  # a module whose import was interrupted stays broken
            return import_module("pandas")
    except ImportError:
        raise ConfigError(f"a frame of events needs pandas: {how_to_install('lab')}") from None


def _steps_and_phases(step: int, events: Sequence[Event]) -> tuple[list[int], list[str | None]]:
    steps: list[int] = []
    phases: list[str | None] = []
    phase = None
    for event in events:
        if type(event) is StepStarted:
            step = event.step
        phase = phase_after(event, phase)
        steps.append(step)
        phases.append(phase)
    return steps, phases


def _field_columns(events: Sequence[Event]) -> dict[str, list[Any]]:
    """Return a column for every field of these events except `step`, which the frame already has."""
    names = {kind: [f.name for f in fields(kind) if f.name != "step"] for kind in dict.fromkeys(map(type, events))}
    present = dict.fromkeys(chain.from_iterable(names[kind] for kind in EVENT_KINDS if kind in names))
    columns: dict[str, list[Any]] = {name: [None] * len(events) for name in {**dict.fromkeys(FIRST_COLUMNS), **present}}
    for i, event in enumerate(events):
        for name in names[type(event)]:
            value = getattr(event, name)
            columns[name][i] = value.hex() if isinstance(value, bytes) else value
    return columns


def _column(pandas: Any, values: list[Any]) -> Any:
    """Return a column of integers or booleans with gaps as such, and any other as Python objects."""
    kinds = set(map(type, values)) - {NoneType}
    name = "Int64" if kinds <= {int} else "boolean" if kinds == {bool} else "object"
    return pandas.Series(values, dtype=name)
