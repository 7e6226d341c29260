"""What a feed has sent: every state can be reached and left, and a run is followed until it is captioned."""

from __future__ import annotations

import pytest

from labengine_widgets.feed.states import TRANSITIONS, Sending, Sent, sent_after


def test_every_state_has_a_way_to_every_other() -> None:
    for start in Sent:
        reached = {start}
        for _ in Sent:
            reached |= {after for state in reached for after in TRANSITIONS[state].values()}
        assert reached == set(Sent)


@pytest.mark.parametrize("sending", Sending)
def test_nothing_but_captions_ends_following(sending: Sending) -> None:
    ends = {Sending.EVENTS_BY_HAND, Sending.LAST_STEP}
    assert (sent_after(Sent.FOLLOWED, sending) is Sent.FOLLOWED) == (sending not in ends)


@pytest.mark.parametrize("sending", [one for one in Sending if one not in (Sending.SAVING, Sending.LAST_STEP)])
def test_whatever_is_sent_is_to_be_saved(sending: Sending) -> None:
    assert sent_after(Sent.SAVED, sending) is not Sent.SAVED


def test_a_run_is_not_saved_before_its_last_step_is_captioned() -> None:
    assert sent_after(Sent.FOLLOWED, Sending.SAVING) is Sent.FOLLOWED
    assert sent_after(sent_after(Sent.FOLLOWED, Sending.LAST_STEP), Sending.SAVING) is Sent.SAVED
