"""Everything is answered and every chain adds up: in random runs, opened traces and shortened recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from grounds import ALL_GROUNDS, Ground
from labengine import events as ev
from labengine.core.editions import EDITIONS
from labengine.record.files.file import open_file, save
from labengine.record.fold import surviving
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.session.reasons import seams_of
from labengine_widgets.why import Why, why
from labengine_widgets.why.subjects import ABOUT
from widgets.why.why_runs import Run, numbers


@pytest.fixture(params=ALL_GROUNDS, ids=str)
def ground(request: pytest.FixtureRequest) -> Ground:
    return request.param  # type: ignore[no-any-return]


def questions(timeline: Timeline, moment: int, rng: Random) -> list[dict[str, object]]:
    """One of each question there is."""
    state = timeline.state(moment)
    block = rng.randrange(len(state.ref_counts))
    asked: list[dict[str, object]] = [{"block": block}, {"next_victim": True}, {"event": rng.randrange(timeline.end)}]
    asked += [{"block": block, "about": about} for about in ABOUT["block"]]
    if state.requests:
        request = rng.choice(list(state.requests))
        asked += [{"request": request}, *({"request": request, "about": about} for about in ABOUT["request"])]
    if state.prefix_map:
        group, hash_bytes = rng.choice(list(state.prefix_map))
        asked.append({"hash": f"{group}:{hash_bytes.hex()}"})
    return asked


def test_on_random_workloads_everything_is_answered_and_ref_counts_add_up(ground: Ground) -> None:
    seams = seams_of(EDITIONS[ground.edition])
    for seed in range(2):
        hooks, timeline = Hooks(strict=True), Timeline()
        hooks.subscribe(timeline.record)
        rng = Random(seed)
        for _ in ground.drive(seed, hooks).operations(Random(seed)):
            pass
        for moment in (rng.randint(1, timeline.end) for _ in range(10)):
            for subject in questions(timeline, moment, rng):
                reply = why(timeline, subject, moment, seams=seams)
                assert reply.question.endswith("?") and reply.answer[-1] in ".!" and "  " not in reply.answer, reply
                if subject.get("about") == "ref_count":
                    count = timeline.state(moment).ref_counts[subject["block"]]  # type: ignore[call-overload]  # an int
                    assert sum(link.change for link in reply.links) == count, (seed, moment, reply)
                if "event" not in subject:
                    assert_counts(timeline, moment, reply)


def assert_counts(timeline: Timeline, moment: int, reply: Why) -> None:
    """No link leads into a step that was rolled back by then."""
    events: Sequence[ev.Event] = timeline.events(0, moment)
    alive = set(surviving(events))
    assert all(n in alive for n in numbers(reply) if n is not None and n < moment), reply


def test_an_opened_trace_answers_as_the_recording_did(tmp_path: Path) -> None:
    run = Run(num_blocks=6, edition="nano-vllm")
    run.add(range(100, 108), 9), run.add(range(200, 208), 9)
    for _ in range(30):
        run.engine.step()
    save(tmp_path / "run.lab", run.timeline, {}, str)
    opened = open_file(tmp_path / "run.lab").timeline
    rng = Random(0)
    for moment in (rng.randint(1, run.timeline.end) for _ in range(8)):
        for subject in questions(run.timeline, moment, rng):
            assert why(opened, subject, moment) == why(run.timeline, subject, moment)


def test_a_recording_that_lost_its_beginning_still_answers() -> None:
    run = Run(num_blocks=8)
    run.timeline.max_events = 20
    run.add(range(100, 109), 20), run.add(range(100, 109), 20)
    for _ in range(9):
        run.engine.step()
    assert run.timeline.num_dropped > 0
    counts = run.timeline.state().ref_counts
    for block, count in enumerate(counts):
        reply = run.why(block=block, about="ref_count")
        assert sum(link.change for link in reply.links) == count
        run.why(block=block, about="queue"), run.why(block=block)
    assert any(link.event_number is None for link in run.why(block=0, about="ref_count").links)
    for request in (0, 1):
        assert run.why(request=request, about="hit").answer
