"""Drafts in the pool: guesses are set apart until they are judged, and what rejected ones leave is hatched."""

from __future__ import annotations

import pytest

from labengine import events as ev
from widgets.browser.views.mounted_view import MountedView, show_view
from widgets.words.test_kinds_of_state import speculating

pytestmark = pytest.mark.browser

BLOCKS = """() => {
  const { scene } = window.mounted.stage.sides[0];
  return Object.fromEntries([1, 3, 4, 5].map((id) => [id, scene.block(id)]).filter(([, b]) => b.garbage || b.numGuessed)
    .map(([id, { garbage, numGuessed }]) => [id, garbage ?? numGuessed]));
}"""
"""By block: its slots of garbage, or else how many of its tokens are guesses."""


def recording() -> list[ev.Event]:
    """Three steps: the third writes over what the second has left."""
    with speculating() as lab:
        lab.step()
        assert lab.timeline is not None
        return list(lab.timeline.events())


def test_guesses_become_tokens_or_garbage_until_it_is_written_over() -> None:
    events = recording()
    seen: list[tuple[str, dict[str, object]]] = []

    def check(mounted: MountedView) -> None:
        for moment in range(1, len(events) + 1):
            mounted.at(moment)
            now = mounted.page.evaluate(BLOCKS)
            if now != (seen[-1][1] if seen else {}):
                seen.append((type(events[moment - 1]).__name__, now))
        for moment, (_, last) in ((len(events), seen[-1]), (len(events) - 1, seen[-1])):
            mounted.at(0)
            mounted.at(moment)  # a jump
            assert mounted.page.evaluate(BLOCKS) == last
        for theme in ("light", "dark"):
            mounted.picture("drafts", theme)

    show_view(check, "pool", events)
    assert seen[:7] == [
        ("SlotsWritten", {"4": 4}),
        ("SlotsWritten", {"3": 2, "4": 4, "5": 2}),
        ("DraftsJudged", {"3": 2, "4": [2, 4], "5": 2}),
        ("DraftsJudged", {"3": [2, 4], "4": [2, 4], "5": [0, 2]}),
        ("RequestScheduled", {"3": [2, 4], "5": [0, 2]}),
        ("RequestScheduled", {}),
        ("SlotsWritten", {"4": 1}),
    ]
