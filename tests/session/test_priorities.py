"""A lab's priorities: repeated by forks, rewinds, reruns, scripts, files and tests, and told by captions and Why?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import labengine
from driving import difference
from labengine import ConfigError, Lab
from labengine import events as ev
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.waiting_queue import PriorityQueue
from labengine_widgets.words.phrases import phrase


def small(**settings: Any) -> Lab:
    return Lab(**{"model": "simulated", "num_blocks": 6, "block_size": 4, "policy": "priority"} | settings)  # type: ignore[arg-type]


def played(**settings: Any) -> Lab:
    """A, of low priority, runs first; B and C join it, and D and E wait. The next step lacks a block."""
    lab = small(**{"max_num_seqs": 3} | settings)
    for number, priority in enumerate((2, -1, 0)):
        lab.add(token_ids=range(10 * number, 10 * number + 7), priority=priority, max_tokens=6)
        lab.step() if not number else None
    lab.add(token_ids=range(40, 43), priority=1, max_tokens=2)
    lab.add(token_ids=range(50, 53), max_tokens=2)
    lab.step()
    return lab


def admitted(lab: Lab) -> list[int]:
    assert lab.timeline is not None
    return [event.request_id for event in lab.timeline.of_kind(ev.PrefixHit)]


def preempted(lab: Any) -> list[int]:
    return [event.request_id for event in lab.timeline.of_kind(ev.RequestPreempted)]


# -- repeated ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_rewind_fork_script_and_file_have_the_priorities(edition: str, tmp_path: Path) -> None:
    with played(edition=edition, num_blocks=6 + (edition == "vllm")) as lab:
        lab.run()
        assert admitted(lab) == [0, 1, 2, 4, 4, 3, 0] and lab.check() == []
        with lab.fork() as other:
            assert difference(other.snapshot(), lab.snapshot()) is None
        names: dict[str, Any] = {}
        exec(lab.to_code(), names)
        assert difference(names["lab"].snapshot(), lab.snapshot()) is None
        assert 'policy="priority"' in lab.to_code() and "priority=-1)" in lab.to_code()
        lab.save(tmp_path / "run.lab")
        trace = labengine.open(tmp_path / "run.lab")
        assert difference(trace.timeline.state().snapshot(), lab.snapshot()) is None
        after, num_steps = lab.snapshot(), lab.num_known_steps
        lab.rewind(1)
        lab.rewind(num_steps)
        assert difference(after, lab.snapshot()) is None


def test_a_recording_that_has_lost_its_beginning_keeps_them(tmp_path: Path) -> None:
    with played(record=60) as lab:
        lab.run()
        assert lab.timeline is not None and not lab.timeline.of_kind(ev.RequestAdded)
        lab.save(tmp_path / "run.lab")
        state = labengine.open(tmp_path / "run.lab").timeline.state()
        assert [request.priority for request in state.requests.values()] == [2, -1, 0, 1, 0]


def test_a_fork_with_the_other_policy_goes_another_way_and_back() -> None:
    with played() as lab:
        lab.run()
        with lab.fork(policy="fcfs") as first_come:
            first_come.run()
            assert admitted(first_come) != admitted(lab)
            assert {request.priority for request in first_come.snapshot().requests.values()} == {0}
            with first_come.fork(policy="priority") as again:
                again.run()
                assert difference(again.snapshot(), lab.snapshot()) is None


def test_a_rerun_and_a_comparison_take_them_on_both_sides() -> None:
    def least_urgent(self: PriorityQueue, running: Sequence[Request]) -> Request:
        return running[-1]

    with played() as lab:
        lab.run()
        with lab.rerun(least_urgent) as both:
            assert difference(both.left.snapshot(), lab.snapshot()) is None
            assert [preempted(side) for side in (both.left, both.right)] == [[0, 4], [2]]
    settings: dict[str, Any] = {"max_num_seqs": 1}
    with small(**settings) as left, small(policy="fcfs", **settings) as right, labengine.compare(left, right) as both:
        for priority in (1, 0):
            both.add(token_ids=range(3), max_tokens=2, priority=priority)
        both.run()
        assert [admitted(side) for side in (left, right)] == [[1, 0], [0, 1]]


class Youngest(PriorityQueue):
    """A victim against the priorities."""

    def least_urgent(self, running: Sequence[Request]) -> Request:
        return running[-1]


def test_a_test_carries_policy_priorities_and_override() -> None:
    with played(parts=Parts(waiting_queue=Youngest)) as lab:
        lab.step()
        made = lab.to_test("lab.snapshot().requests[0].status == 'preempted'")
    assert 'policy="priority"' in made and "priority=-1" in made and "Youngest" in made


def test_chat_takes_a_priority_and_every_answer_has_it() -> None:
    with small() as lab:
        lab.chat([{"role": "user", "content": "hello"}], priority=3, max_tokens=2)
        lab.add(token_ids=range(3), n=2, priority=-2, max_tokens=2)
        assert [request.priority for request in lab.snapshot().requests.values()] == [3, -2, -2]


@pytest.mark.parametrize("wrong", ["high", 1.5, None, 2**31])
def test_a_wrong_priority_changes_nothing(wrong: Any) -> None:
    with small() as lab, pytest.raises(ConfigError, match="priority must be"):
        lab.add(token_ids=range(3), priority=wrong)
    assert not lab.snapshot().requests


# -- told --------------------------------------------------------------------------------------------------------------


def test_captions_say_the_priority_and_who_is_before_it() -> None:
    with small() as lab:
        for priority in (0, 2, -1):
            lab.add(token_ids=range(3), max_tokens=2, priority=priority)
        assert lab.timeline is not None
        said = [str(phrase(event)) for event in lab.timeline.of_kind(ev.RequestAdded)]
        assert "priority" not in said[0] and "priority -1" in said[2]


def test_why_names_the_less_urgent_that_goes_on() -> None:
    with small(max_num_seqs=1) as lab:
        lab.add(token_ids=range(7), max_tokens=6, priority=5)
        lab.step()
        lab.add(token_ids=range(20, 23), max_tokens=2)
        lab.add(token_ids=range(30, 33), max_tokens=2, priority=1)
        lab.step()
        answer = lab.why(request="B").answer
        assert "A (priority 5) is less urgent" in answer
        assert "B (priority 0) is ahead of it" in lab.why(request="C").answer


def test_why_says_that_the_victim_was_the_least_urgent() -> None:
    with played() as lab:
        lab.step()
        answer = lab.why(request="A", about="preempted").answer
        assert "A (priority 2) was the least urgent" in answer
        assert "B (priority -1) and C (priority 0)" in answer


def test_why_says_which_of_equally_urgent_ones_gave_way() -> None:
    with small() as lab:
        for number, priority in enumerate((0, 1, 1)):
            lab.add(token_ids=range(10 * number, 10 * number + 7), max_tokens=6, priority=priority)
        lab.step(3)
        answer = lab.why(request="C", about="preempted").answer
        assert "C (priority 1) was one of the least urgent" in answer
