"""One view's end of the protocol with its browser halves, whatever carries the messages."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from typing import Any

from labengine_widgets.feed.feed import Feed
from labengine_widgets.feed.viewers import Viewer


class BrowserLink(Viewer):
    """Receives the messages of a view's browser halves: commands go to the lab, all else to the feed of its side."""

    feeds: list[Feed]
    """The feed of each side: one, or two in a comparison."""

    def receive(self, content: object) -> None:
        """Post a message of the browser, on any thread; the Future of the post reports errors."""
        if not isinstance(content, dict):
            return
        kind, side = content.get("type"), content.get("side") or 0
        if not isinstance(kind, str) or type(side) is not int or side not in range(len(self.feeds)):
            return
        if kind == "command":
            self._run_command(self.feeds[side], content)
        else:
            self.feeds[side].receive(self, side, content)

    # -- commands ------------------------------------------------------------------------------------------------------

    def _run_command(self, feed: Feed, content: dict[str, Any]) -> None:
        try:
            future = self._post_command(feed, content)
        except Exception as error:
            self._answer(feed, content, error)
        else:
            future.add_done_callback(lambda done: self._answer(feed, content, _error_of(done)))

    def _post_command(self, feed: Feed, content: dict[str, Any]) -> Future[Any]:
        """Post a command of the browser half to the lab. Raises an exception for an unknown command."""
        action, arguments = checked_command(content)
        return feed.view_source.post(action, **arguments)

    def _answer(self, feed: Feed, content: dict[str, Any], error: BaseException | None) -> None:
        message = {"type": "answer", "action": content.get("action"), "view": str(content.get("view")), "error": None}
        if error is not None:
            message["error"] = str(error) or type(error).__name__
        feed.publish_soon()
        feed.say(message)


def _error_of(done: Future[Any]) -> BaseException | None:
    try:
        return done.exception()
    except CancelledError as error:
        return error


# -- commands, checked -------------------------------------------------------------------------------------------------

MAX_PROMPT = 200_000
"""Maximum length, in characters, of a prompt from the form."""

MAX_ANSWERS, MAX_PRIORITY = 16, 1_000
"""From the form: maximum number of answers to a prompt, and maximum distance of a priority from 0."""

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
        raise ValueError(f"the dashboard has no action {action!r}; it has {', '.join(COMMANDS)}")
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
        raise ValueError(
            f"The prompt has {len(prompt)} characters, but this field takes at most {MAX_PROMPT}: use lab.add."
        )
    _require_number("copies", arguments["copies"], 1, 64)
    _require_number("max tokens", arguments["max_tokens"], 1, 1_000_000)
    _require_number("n", arguments["n"], 1, MAX_ANSWERS)
    _require_number("beams", arguments["beams"], 1, MAX_ANSWERS)
    _require_number("priority", arguments["priority"], -MAX_PRIORITY, MAX_PRIORITY)


def _require_number(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}.")
