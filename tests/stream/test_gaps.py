"""A gap in a stream: which steps are unknown, how many events were lost, and what Why? makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import labengine
from gaps import WHY, cut_run, opened_cut, reader_of, recorded_run
from labengine.record.files.parsing import TraceError
from labengine.record.gap import Gap
from labengine_widgets.feed.payload import header


def test_both_pieces_know_the_steps_and_the_events_between_them(tmp_path: Path) -> None:
    _, num_events = cut_run()
    before, after = opened_cut(tmp_path, 1), opened_cut(tmp_path, 2)
    first, last = before.fold().step + 1, after.timeline.state(0).step
    gap = Gap(first, last, num_events, WHY)
    assert last > first and before.timeline.gap_after == after.timeline.gap_before == gap
    assert before.timeline.gap_before is after.timeline.gap_after is None
    words = f"A gap: steps {first} to {last} are not known; {num_events} events were lost there: {WHY}."
    assert header(after.view_source(), after.timeline)["gap_before"] == words
    assert header(before.view_source(), before.timeline)["gap_after"] == words


def test_what_is_missing_without_a_word_has_no_number(tmp_path: Path) -> None:
    gap = opened_cut(tmp_path, has_loss=False).timeline.gap_before
    assert gap is not None and gap.num_events is None
    assert "unknown number of events" in str(gap) and "messages 42 to 49" in str(gap)


def test_a_stream_without_a_gap_has_none() -> None:
    (piece,) = reader_of(recorded_run()).pieces
    assert piece.timeline.gap_before is piece.timeline.gap_after is None


def test_a_saved_piece_keeps_its_gap(tmp_path: Path) -> None:
    trace = opened_cut(tmp_path)
    trace.save(tmp_path / "piece.lab")
    again = labengine.open(tmp_path / "piece.lab")
    assert again.timeline.gap_before == trace.timeline.gap_before is not None
    part = again.timeline.until(10)
    assert part.gap_before == trace.timeline.gap_before


@pytest.mark.parametrize("fact", ["far away", {"first_step": 1}, {"first_step": "1", "last_step": 2}])
def test_a_gap_that_is_none_is_refused(fact: object, tmp_path: Path) -> None:
    from labengine.session.saved.trace import checked_gaps

    with pytest.raises(TraceError, match="invalid gaps"):
        checked_gaps({"stream": {"gap_before": fact}})


def test_why_says_that_the_cause_may_be_in_the_gap(tmp_path: Path) -> None:
    trace = opened_cut(tmp_path)
    gap = trace.timeline.gap_before
    trace.moment = 0
    state = trace.timeline.state(0)
    running = next(i for i, request in state.requests.items() if request.status == "running")
    answer = str(trace.why(request=running)).replace("\n", " ")
    words = " ".join(answer.split())
    assert gap is not None and f"before step {gap.last_step + 1}, in a gap or earlier ({gap})" in words
    held = next(i for i, count in enumerate(state.ref_counts) if count)
    assert f"Before that, {gap}." in str(trace.why(block=held))


def test_words() -> None:
    assert str(Gap(4, 4, 1, "x")) == "step 4 is not known; 1 event was lost there: x"
    assert str(Gap(5, 4, 7, "x")) == "what happened between steps 4 and 5 is not known; 7 events were lost there: x"
