"""A recording that lost its beginning claims nothing that the complete one contradicts: random runs, every question."""

from __future__ import annotations

from random import Random

import pytest

from driving import ALL_EDITIONS
from labengine.record.timeline import Timeline
from labengine_widgets.why import Why, why
from labengine_widgets.why.subjects import ABOUT
from widgets.why.busy_runs import BusyRun
from widgets.why.why_runs import Run

NOW = ("in this very step", "has not computed all of it yet")
"""Words about a miss where nothing older is known; test_is_true compares them with what is computed."""


def questions(run: BusyRun, moment: int, rng: Random) -> list[dict[str, object]]:
    """Every question about every block and the newest requests, and some about events and hashes."""
    state = run.complete.state(moment)
    requests = [*list(state.requests)[-6:], *list(state.requests)[:2]]
    asked: list[dict[str, object]] = [{"next_victim": True}]
    asked += [{"block": i, "about": about} for i in range(len(state.ref_counts)) for about in (None, *ABOUT["block"])]
    asked += [{"request": i, "about": about} for i in dict.fromkeys(requests) for about in (None, *ABOUT["request"])]
    asked += [{"hash": f"{group}:{block_hash.hex()}"} for group, block_hash in state.prefix_map]
    asked += [{"event": rng.randrange(run.timeline.num_dropped, run.timeline.end)} for _ in range(8)]
    return asked


def is_open(reply: Why) -> bool:
    """True for an answer that says where its knowledge ends."""
    return "the recording" in reply.answer


@pytest.mark.parametrize("edition", ALL_EDITIONS)
def test_what_a_shortened_recording_says_is_so_in_the_complete_one(edition: str) -> None:
    num_open = num_same = 0
    rng = Random(ALL_EDITIONS.index(edition))
    run = BusyRun(edition, 0, record=rng.randint(40, 200), num_steps=40)
    first, end = run.timeline.num_dropped, run.timeline.end
    assert first > 0
    for moment in (first, rng.randint(first, end), rng.randint(first, end), end):
        for subject in questions(run, moment, rng):
            short, full = why(run.timeline, subject, moment), why(run.complete, subject, moment)
            assert not is_open(full) or "Nothing in the recording caused it" in full.answer, full
            if is_open(short):
                assert f"event {first}" in short.answer or "as far as the recording goes back" in short.answer
            elif not any(words in short.answer for words in NOW):
                assert short.answer == full.answer, (moment, subject, short.answer, full.answer)
            num_open, num_same = num_open + is_open(short), num_same + (not is_open(short))
    assert num_open > 25 and num_same > 125, "the run must have what this test is about"


def shortened() -> Run:
    """One request whose prompt was looked up, and whose blocks were taken, before the recording begins."""
    run = Run(num_blocks=12)
    run.timeline.max_events = 40
    run.add(range(14), 30)
    for _ in range(12):
        run.engine.step()
    assert run.timeline.num_dropped == 62
    return run


def test_a_look_up_before_the_recording_begins() -> None:
    reply = shortened().why(request=0)
    assert reply.answer.startswith("A looked up its prompt before") and "(event 62)" in reply.answer


def test_a_block_that_was_free_when_the_recording_begins() -> None:
    reply = shortened().why(next_victim=True)
    assert "already in the free queue" in reply.answer and "(event 62)" in reply.answer
    assert reply.links[0].event_number is None and reply.links[0].moment == 62


def test_a_recording_for_a_listener_that_came_late_lacks_the_beginning_too() -> None:
    run = shortened()
    late = Timeline.starting_at(run.timeline.state())
    assert "(event 0)" in why(late, {"request": 0}).answer
    assert "(event 0)" in why(late, {"next_victim": True}).answer


def test_an_end_and_a_preemption_before_the_recording_begins() -> None:
    run = Run(num_blocks=12)
    run.timeline.max_events = 40
    run.play(range(5), 2)
    run.play(range(100, 114), 30)
    assert run.why(request=0).answer == f"A ended before the recording began (event {run.timeline.num_dropped})."
    reply = run.why(request=1, about="preempted").answer
    assert "not been preempted" in reply and f"(event {run.timeline.num_dropped})" in reply
