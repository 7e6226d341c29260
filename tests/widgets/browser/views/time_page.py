"""The views of time in a bare page of Chromium, and the runs that they show."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from typing import Any

from browser.bare_pages import BROWSER, BarePage, BarePages
from browser.frames import FRAME
from labengine import Lab
from labengine import events as ev
from labengine_widgets.pages.whole_recording import recording_payload
from widgets.fake_view_source import FakeViewSource

MOUNT = """
async ([data, views]) => {
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  const { mount, internals } = await import("/widget.js");
  Object.assign(window, internals);
  window.stage = await mount(document.getElementById("cell"), bytes, { kind: "view", views });
  window.side = window.stage.sides[0];
}
"""
ROOT = "--jp-layout-color1: #ffffff; --jp-ui-font-color1: #222222"


class Viewed:
    """A page that shows views of a recording, by the widget's own layout for single views."""

    def __init__(self, bare: BarePage, view_source: FakeViewSource, views: list[str], width: int) -> None:
        self.bare, self.page, self.view_source = bare, bare.page, view_source
        page = self.page
        bare.show(f'<body style="{ROOT}"><div id="cell" style="width: {width}px"></div></body>')
        page.evaluate(MOUNT, [base64.b64encode(recording_payload(view_source)).decode(), views])
        page.evaluate("() => { window.side = window.stage.sides[0]; }")
        self.painted()

    def painted(self) -> None:
        self.page.evaluate(FRAME)

    def js(self, script: str, *arguments: Any) -> Any:
        self.painted()
        found = self.page.evaluate(script, list(arguments))
        self.painted()
        return found

    @property
    def moment(self) -> int:
        return int(self.js("() => side.moment"))

    @property
    def selection(self) -> Any:
        return self.js("() => stage.selection")

    def press(self, selector: str, *keys: str) -> None:
        self.page.locator(selector).first.focus()
        for key in keys:
            self.page.keyboard.press(key)
            self.painted()

    def go_to(self, moment: int) -> None:
        self.js("([moment]) => stage.moveTo(moment)", moment)

    def axis(self, name: str) -> dict[str, float]:
        """The axis of a view: left, from, to, perEvent."""
        script = """([at]) => { const { axis } = stage.shows[at].view.board;
            return { left: axis.left, from: axis.from, to: axis.to, perEvent: axis.perEvent }; }"""
        return dict(self.js(script, name))


def busy(num_requests: int = 14, num_blocks: int = 24, seed: int = 1) -> list[ev.Event]:
    """Shared prefixes, a pool that is too small, requests that come while others run."""
    dice = random.Random(seed)
    with Lab("simulated", num_blocks=num_blocks, block_size=4, max_num_seqs=4, max_num_batched_tokens=16) as lab:
        prefix = [dice.randrange(100) for _ in range(12)]
        for _ in range(num_requests):
            tail = [dice.randrange(100) for _ in range(dice.randrange(2, 20))]
            lab.add(token_ids=prefix[: dice.choice([0, 4, 8, 12])] + tail, max_tokens=dice.randrange(3, 18))
            for _ in range(dice.randrange(4)):
                lab.step()
        lab.run()
        assert lab.timeline is not None
        return list(lab.timeline.events())


def with_rollback(events: list[ev.Event], step: int) -> list[ev.Event]:
    """The same run, but that a step was rolled back just before its end, and then done."""
    start = next(i for i, event in enumerate(events) if event == ev.StepStarted(step))
    end = next(i for i, event in enumerate(events) if event == ev.StepEnded(step))
    return [*events[:end], ev.StepRolledBack(step, "KeyboardInterrupt"), *events[start:]]


def speaks_of_request(event: ev.Event, request_id: int) -> bool:
    return getattr(event, "request_id", None) == request_id or request_id in getattr(event, "request_ids", ())


def blocks_of(event: ev.Event) -> set[str]:
    """Ids of the blocks that an event names."""
    ids = [getattr(event, "block_id", None), getattr(event, "into_block_id", None), *getattr(event, "mapped", ())]
    ids += [block_id for group in getattr(event, "block_ids", ()) if isinstance(group, tuple) for block_id in group]
    ids += [run[0] for run in getattr(event, "runs", ())]
    return {str(block_id) for block_id in ids}


def show_views(
    check: Callable[[Viewed], None],
    events: list[ev.Event],
    *views: str,
    words: dict[int, str] | None = None,
    width: int = 1100,
    seconds: dict[int, float] | None = None,
) -> None:
    """Run a check on views of a recording; it must leave no error in the page.

    views: their names; words: texts of tokens; seconds: how long each step took.
    """
    view_source = FakeViewSource(events)
    view_source.words = words or {}
    assert view_source.timeline is not None
    view_source.timeline.step_seconds.clear()
    view_source.timeline.step_seconds.update(seconds or {})

    def run(pages: BarePages) -> None:
        with pages.lent(1440, 800) as bare:
            check(Viewed(bare, view_source, list(views), width))

    BROWSER.run(run)
