"""The stage's state machines, as tables: what a mode, a play and a question become."""

from __future__ import annotations

from typing import Any

import pytest

from widgets.browser.model.model_page import ModelPage

pytestmark = pytest.mark.browser

Table = dict[str, dict[str, str]]


def table(page: ModelPage, name: str) -> Table:
    found: Table = page.evaluate("(name) => model[name]", name)
    return found


def run(states: Table, start: str, *events: str) -> str:
    for event in events:
        start = states[start].get(event, start)
    return start


@pytest.mark.parametrize("name", ["MODES", "PLAY_STATES", "ASK_STATES"])
def test_every_transition_leads_to_a_state_of_the_table(page: ModelPage, name: str) -> None:
    states = table(page, name)
    assert {after for row in states.values() for after in row.values()} <= states.keys()


def test_a_reader_who_went_back_stays_while_the_lab_rests(page: ModelPage) -> None:
    modes = table(page, "MODES")
    assert run(modes, "loading", "ready", "openedAtEnd") == "resting"
    assert run(modes, "resting", "wentBack", "labRested") == "reading"
    assert run(modes, "reading", "wentToEnd") == "attached", "and goes along when the lab goes on"
    assert run(modes, "attached", "labMoved", "labRested") == "resting"


def test_only_a_recording_ends_loading(page: ModelPage) -> None:
    modes = table(page, "MODES")
    assert set(modes["loading"]) == {"ready", "openedAtEnd", "openedAtMoment"}
    assert all("loading" not in row.values() for row in modes.values())


def test_where_python_puts_a_view_it_stays_until_the_lab_goes_on(page: ModelPage) -> None:
    modes = table(page, "MODES")
    assert run(modes, "opened", "placed") == "attached"
    assert run(modes, "opened", "placed", "labMoved") == "following"


def test_a_play_is_held_and_taken_up_again(page: ModelPage) -> None:
    states = table(page, "PLAY_STATES")
    assert run(states, "idle", "hold") == "held"
    assert run(states, "held", "start", "hold", "start", "stop") == "idle"


@pytest.mark.parametrize(
    ("events", "state"),
    [
        (["ask", "ask"], "asked"),
        (["ask", "answer"], "answered"),
        (["ask", "askSurely", "answer"], "asked"),
        (["ask", "askSurely", "silence", "answer"], "asked"),
        (["ask", "silence"], "answered"),
    ],
)
def test_what_was_missed_while_asking_is_asked_for_again(page: ModelPage, events: list[str], state: Any) -> None:
    assert run(table(page, "ASK_STATES"), "answered", *events) == state
