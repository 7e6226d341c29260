"""What a browser half may ask of a lab, checked before anybody acts on it."""

from __future__ import annotations

from typing import Any

MAX_PROMPT = 200_000
"""Characters of a prompt that the box sends."""

WISHES: dict[str, tuple[str, ...]] = {
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


def checked_wish(content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The action and its arguments. ValueError for an action that is unknown, and for what no form should send."""
    action = content.get("action")
    if not isinstance(action, str) or action not in WISHES:
        raise ValueError(f"the dashboard knows no action {action!r}; it knows {', '.join(WISHES)}")
    arguments = {name: content.get(name) for name in WISHES[action]}
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
