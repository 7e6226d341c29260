from __future__ import annotations

from random import Random
from typing import Any

import pytest

from labengine import Lab
from labengine import events as ev
from labengine.fold import Fold
from labengine_widgets.frames import FrameMaker
from labengine_widgets.runs import MAX_FRAMES, Run, phase_after, runs
from labengine_widgets.scene import HASHED, LOST, MAPPED, Scene
from widgets.seen import Seen, everything
from widgets.story_219 import begin, merging_step, overwriting_step


def maker_after(events: list[ev.Event]) -> FrameMaker:
    maker = FrameMaker(Scene(Fold()))
    maker.follow(events)
    maker.full()
    return maker


def numbers(frames: list[dict[str, Any]], index: int) -> list[int]:
    return [frame["score"][index] for frame in frames]


def test_eight_are_seen_before_five() -> None:
    maker = maker_after(begin())
    frames = [maker.play(run) for run in runs(merging_step())]
    used = numbers(frames, 0)
    assert used[-1] == 5
    assert used.index(8) < used.index(7) < used.index(6) < used.index(5)
    assert frames[-1]["score"] == [5, 8, 3, 0]
    assert len(frames) * 0.3 < 6


def test_lost_blocks_appear_one_by_one() -> None:
    maker = maker_after(begin())
    frames = [maker.play(run) for run in runs(overwriting_step())]
    assert frames[-1]["score"] == [8, 8, 3, 3]
    assert [n for n in numbers(frames, 3) if n][:3] == [1, 2, 3]
    cell = everything(maker).blocks[0]
    assert cell[4] == HASHED | LOST
    assert everything(maker).blocks[4][4] == HASHED | MAPPED


def test_twins_are_twins_as_soon_as_they_are_written_and_keep_their_letter() -> None:
    maker, contents = maker_after(begin()), []
    seen = everything(maker)
    for run in runs(merging_step()):
        seen.apply(maker.play(run))
        contents.append({i: cell[2] for i, cell in seen.blocks.items()})
    written = contents[9]
    assert [written[i] for i in range(8)] == [0, 1, 2, -1, 0, 1, 2, -1]
    assert contents[-1] == {0: 0, 1: 1, 2: 2, 3: -1, 7: -1}
    assert [seen.map[key][0] for key in seen.map] == [0, 1, 2]


@pytest.mark.parametrize("step", [merging_step(), overwriting_step()])
def test_the_diffs_of_a_step_add_up_to_the_full_state(step: list[ev.Event]) -> None:
    maker = maker_after(begin())
    seen = everything(maker)
    for run in runs(step):
        assert seen.apply(maker.play(run)) == everything(_copy(maker))
    assert seen.rows["1:0"]["table"] in ([0, 1, 2, 7], [4, 5, 6, 7])
    assert seen.rows["0:0"]["generated"] == "7"


def test_phases_are_told_from_the_events() -> None:
    phase, phases = None, []
    for event in merging_step():
        phase = phase_after(event, phase)
        phases.append(phase)
    assert list(dict.fromkeys(phases)) == ["schedule", "forward", "update", None]
    assert phase_after(ev.TokenSampled(0, 1, 1), "forward") == "sample"
    assert phase_after(ev.RequestAdded(0, (1,), 1), None) is None


def test_runs_keep_every_event_in_order_and_are_bounded() -> None:
    step = merging_step()
    assert [event for run in runs(step) for event in run.events] == step
    many: list[ev.Event] = [ev.TokenSampled(i, 1, 1) for i in range(5000)]
    found = runs(many)
    assert len(found) <= MAX_FRAMES
    assert [event for run in found for event in run.events] == many
    assert runs([ev.TokensComputed(0, 3)]) == [Run((), (ev.TokensComputed(0, 3),))]


def _copy(maker: FrameMaker) -> FrameMaker:
    """Another maker at the same state, with the same letters and slots written."""
    other = FrameMaker(Scene(maker.scene.fold.copy()))
    other.scene.contents, other.scene._written = maker.scene.contents, dict(maker.scene._written)
    other.scene.peak, other.phase = maker.scene.peak, maker.phase
    return other


def assert_same_picture(seen: Seen, maker: FrameMaker) -> None:
    full = everything(_copy(maker))
    assert seen == full


@pytest.mark.parametrize("edition", ["labengine", "nano-vllm", "nano-vllm+243"])
@pytest.mark.parametrize("seed", range(4))
def test_random_runs_frame_by_frame(edition: str, seed: int) -> None:
    """Preemption, eviction, hits, aborts, a reset: after every message the browser has what a late one is sent."""
    random = Random(f"{edition} {seed}")
    with Lab("simulated", num_blocks=14, block_size=4, edition=edition, seed=seed) as lab:
        maker, heard = FrameMaker(Scene(lab.fold())), []
        lab.hooks.subscribe(heard.append)
        seen = everything(maker)
        for _ in range(120):
            _do_something(lab, random)
            if any(isinstance(event, ev.EngineStarted) for event in heard):
                maker.follow(heard)
                seen = everything(maker)
            elif random.random() < 0.5:
                for run in runs(heard):
                    seen.apply(maker.play(run))
            else:
                maker.follow(heard)
                seen.apply(maker.merged())
            heard.clear()
            assert_same_picture(seen, maker)
            assert maker.scene.fold.snapshot() == lab.snapshot()
            assert seen.head["score"][3] == len(lab.snapshot().lost_blocks)


def _do_something(lab: Lab, random: Random) -> None:
    choice = random.random()
    if choice < 0.3:
        shared = [1, 2, 3, 4, 5, 6, 7, 8, 9][: random.randint(1, 9)]
        lab.add(
            token_ids=shared + [random.randint(0, 2) for _ in range(random.randint(0, 6))],
            max_tokens=random.randint(1, 12),
        )
    elif choice < 0.35 and lab.snapshot().requests:
        lab.abort(random.choice(list(lab.snapshot().requests)))
    elif choice < 0.37:
        lab.reset()
    else:
        lab.step()
