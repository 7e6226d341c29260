"""Why two recordings of the same requests part: the seam's reason on both sides of the first difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from labengine import events as ev
from labengine_widgets.apart import told_apart
from labengine_widgets.configuration import told_configurations
from labengine_widgets.names import readable
from labengine_widgets.why.answer import Why
from labengine_widgets.why.past import Past, Recording, Seams
from labengine_widgets.why.tellings import tell, variant

Names = tuple[str, str]


def why_parted(
    left: Recording,
    right: Recording,
    left_event: int | None,
    right_event: int | None,
    seams: tuple[Seams | None, Seams | None] = (None, None),
    names: Names = ("the left one", "the right one"),
) -> Why:
    """The first decision that differs, on both sides, with its method, and in what the two were made differently.

    left_event, right_event: their numbers; None for a side that has no event there. names: how to call the two.
    """
    pasts = Past(left, None, seams[0]), Past(right, None, seams[1])
    numbers = left_event, right_event
    events = [None if n is None else past.event(n) for past, n in zip(pasts, numbers, strict=True)]
    question = f"Why do {names[0]} and {names[1]} part here?"
    links = tuple(
        replace(past.link(n), side=side)
        for side, (past, n) in enumerate(zip(pasts, numbers, strict=True))
        if n is not None
    )
    told = _found(pasts, numbers, names) or _sides(events, names)
    parts = told, _decision(events, seams, names), told_configurations(left, right, names)
    return Why(question, " ".join(filter(None, parts)), links)


def why_not_parted(left: Recording, right: Recording, names: Names) -> Why:
    """What is to be said of two that have decided the same so far."""
    steps = max(left.state().step, right.state().step)
    told = f"They have not parted: both have done the same, event by event, {_until(steps)}."
    configurations = told_configurations(left, right, names)
    return Why(f"Why do {names[0]} and {names[1]} part?", f"{told} {configurations}".strip())


def _until(steps: int) -> str:
    return f"up to step {steps}" if steps else "and no step has been taken yet"


def _found(pasts: tuple[Past, Past], numbers: tuple[int | None, int | None], names: Names) -> str:
    """Where both do the same by their events, and the checks have found that one of them does not."""
    told = [
        f"{name}: {readable(one.message, 300)}."
        for past, number, name in zip(pasts, numbers, names, strict=True)
        for one in past.found
        if number is not None and one.first_event == number
    ]
    return f"By their events both do the same here, but the checks found: {' '.join(told[:2])}" if told else ""


def _sides(events: list[ev.Event | None], names: Names) -> str:
    left, right = ("nothing of the kind happens." if event is None else tell(event) for event in events)
    if events[0] is not None and events[1] is not None:
        left, right = told_apart((left, right), events[:1], events[1:])  # type: ignore[arg-type]
    return f"{names[0]}: {left} {names[1]}: {right}"


def _decision(events: list[ev.Event | None], seams: tuple[Seams | None, Seams | None], names: Names) -> str:
    """The first method, among those that had a say, that the two have differently."""
    left, right = (_by_name(event_seams) for event_seams in seams)
    for name in dict.fromkeys(_asked(events, seams)):
        one, other = left.get(name), right.get(name)
        if one and other and one["source"] != other["source"]:
            sides = zip(names, (one, other), strict=True)
            told = "; ".join(
                f"{who} has {m['class']}.{name.partition('.')[2]} ({str(m['reason']).rstrip('.')})" for who, m in sides
            )
            return f"The decision is {name}: {told}."
    return ""


def _asked(events: list[ev.Event | None], seams: tuple[Seams | None, Seams | None]) -> Iterator[str]:
    """The seams of both events, the deciding ones before those that had a say."""
    found = [seam for event in events if event is not None for told in seams if (seam := _seam(told, event))]
    yield from (str(seam["seam"]) for seam in found)
    for seam in found:
        yield from (str(method["seam"]) for method in seam.get("methods", ()))


def _seam(seams: Seams | None, event: ev.Event) -> Mapping[str, Any] | None:
    kind = type(event).__name__
    return (seams or {}).get(f"{kind}:{variant(event)}") or (seams or {}).get(kind)


def _by_name(seams: Seams | None) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for seam in (seams or {}).values():
        for method in (seam, *seam.get("methods", ())):
            found.setdefault(str(method["seam"]), method)
    return found
