"""Two labs in lockstep: the same requests and steps, whatever happens in between; and their first difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import labengine
from labengine import HostStore, Parts
from labengine import events as ev
from labengine.config import ConfigError
from labengine.core.merge_policy import LateMerge
from labengine.lab import Lab
from labengine.scenarios import bug
from labengine.session.compare.comparison import Comparison
from labengine.session.stepper import LabClosedError
from waiting import wait_until

PROMPT = list(range(100, 114))
SMALL: dict[str, Any] = {"num_blocks": 12, "block_size": 4}


@pytest.fixture
def pair() -> Iterator[Comparison]:
    with labengine.compare("nano-vllm", "nano-vllm+243", **SMALL) as comparison:
        yield comparison


def ask(comparison: Comparison, max_tokens: int = 3) -> None:
    for _ in range(2):
        comparison.add(token_ids=PROMPT, max_tokens=max_tokens)


def used(comparison: Comparison) -> list[int]:
    return [snapshot.num_used_blocks for snapshot in comparison.snapshots]


def steps(comparison: Comparison) -> list[int]:
    return [snapshot.step for snapshot in comparison.snapshot()]


class Interrupts:
    """A runner that is interrupted once."""

    def __init__(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        forward, self.is_armed = lab.session.model.runner.forward, True

        def once(*arguments: Any) -> Any:
            if self.is_armed:
                self.is_armed = False
                raise KeyboardInterrupt
            return forward(*arguments)

        monkeypatch.setattr(lab.session.model.runner, "forward", once)


# -- doing the same ----------------------------------------------------------------------------------------------------


def test_both_sides_get_the_same_requests_and_steps(pair: Comparison) -> None:
    ask(pair)
    left, right = pair.step()
    assert left.scheduled == right.scheduled == {0: 14, 1: 14}
    assert used(pair) == [8, 5] and steps(pair) == [1, 1]
    pair.run()
    assert used(pair) == [0, 0] and steps(pair) == [3, 3]
    assert not any(pair.step())


def test_phases_go_side_by_side(pair: Comparison) -> None:
    ask(pair)
    assert [pair.next_phase() for _ in range(4)] == [
        (phase, phase) for phase in ("schedule", "forward", "sample", "update")
    ]
    assert pair.last_boundary == pair.aligned_at and used(pair) == [8, 5]
    pair.next_phase()
    assert pair.last_boundary < pair.aligned_at


def test_what_one_side_cannot_take_neither_gets() -> None:
    with labengine.compare(
        Lab("simulated", num_blocks=12, block_size=4), Lab("simulated", num_blocks=2, block_size=4)
    ) as pair:
        with pytest.raises(ConfigError):
            pair.add(token_ids=PROMPT)
        assert [len(snapshot.requests) for snapshot in pair.snapshots] == [0, 0]
        with pytest.raises(TypeError, match="max_token"):
            pair.add(token_ids=PROMPT, max_token=3)


def test_a_run_stops_at_its_condition(pair: Comparison) -> None:
    ask(pair, max_tokens=9)
    pair.run(until=lambda both: both.left.snapshot().step == 4)
    assert steps(pair) == [4, 4] and not pair.is_running


@pytest.mark.parametrize("runs", [Comparison.run, lambda pair: (pair.start(), _wait(pair)), lambda pair: pair.step(9)])
def test_a_run_stops_where_one_side_meets_a_breakpoint(pair: Comparison, runs: Callable[[Comparison], object]) -> None:
    for _ in range(2):
        pair.add(token_ids=PROMPT, max_tokens=6)
    merged = pair.right.break_on(ev.BlockMerged)  # type: ignore[union-attr]
    runs(pair)
    left, right = pair.stopped_at
    assert left is None and right is not None and right.breakpoint is merged and right.step == 1
    assert [snapshot.step for snapshot in pair.snapshots] == [1, 1]
    merged.close()
    runs(pair)
    assert pair.stopped_at == (None, None)
    assert all(request.status == "finished" for snapshot in pair.snapshots for request in snapshot.requests.values())


def _wait(pair: Comparison) -> None:
    wait_until(lambda: not pair.is_running)


def test_the_background_steps_both_and_pauses_aligned(pair: Comparison) -> None:
    ask(pair, max_tokens=30)
    slowly = pair.left.hooks.subscribe(lambda event: time.sleep(0.02), ev.StepEnded)  # not over before the pause
    pair.start()
    wait_until(lambda: steps(pair)[1] >= 3)
    pair.pause()
    assert steps(pair)[0] == steps(pair)[1] >= 3 and not pair.is_running and not pair.left.is_running  # type: ignore[attr-defined]
    slowly.close()
    pair.start()
    wait_until(lambda: not pair.is_running)
    assert used(pair) == [0, 0] and pair.background_error is None


def test_a_start_completes_an_interrupted_act_and_raises_its_error(
    pair: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> bool:
        raise KeyboardInterrupt

    ask(pair)
    with monkeypatch.context() as patch:
        patch.setattr(pair.right.session.requests, "abort", interrupt)  # type: ignore[attr-defined]
        with pytest.raises(KeyboardInterrupt):
            pair.abort(7)
    with pytest.raises(KeyError, match="no request 7"):
        pair.start()
    pair.start()
    _wait(pair)
    assert used(pair) == [0, 0] and pair.background_error is None


def test_abort_and_reset_reach_both(pair: Comparison) -> None:
    ask(pair)
    pair.step()
    assert pair.abort(0) == (True, True) and pair.abort(0) == (False, False)
    pair.reset()
    assert steps(pair) == [0, 0] and pair.first_difference() is None
    ask(pair)
    pair.step()
    assert used(pair) == [8, 5] and pair.first_difference() is not None


def test_chat_goes_through_one_template() -> None:
    with labengine.compare("labengine", "vllm", num_blocks=64, block_size=4) as pair:
        pair.chat([{"role": "user", "content": "hello"}], max_tokens=1)
        left, right = pair.snapshots
        assert left.requests[0].token_ids == right.requests[0].token_ids


# -- interrupted, or out of step ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [0, 1])
def test_an_interrupt_half_way_is_made_good_by_the_next_step(
    pair: Comparison, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    ask(pair)
    Interrupts(pair.sides[side], monkeypatch)  # type: ignore[arg-type]
    aligned_at = pair.aligned_at
    with pytest.raises(KeyboardInterrupt):
        pair.step()
    assert steps(pair) == [side, 0] and pair.aligned_at == aligned_at
    left, right = pair.step()
    assert left.scheduled == right.scheduled == {0: 14, 1: 14}
    assert steps(pair) == [1, 1] and used(pair) == [8, 5]
    pair.step()
    assert steps(pair) == [2, 2]


def test_any_call_first_brings_the_other_along(pair: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(pair)
    Interrupts(pair.right, monkeypatch)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        pair.step()
    assert pair.add(token_ids=PROMPT, max_tokens=1) == 2
    assert steps(pair) == [1, 1] and [len(snapshot.requests) for snapshot in pair.snapshots] == [3, 3]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("number", [0, 1])
def test_an_interrupted_rewind_is_done_again_by_the_next_act(
    pair: Comparison, monkeypatch: pytest.MonkeyPatch, side: int, number: int
) -> None:
    ask(pair)
    for _ in range(3):
        pair.step()
    before = pair.snapshots
    forward = pair.sides[side].session.model.runner.forward  # type: ignore[union-attr]
    calls = iter(range(100))

    def interrupted(*arguments: Any) -> Any:
        if next(calls) == number:
            raise KeyboardInterrupt
        return forward(*arguments)

    monkeypatch.setattr(pair.sides[side].session.model.runner, "forward", interrupted)  # type: ignore[union-attr]
    with pytest.raises(KeyboardInterrupt):
        pair.rewind(2)
    assert pair.add(token_ids=PROMPT, max_tokens=1) == 2
    assert steps(pair) == [2, 2] and [len(snapshot.requests) for snapshot in pair.snapshots] == [3, 3]
    pair.rewind(2)
    assert [one.requests[0] for one in pair.snapshots] != [one.requests[0] for one in before]


def test_after_an_interrupted_rewind_and_a_step_of_ones_own_the_way_back_is_named(
    pair: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(pair)
    for _ in range(3):
        pair.step()
    interrupts = Interrupts(pair.right, monkeypatch)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        pair.rewind(2)
    assert not interrupts.is_armed
    pair.left.step()  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"comparison.rewind\(2\) was interrupted"):
        pair.add(token_ids=PROMPT, max_tokens=1)
    pair.rewind(2)
    assert steps(pair) == [2, 2]
    pair.step()


def test_an_interrupted_run_goes_on_aligned(pair: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(pair)
    Interrupts(pair.right, monkeypatch)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        pair.run()
    assert not pair.is_running
    pair.run()
    assert steps(pair) == [3, 3] and used(pair) == [0, 0]


def test_a_lab_that_was_stepped_by_itself_waits_for_the_other(pair: Comparison) -> None:
    ask(pair, max_tokens=6)
    pair.step()
    left: Any = pair.left
    left.step()
    left.step()
    assert steps(pair) == [3, 1]
    for after in ([3, 2], [3, 3], [4, 4]):
        pair.step()
        assert steps(pair) == after


def test_an_error_of_one_side_does_not_hold_up_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = bug("nano-vllm-71")
    with labengine.compare(*(column.all_parts for column in scenario.columns), num_blocks=16, block_size=4) as pair:
        pair.add(token_ids=range(4), max_tokens=3)
        pair.step()
        with pytest.raises(AssertionError) as raised:
            pair.step()
        assert "left side" in "".join(raised.value.__notes__)
        assert steps(pair) == [1, 2]


# -- where they part ---------------------------------------------------------------------------------------------------


def test_the_first_difference_of_219(pair: Comparison) -> None:
    ask(pair)
    assert pair.first_difference() is None
    pair.step()
    found = pair.first_difference()
    assert found is not None
    assert isinstance(found.left, ev.BlockCached) and isinstance(found.right, ev.BlockMerged)
    assert (found.left.block_id, found.right.into_block_id, found.step, found.phase) == (4, 0, 1, "update")
    assert [t.events(m, m + 1)[0] for t, m in zip(pair.timelines, found.moments, strict=True)] == [
        found.left,
        found.right,
    ]
    assert "overwrites" in found.sentences[0] and "merged into the equal" in found.sentences[1]
    assert "nano-vllm+243" in found.sentence and "First difference: step 1, update" in str(found)
    assert "mapped_after" in found.reasons[0] and "LateMerge.merge_target" in found.reasons[1]
    assert "<b>" in found._repr_html_() and "overwrites" in repr(pair)


def test_editions_that_do_the_same_do_not_part() -> None:
    with labengine.compare("labengine", "labengine", **SMALL) as pair:
        ask(pair)
        pair.run()
        assert pair.first_difference() is None
        assert pair.names == ("labengine, left", "labengine, right")
        assert "No difference so far." in repr(pair)


def test_parts_by_hand_and_an_edition_by_name() -> None:
    class NeverMerges(LateMerge):
        def is_alive(self, other: Any) -> bool:
            return False

    with labengine.compare(Parts(name="never", merge_policy=NeverMerges), "labengine", **SMALL) as pair:
        ask(pair)
        pair.step()
        assert pair.names == ("never", "labengine") and used(pair) == [8, 5]


def test_opened_traces_can_be_compared_and_not_stepped(pair: Comparison, tmp_path: Any) -> None:
    ask(pair)
    pair.run()
    paths = [tmp_path / name for name in ("left.lab", "right.lab")]
    for side, path in zip(pair.sides, paths, strict=True):
        side.save(path)  # type: ignore[attr-defined]
    with labengine.compare(*map(labengine.open, paths)) as traces:
        assert not traces.is_live and not traces.has_follow_up
        found, again = pair.first_difference(), traces.first_difference()
        assert found is not None and again is not None
        assert (again.moments, again.left, again.right) == (found.moments, found.left, found.right)
        with pytest.raises(ConfigError, match="recordings"):
            traces.step()


# -- refused -----------------------------------------------------------------------------------------------------------


def test_labs_with_different_pasts_are_refused() -> None:
    with Lab("simulated", **SMALL) as one, Lab("simulated", **SMALL) as other:
        one.add(token_ids=PROMPT, max_tokens=3)
        with pytest.raises(ConfigError, match="the left lab has had 1 requests, the right lab 0"):
            labengine.compare(one, other)
        other.add(token_ids=PROMPT, max_tokens=3)
        one.step()
        with pytest.raises(ConfigError, match="after step 1"):
            labengine.compare(one, other)


def test_what_cannot_be_compared_is_refused_by_name() -> None:
    with Lab("simulated", **SMALL) as lab:
        with pytest.raises(ConfigError, match="got 3"):
            labengine.compare(lab, 3)
        with pytest.raises(ConfigError, match="num_blocks"):
            labengine.compare(lab, lab, num_blocks=3)
        with pytest.raises(ConfigError, match=r"external=.* only one engine"):
            labengine.compare("vllm", "labengine", external=HostStore())
        with pytest.raises(TypeError, match="num_blokcs"):
            labengine.compare("vllm", "labengine", num_blokcs=3)
    with Lab("simulated", record=False) as silent, pytest.raises(ConfigError, match="record=False"):
        labengine.compare(silent, silent)


def test_closed_means_closed() -> None:
    pair = labengine.compare("nano-vllm", "vllm", **SMALL)
    pair.close()
    pair.close()
    with pytest.raises(LabClosedError):
        pair.step()
    assert len(pair.snapshots) == 2


def test_a_closed_comparison_can_still_be_seen() -> None:
    pair = labengine.compare("nano-vllm", "vllm", **SMALL)
    pair.add(token_ids=range(9), max_tokens=2)
    pair.run()
    view = pair.show()
    pair.close()
    assert pair.show() is view and view.comm is not None
    assert pair.goto(1).left.step == 1 and "image/svg+xml" in pair._repr_mimebundle_()[0]
    assert not any(feed.is_sending for feed in view.feeds)


def test_without_a_story_there_is_no_follow_up(pair: Comparison) -> None:
    assert not pair.has_follow_up
    with pytest.raises(ConfigError, match="no follow-up is left"):
        pair.follow_up()
