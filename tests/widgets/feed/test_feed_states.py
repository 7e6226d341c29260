"""The state machines of a feed: every state can be reached and left, and a few rules that the tables must keep."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest

from labengine import events as ev
from labengine_widgets.feed.states import TRANSITIONS, Sending, Sent, state_after
from labengine_widgets.feed.steps import STEP_TRANSITIONS, NewestStep, StepSignal, StepTracker


@pytest.mark.parametrize(("states", "table"), [(Sent, TRANSITIONS), (NewestStep, STEP_TRANSITIONS)])
def test_every_state_has_a_way_to_every_other(states: type[Enum], table: Mapping[Any, Mapping[Any, Any]]) -> None:
    assert set(table) == set(states)
    for start in states:
        reached = {start}
        for _ in states:
            reached |= {after for state in reached for after in table[state].values()}
        assert reached == set(states)


@pytest.mark.parametrize("sending", Sending)
def test_nothing_but_captions_ends_following(sending: Sending) -> None:
    ends = {Sending.EVENTS_BY_HAND, Sending.LAST_STEP}
    assert (state_after(TRANSITIONS, Sent.FOLLOWED, sending) is Sent.FOLLOWED) == (sending not in ends)


@pytest.mark.parametrize("sending", [one for one in Sending if one not in (Sending.SAVING, Sending.LAST_STEP)])
def test_whatever_is_sent_is_to_be_saved(sending: Sending) -> None:
    assert state_after(TRANSITIONS, Sent.SAVED, sending) is not Sent.SAVED


def test_a_run_is_not_saved_before_its_last_step_is_captioned() -> None:
    assert state_after(TRANSITIONS, Sent.FOLLOWED, Sending.SAVING) is Sent.FOLLOWED
    assert (
        state_after(TRANSITIONS, state_after(TRANSITIONS, Sent.FOLLOWED, Sending.LAST_STEP), Sending.SAVING)
        is Sent.SAVED
    )


@pytest.mark.parametrize("state", NewestStep)
@pytest.mark.parametrize(
    ("signal", "after"),
    [(StepSignal.STARTED_IN_RUN, NewestStep.OPEN_IN_RUN), (StepSignal.STARTED_BY_HAND, NewestStep.OPEN_BY_HAND)],
)
def test_a_step_that_starts_is_open_whatever_was_before(
    state: NewestStep, signal: StepSignal, after: NewestStep
) -> None:
    assert state_after(STEP_TRANSITIONS, state, signal) is after


@pytest.mark.parametrize("state", NewestStep)
def test_no_step_is_open_after_an_end(state: NewestStep) -> None:
    assert state_after(STEP_TRANSITIONS, state, StepSignal.ENDED) in (NewestStep.NONE, NewestStep.ENDED_BY_HAND)


@pytest.mark.parametrize("state", NewestStep)
def test_moments_of_before_mean_nothing_when_a_recording_begins(state: NewestStep) -> None:
    after = state_after(STEP_TRANSITIONS, state, StepSignal.RECORDING_BEGAN)
    is_open = {NewestStep.OPEN_IN_RUN, NewestStep.OPEN_BY_HAND}
    assert after in (NewestStep.NONE, NewestStep.OPEN_IN_RUN) and (after in is_open) == (state in is_open)


def test_a_tracker_knows_where_a_step_by_hand_began_until_another_one_starts() -> None:
    steps = StepTracker()
    steps.hear(ev.StepStarted(1), None)
    assert (steps.state, steps.start_by_hand) == (NewestStep.OPEN_IN_RUN, None)
    steps.hear(ev.StepEnded(1), None)
    steps.hear(ev.StepStarted(2), 17)
    assert (steps.state, steps.start_by_hand) == (NewestStep.OPEN_BY_HAND, 17)
    steps.hear(ev.StepRolledBack(2, "interrupted"), None)
    assert (steps.state, steps.start_by_hand) == (NewestStep.ENDED_BY_HAND, 17)
    steps.hear(ev.StepStarted(2), None)
    assert steps.start_by_hand is None
