"""Messages of browser halves: questions with answers, the shown moment, the selection, and commands for the lab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from labengine.record.timeline import Timeline
from labengine_widgets.feed.payload import Payload, packed, step_start, stretch
from labengine_widgets.feed.shown_state import ShownState
from labengine_widgets.feed.viewers import Viewer, Viewers
from labengine_widgets.selection import Selection, is_selection, selection_of
from labengine_widgets.view_source import ViewSource
from labengine_widgets.why import answer
from labengine_widgets.words.captions import Caption, caption_rows

Message = dict[str, Any]

OLDER_EVENTS = 20_000
"""Approximate number of events sent at once to a view that goes back beyond those it has."""


class AskedFeed(Protocol):
    """The parts of a feed that answers need."""

    view_source: ViewSource
    shown: ShownState
    on_select: Callable[[Selection | None], object]
    on_moment_shown: Callable[[int | None], object]

    @property
    def recording(self) -> Timeline: ...
    def captions(self, start: int, end: int) -> list[Caption]: ...


# -- questions ---------------------------------------------------------------------------------------------------------


def older(feed: AskedFeed, message: Message) -> Payload:
    """Return the events before a moment, from the start of a step on."""
    timeline = feed.recording
    before = moment_of(message.get("before"), timeline)
    start = step_start(timeline, max(timeline.num_dropped, before - OLDER_EVENTS))
    events, state = timeline.events(start, before), timeline.state(start)
    return stretch(feed.view_source, timeline, start, events, state) | {"end": before}


def captions(feed: AskedFeed, message: Message) -> Payload:
    """Return the captions between two moments."""
    start, end = moment_of(message.get("start"), feed.recording), moment_of(message.get("end"), feed.recording)
    return {"start": start, "end": end, "captions": caption_rows(feed.captions(start, end))}


def why(feed: AskedFeed, message: Message) -> Payload:
    """Return the chain of events that explains why something is as it is."""
    found = answer(feed.view_source, feed.recording, message.get("subject") or {}, message.get("moment"))
    return {"id": message.get("id"), "answer": found}


ANSWERS: dict[str, Callable[[AskedFeed, Message], Payload]] = {"older": older, "captions": captions, "why": why}


def reply(feed: AskedFeed, viewer: Viewer, side: int, message: Message) -> None:
    """Answer a question; its type is one of ANSWERS."""
    payload = ANSWERS[message["type"]](feed, message)
    content = {"type": message["type"], "side": side, "view": message.get("view"), "id": message.get("id")}
    viewer.send(content, [packed(payload)])


def moment_of(asked: object, timeline: Timeline) -> int:
    """Return the nearest recorded moment to one that a browser asks for; the newest one for anything but an int."""
    moment = asked if isinstance(asked, int) and not isinstance(asked, bool) else timeline.end
    return max(timeline.num_dropped, min(moment, timeline.end))


def is_moment(value: object, timeline: Timeline) -> bool:
    """True for a moment that the recording has."""
    return isinstance(value, int) and not isinstance(value, bool) and timeline.num_dropped <= value <= timeline.end


# -- the shown moment and the selection --------------------------------------------------------------------------------


def is_outdated(num_heard: object, newest: int) -> bool:
    """True if a view has not heard of the newest time that Python set what the view reports."""
    return isinstance(num_heard, int) and num_heard < newest


def note_moment(feed: AskedFeed, message: Message) -> None:
    """Note the moment that a view shows; None: the newest one. One that is outdated or not recorded is ignored."""
    if is_outdated(message.get("num_shows"), feed.shown.num_shows):
        return
    moment = message.get("moment")
    if moment is None or is_moment(moment, feed.recording):
        feed.shown.moment = moment
        feed.on_moment_shown(moment)


def note_selection(feed: AskedFeed, viewers: Viewers, message: Message) -> None:
    """Copy a selection made in one view to all views. One that is outdated or impossible is ignored."""
    is_late = is_outdated(message.get("num_selects"), feed.shown.num_selects)
    if is_late or not is_selection(message.get("selection")):
        return
    selection = feed.shown.selection = selection_of(message.get("selection"))
    sent = selection and selection.to_dict()
    viewers.send({"type": "select", "selection": sent, "from": message.get("view")})
    feed.on_select(selection)


# -- commands ----------------------------------------------------------------------------------------------------------

MAX_PROMPT = 200_000
"""Maximum length, in characters, of a prompt from the form."""

MAX_ANSWERS, MAX_PRIORITY = 16, 1_000
"""Maximum of answers to a prompt, and of a priority above or below 0, from the form."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "step": (),
    "phase": (),
    "start": (),
    "pause": (),
    "reset": (),
    "add": ("prompt", "copies", "max_tokens", "n", "beams", "priority"),
    "predict": ("prediction",),
    "wish": ("wish",),
}


def checked_command(content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the action and its arguments. Raises ValueError for an unknown action and for invalid arguments."""
    action = content.get("action")
    if not isinstance(action, str) or action not in COMMANDS:
        raise ValueError(f"the dashboard knows no action {action!r}; it knows {', '.join(COMMANDS)}")
    arguments = {name: content.get(name) for name in COMMANDS[action]}
    if action == "add":
        _require_prompt(arguments)
    if action == "predict" and not isinstance(arguments["prediction"], str):
        _require_number("a prediction", arguments["prediction"], 0, 10**9)
    return action, arguments


def _require_prompt(arguments: dict[str, Any]) -> None:
    """Raise ValueError for a prompt that the form cannot have sent; the lab checks the rest."""
    prompt = arguments["prompt"]
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("The prompt is empty: type some text first.")
    if len(prompt) > MAX_PROMPT:
        raise ValueError(f"The prompt has {len(prompt)} characters, and the box takes {MAX_PROMPT}: use lab.add.")
    _require_number("copies", arguments["copies"], 1, 64)
    _require_number("max tokens", arguments["max_tokens"], 1, 1_000_000)
    _require_number("n", arguments["n"], 1, MAX_ANSWERS)
    _require_number("beams", arguments["beams"], 1, MAX_ANSWERS)
    _require_number("priority", arguments["priority"], -MAX_PRIORITY, MAX_PRIORITY)


def _require_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}.")
