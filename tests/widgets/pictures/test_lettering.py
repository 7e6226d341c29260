"""One letter per content: texts, static pictures and the widget agree about one recording."""

from __future__ import annotations

import re

import pytest

import labengine
from labengine import events as ev
from labengine_widgets import block_map, block_map_svg
from labengine_widgets.pictures import lettering
from labengine_widgets.pictures.ascii import content_letters
from recordings import timeline_of
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.pictures.lettered import BEADS, letters_in, two_that_part
from widgets.story_219 import begin, merging_step, schedule_and_forward


def test_letters_come_in_the_order_of_the_events_at_every_moment() -> None:
    with two_that_part() as lab:
        assert lab.timeline is not None
        last = letters_in(repr(lab))
        order = [e.block_id for e in lab.timeline.of_kind(ev.BlockCached)]
        first = {block_id: letter for letter, block_id in zip("pqrstuvwxyz", dict.fromkeys(order), strict=False)}
        assert last == {str(block_id): letter for block_id, letter in first.items()}
        for step in range(1, 15):
            shown = letters_in(repr(lab.goto(step)))
            assert shown.items() <= last.items(), step
        assert list(letters_in(block_map(lab.snapshot())).values()) != list(last.values()), "a snapshot knows no order"


@pytest.mark.browser
def test_text_picture_and_widget_agree() -> None:
    with two_that_part() as lab:
        assert lab.timeline is not None
        events = list(lab.timeline.events())

        def check(view: View) -> None:
            timeline = view.view_source.timeline
            assert timeline is not None
            for step in (5, 9, 12, 14):
                moment = timeline.step_moments(step)[1]
                view.move_to(moment)
                beads = {block: letter for letter, block in view.page.evaluate(BEADS)}
                snapshot = timeline.state(moment).snapshot()
                assert letters_in(block_map(snapshot, timeline)) == beads and len(beads) > 3
                svg = block_map_svg(snapshot, timeline=timeline)
                [line] = re.findall(r"prefix map: ([^<]*)<", svg)
                assert {b: a for a, b in re.findall(r"(\w+) → #(\d+)", line)} == beads

        show_dashboard(check, events)


def test_what_a_step_taken_back_has_brought_keeps_its_letter() -> None:
    """As in the browser: a letter that was seen is not given to anything else."""
    done = merging_step()
    timeline = timeline_of([*begin(), *schedule_and_forward(), ev.StepRolledBack(1, "KeyboardInterrupt"), *done])
    letters = content_letters(timeline.state().snapshot(), timeline)
    assert list(letters.values()) == ["p", "q", "r"]


def test_a_recording_that_restarts_is_lettered_anew() -> None:
    timeline = timeline_of([*begin(), *merging_step()])
    before = content_letters(timeline.state().snapshot(), timeline)
    for event in [*begin(), *merging_step()]:
        timeline.record(event)
    assert content_letters(timeline.state().snapshot(), timeline) == before
    assert list(before.values()) == ["p", "q", "r"]


def test_of_a_recording_too_long_to_walk_everything_still_has_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lettering, "MAX_WALKED", 20)
    with two_that_part() as lab:
        letters = list(letters_in(repr(lab)).values())
    assert "?" not in letters and len(set(letters)) == len(letters)


def test_a_comparison_names_each_side_by_its_own_recording() -> None:
    with labengine.compare("nano-vllm", "nano-vllm+243", num_blocks=12, block_size=4) as comparison:
        for _ in range(2):
            comparison.add(token_ids=list(range(14)), max_tokens=6)
        comparison.run()
        left, right = repr(comparison).split("\n\nnano-vllm+243\n")
        for text, lab in ((left, comparison.left), (right, comparison.right)):
            assert letters_in(text) == letters_in(repr(lab))


def test_contents_that_nothing_holds_any_more_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lab that runs for a day has new contents for ever; those that are there keep their letters."""
    monkeypatch.setattr(lettering, "MAX_NUMBERED", 40)
    with labengine.Lab("simulated", num_blocks=6, block_size=4) as lab:
        assert lab.timeline is not None
        for i in range(60):
            lab.add(token_ids=range(9 * i, 9 * i + 9), max_tokens=2)
            lab.run()
            keys = list(lab.timeline.state().prefix_map)
            before = lettering.numbers_in(lab.timeline, keys)
            assert lettering.numbers_in(lab.timeline, keys) == before and set(before) == set(keys)
        known = lettering._known[lab.timeline]._contents
        assert len(known) <= 40 + 2 * len(keys) and max(before.values()) > 100
