"""The dashboard widget: a lab's pool, tables, map and queue, played event by event, with the controls to step it."""

from __future__ import annotations

import json
from concurrent.futures import CancelledError, Future
from typing import Any

import anywidget
import traitlets

from labengine_widgets.ascii import block_map
from labengine_widgets.bench import Bench
from labengine_widgets.browser import css, esm
from labengine_widgets.publisher import Message, Publisher
from labengine_widgets.svg import block_map_svg

MAX_SNAPSHOT = 100_000
"""Characters of state that a saved notebook keeps per dashboard."""

MAX_PROMPT = 200_000
"""Characters of a prompt that the box sends."""

_WISHES: dict[str, tuple[str, ...]] = {
    "step": (),
    "phase": (),
    "start": (),
    "pause": (),
    "reset": (),
    "abort": ("request_id",),
    "add": ("prompt", "copies", "max_tokens"),
}


class Dashboard(anywidget.AnyWidget):
    """A live view of one lab; any number of them may watch the same one.

    It hears the lab's events and posts wishes to it, and touches nothing else. Displayed twice it is one dashboard seen
    twice. `close()` ends it: the subscription, the publishing thread and the widget.
    """

    _esm = esm()
    _css = css()
    snapshot = traitlets.Unicode("").tag(sync=True)
    """The full state as JSON, refreshed when the lab comes to rest: for late views and saved notebooks."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self._publisher = Publisher(bench, self.send, self._rest)
        self._rest()
        self.on_msg(self._receive)
        self._publisher.start()

    def close(self) -> None:
        """Stop watching. The lab goes on; twice is harmless."""
        self._publisher.close()
        super().close()

    def open_at(self, moment: int) -> None:
        """Show the state right after event number `moment` of the timeline; from there the reader goes back and forth.

        Until the lab moves on. A moment that is not recorded any more shows the state now.
        """
        self._publisher.open_at(moment)

    def _rest(self) -> None:
        self.snapshot = bounded_json(self._publisher.full(), MAX_SNAPSHOT)

    def _receive(self, _widget: object, content: object, _buffers: object) -> None:
        """A message from the browser, on whatever thread: post it, and let the Future speak."""
        if not isinstance(content, dict):
            return
        if content.get("type") == "resync":
            self._publisher.resync(str(content.get("view")))
        elif content.get("type") == "wish":
            self._wish(content)

    def _wish(self, content: dict[str, Any]) -> None:
        action, view = content.get("action"), str(content.get("view"))
        try:
            if not isinstance(action, str) or action not in _WISHES:
                raise ValueError(f"the dashboard knows no action {action!r}; it knows {', '.join(_WISHES)}")
            arguments = {name: content.get(name) for name in _WISHES[action]}
            if action == "add":
                _require_prompt(arguments)
            future = self.bench.post(action, **arguments)
        except Exception as error:
            self._answer(action, view, error)
        else:
            future.add_done_callback(lambda done: self._answer(action, view, _error_of(done)))

    def _answer(self, action: object, view: str, error: BaseException | None) -> None:
        message: Message = {"type": "answer", "action": action, "view": view, "error": None}
        if error is not None:
            message["error"] = str(error) or type(error).__name__
        self._publisher.say(message)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        snapshot = self.bench.fold().snapshot()
        data["text/plain"] = block_map(snapshot)
        data["image/svg+xml"] = block_map_svg(snapshot, self.bench.token_text, title=self.bench.title)
        return data, metadata


def _error_of(done: Future[Any]) -> BaseException | None:
    try:
        return done.exception()
    except CancelledError as error:
        return error


def _require_prompt(arguments: dict[str, Any]) -> None:
    """Refuse what no form should send; the lab judges the rest."""
    prompt, copies, max_tokens = arguments["prompt"], arguments["copies"], arguments["max_tokens"]
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("The prompt is empty: type some text first.")
    if len(prompt) > MAX_PROMPT:
        raise ValueError(f"The prompt has {len(prompt)} characters, and the box takes {MAX_PROMPT}: use lab.add.")
    for name, value, most in (("copies", copies, 64), ("max tokens", max_tokens, 1_000_000)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"{name} must be a whole number from 1 to {most}, not {value!r}.")


def bounded_json(message: Message, limit: int) -> str:
    """A full state as JSON of about `limit` characters: the replay goes first, then text, then blocks, counted."""
    text = _compact(message)
    if len(text) <= limit:
        return text
    message = {name: part for name, part in message.items() if name != "replay"}
    text = _compact(message)
    if len(text) <= limit:
        return text
    frame = message["frame"]
    cells = [[*cell[:6], []] for cell in frame["blocks"]]
    rows = [{name: part for name, part in row.items() if name != "texts"} for row in frame["rows"]]
    frame = frame | {"rows": rows, "blocks": cells, "omitted": 0}
    text = _compact(message | {"frame": frame})
    if len(text) > limit:
        each = len(_compact({"blocks": cells})) / max(1, len(cells))
        kept = max(0, len(cells) - int((len(text) - limit) / each) - 2)
        rows = [row | {"table": row.get("table", [])[:64]} for row in rows]
        frame = frame | {"rows": rows, "map": frame["map"][-64:], "blocks": cells[:kept], "omitted": len(cells) - kept}
        text = _compact(message | {"frame": frame})
    return text


def _compact(message: Message) -> str:
    return json.dumps(message, separators=(",", ":"))
