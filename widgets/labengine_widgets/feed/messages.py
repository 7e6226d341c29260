"""What a browser half may ask of a feed or of a lab: answers, and commands that are checked before they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from labengine.timeline import Timeline
from labengine_widgets.feed.payload import Payload, step_start, stretch
from labengine_widgets.view_source import ViewSource
from labengine_widgets.why import answer

OLDER_EVENTS = 20_000
"""Events that are sent at once, about, to who goes back beyond what there is."""


class AskedFeed(Protocol):
    """What an answer takes from a feed."""

    view_source: ViewSource

    @property
    def recording(self) -> Timeline: ...
    def signed_captions(self, start: int, end: int) -> Any: ...


def older(feed: AskedFeed, message: dict[str, Any]) -> Payload:
    """The recording before a moment, from a step's start on."""
    timeline = feed.recording
    before = moment_of(message.get("before"), timeline)
    start = step_start(timeline, max(timeline.num_dropped, before - OLDER_EVENTS))
    events, state = timeline.events(start, before), timeline.state(start)
    return stretch(feed.view_source, timeline, start, events, state) | {"end": before}


def captions(feed: AskedFeed, message: dict[str, Any]) -> Payload:
    """The beats between two moments."""
    start, end = moment_of(message.get("start"), feed.recording), moment_of(message.get("end"), feed.recording)
    return {"start": start, "end": end, "captions": feed.signed_captions(start, end)}


def why(feed: AskedFeed, message: dict[str, Any]) -> Payload:
    """The chain of events that answers why something is as it is."""
    found = answer(feed.view_source, feed.recording, message.get("subject") or {}, message.get("moment"))
    return {"id": message.get("id"), "answer": found}


ANSWERS: dict[str, Callable[[AskedFeed, dict[str, Any]], Payload]] = {"older": older, "captions": captions, "why": why}


def moment_of(asked: object, timeline: Timeline) -> int:
    """A moment that a browser asks for, within what is kept."""
    moment = asked if isinstance(asked, int) and not isinstance(asked, bool) else timeline.end
    return max(timeline.num_dropped, min(moment, timeline.end))


def is_moment(value: object, timeline: Timeline) -> bool:
    """True for a moment of the recording that is kept."""
    return isinstance(value, int) and not isinstance(value, bool) and timeline.num_dropped <= value <= timeline.end


MAX_PROMPT = 200_000
"""Characters of a prompt that the box sends."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "step": (),
    "phase": (),
    "start": (),
    "pause": (),
    "reset": (),
    "abort": ("request_id",),
    "add": ("prompt", "copies", "max_tokens"),
    "goto": ("step",),
    "rewind": ("step",),
    "fork": ("step",),
}


def checked_command(content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The action and its arguments. ValueError for an action that is unknown, and for what no form should send."""
    action = content.get("action")
    if not isinstance(action, str) or action not in COMMANDS:
        raise ValueError(f"the dashboard knows no action {action!r}; it knows {', '.join(COMMANDS)}")
    arguments = {name: content.get(name) for name in COMMANDS[action]}
    if action == "add":
        _require_prompt(arguments)
    if "step" in arguments:
        _require_number("step", arguments["step"], 0, 10**9)
    return action, arguments


def _require_prompt(arguments: dict[str, Any]) -> None:
    """Refuse what no form should send; the lab judges the rest."""
    prompt = arguments["prompt"]
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("The prompt is empty: type some text first.")
    if len(prompt) > MAX_PROMPT:
        raise ValueError(f"The prompt has {len(prompt)} characters, and the box takes {MAX_PROMPT}: use lab.add.")
    _require_number("copies", arguments["copies"], 1, 64)
    _require_number("max tokens", arguments["max_tokens"], 1, 1_000_000)


def _require_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, not {value!r}.")
