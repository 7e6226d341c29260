"""Several answers to a prompt, and branches, in a lab: stepped, ended, repeated, saved and explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import labengine
from driving import difference
from labengine import Lab, Parts
from labengine import events as ev
from labengine.config import ConfigError
from labengine.core.forks import Forks
from labengine.core.request import FinishReason, Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.waiting_queue import WaitingQueue
from labengine.live_page.session import acts_of
from labengine.scripts import break_off

PROMPT = [1, 2, 3, 4, 5, 6]


def small(**settings: Any) -> Lab:
    return Lab(**{"model": "simulated", "num_blocks": 16, "block_size": 4} | settings)  # type: ignore[arg-type]


def forked(**settings: Any) -> Lab:
    """Four answers, an interrupted step that copies, and a branch."""
    lab = small(**settings)
    lab.add(token_ids=PROMPT, n=4, max_tokens=6)
    lab.step()
    break_off(lab, "schedule")
    lab.step()
    lab.branch("B", token=77)
    lab.step()
    return lab


def test_each_answer_is_a_request_of_its_own() -> None:
    with small() as lab:
        ids = lab.add(token_ids=PROMPT, n=3, max_tokens=4)
        assert ids == [0, 1, 2] and lab.add(token_ids=[9], max_tokens=1) == 3
        assert lab.step().scheduled == {0: 6, 3: 1}
        assert lab.abort("B") and lab.output("B").finish_reason == "abort"
        assert "".join(lab.stream(2)) == lab.output(2).text and len(lab.output(2).token_ids) == 4
        assert lab.output(0).token_ids != lab.output(2).token_ids
        lab.run()
        assert lab.check() == [] and lab.snapshot().num_used_blocks == 0


def test_n_of_one_is_a_list_of_one() -> None:
    with small(edition="nano-vllm") as lab:
        assert lab.add(token_ids=PROMPT, n=1, max_tokens=2) == [0]


def test_a_seed_counts_up() -> None:
    with small() as lab:
        lab.add(token_ids=PROMPT, n=3, seed=5, max_tokens=2)
        assert [one.options.sampling.seed for one in lab.session.inputs.done] == [5, 6, 7]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("edition", "n", "why"),
    [
        ("labengine", 0, "n must be"),
        ("labengine", 17, "the answers to one prompt run together, but max_num_seqs is 16"),
        ("nano-vllm", 2, "this edition has no forks"),
    ],
)
def test_a_number_of_answers_is_refused_before_anything_changes(edition: str, n: int, why: str) -> None:
    with small(edition=edition) as lab:
        with pytest.raises(ConfigError, match=why):
            lab.add(token_ids=PROMPT, n=n, max_tokens=2)
        assert lab.inputs == () and not lab.snapshot().requests


def test_a_branch_takes_a_token_of_the_model_and_a_seed() -> None:
    with small() as lab:
        lab.add(token_ids=PROMPT, max_tokens=5)
        lab.step(2)
        for wrong in ({"token": -1}, {"token": "x"}, {"seed": -1}):
            with pytest.raises(ConfigError):
                lab.branch("A", **wrong)  # type: ignore[arg-type]
        with pytest.raises(KeyError):
            lab.branch("B")
        assert lab.branch("A", seed=9) == 1
        lab.run()
        assert lab.output("B").token_ids[:2] == lab.output("A").token_ids[:2]
        assert lab.output("B").token_ids[2:] != lab.output("A").token_ids[2:]


def test_rewind_fork_script_and_file_have_the_forks(tmp_path: Path) -> None:
    with forked() as lab, lab.fork() as other, lab.fork(1) as earlier:
        assert difference(other.snapshot(), lab.snapshot()) is None
        names: dict[str, Any] = {}
        exec(lab.to_code(), names)
        assert difference(names["lab"].snapshot(), lab.snapshot()) is None
        assert "n=4)" in lab.to_code() and "lab.branch(1, token=77)" in lab.to_code()
        lab.save(tmp_path / "run.lab")
        trace = labengine.open(tmp_path / "run.lab")
        assert difference(trace.timeline.state().snapshot(), lab.snapshot()) is None
        assert trace.to_code() == lab.to_code().replace(lab.to_code().splitlines()[0], trace.to_code().splitlines()[0])
        after = lab.snapshot()
        lab.rewind(1)
        assert difference(earlier.snapshot(), lab.snapshot()) is None
        lab.rewind(3)
        assert difference(after, lab.snapshot()) is None
        lab.run()
        assert lab.check() == []


def test_a_rerun_does_them_again_on_both_sides() -> None:
    with forked() as lab, lab.rerun(labengine.Parts().kv_cache_manager or lab.parts.kv_cache_manager) as both:
        for side in (both.left, both.right):
            assert difference(side.snapshot(), lab.snapshot()) is None


def test_side_by_side_with_vllm_the_cost_is_seen() -> None:
    """The same four answers: labengine copies three tails, vLLM computes three more."""
    with labengine.compare("labengine", "vllm", num_blocks=24, block_size=4) as both:
        assert both.add(token_ids=PROMPT, n=4, max_tokens=6) == [0, 1, 2, 3]
        both.step()
        left, right = (side.timeline for side in (both.left, both.right))
        assert [sum(e.num_tokens for e in side.of_kind(ev.ForwardRan)) for side in (left, right)] == [6, 12]
        assert [side.state().num_used_blocks for side in (left, right)] == [2, 5]
        both.step()
        assert [len(side.of_kind(ev.BlockCopied)) for side in (left, right)] == [3, 0]
        assert [side.state().num_used_blocks for side in (left, right)] == [5, 5]
        assert both.branch("A") == 4
        both.run()
        assert [side.check() for side in (both.left, both.right)] == [[], []]


def test_both_sides_take_a_branch_or_neither() -> None:
    with labengine.compare("labengine", "nano-vllm", num_blocks=24, block_size=4) as both:
        both.add(token_ids=PROMPT, max_tokens=6)
        both.step()
        for ask in (lambda: both.branch("A"), lambda: both.add(token_ids=PROMPT, n=2, max_tokens=2)):
            with pytest.raises(ConfigError, match="this edition has no forks"):
                ask()
        both.run()
        assert [len(side.snapshot().requests) for side in (both.left, both.right)] == [1, 1]


def test_why_knows_forks_and_copies() -> None:
    with small() as lab:
        lab.add(token_ids=PROMPT, n=3, max_tokens=6)
        waits = lab.why(request="B")
        assert "0 of 6" in waits.answer
        lab.step()
        count = lab.why(block=1)
        assert "3 table entries point to #1" in count.answer and "2 forks shared it" in count.answer
        assert sum(link.change for link in count.links) == 3
        lab.step()
        (copied, _) = (n for n, event in enumerate(lab.timeline.events()) if isinstance(event, ev.BlockCopied))  # type: ignore[union-attr]
        why = lab.why(event=copied)
        assert "is shared with the fork C" in why.answer and "copies_before_write" in why.answer
        (freed,) = (lab.why(event=n) for n in [copied + 1])
        assert "write to #1" in freed.answer


def test_who_waits_beside_a_leader_is_before_nobody() -> None:
    with small(num_blocks=4, max_num_batched_tokens=4) as lab:
        lab.add(token_ids=PROMPT, n=3, max_tokens=2)
        last = lab.add(token_ids=[*range(20, 33)], max_tokens=1)
        lab.step()
        answer = lab.why(request=last).answer
        assert "ahead of it in the waiting queue" not in answer and "needs up to 4 blocks" in answer


def test_a_permalink_refuses_a_branch() -> None:
    with small() as lab:
        lab.add(token_ids=PROMPT, max_tokens=3)
        lab.step()
        lab.branch("A")
        with pytest.raises(ConfigError, match="Branch"):
            list(acts_of(lab, lab.inputs, 0, 1))


@pytest.mark.parametrize(
    ("token", "says"), [(-1, "token must be at least 0"), (10**30, "token must be at most"), ("x", "token must")]
)
def test_a_token_that_a_branch_cannot_have_is_called_by_its_name(token: Any, says: str) -> None:
    with forked() as lab, pytest.raises(ConfigError, match=says):
        lab.branch("A", token=token)


def test_a_branch_of_what_has_finished_names_the_request() -> None:
    with forked() as lab, pytest.raises(ConfigError, match="A has finished"):
        lab.run()
        lab.branch("A")


class Full(WaitingQueue):
    """A queue that takes no request."""

    def add_request(self, request: Request) -> None:
        raise RuntimeError("the queue is full")


class JoinsOnce(Forks):
    """Lets one request join another, and no second one."""

    def join(self, request: Request, leader: Request) -> None:
        if self.scheduler.siblings:
            raise RuntimeError("one is enough")
        super().join(request, leader)


@pytest.mark.parametrize(("parts", "n"), [(Parts(waiting_queue=Full), 1), (Parts(forks=JoinsOnce), 3)])
def test_answers_are_queued_all_or_none_whatever_a_part_raises(parts: Parts, n: int) -> None:
    with small(parts=parts) as lab:
        assert lab.timeline is not None
        before, num_events = lab.snapshot(), lab.timeline.end
        with pytest.raises(RuntimeError):
            lab.add(token_ids=PROMPT, n=n, max_tokens=4)
        assert lab.snapshot() == before and lab.timeline.end == num_events and lab.inputs == ()
        assert lab.check() == []


class EndsNoSearch(TokenBudgetScheduler):
    """Raises where a search ends."""

    def finish(self, request: Request, reason: FinishReason) -> None:
        raise RuntimeError("no end")


def test_an_end_that_raises_is_no_contradiction_between_core_and_events() -> None:
    with small(parts=Parts(scheduler=EndsNoSearch)) as lab:
        lab.add(token_ids=PROMPT, beams=2, max_tokens=2)
        lab.step()
        before = lab.snapshot()
        with pytest.raises(RuntimeError, match="no end"):
            lab.step()
        assert difference(lab.snapshot(), before) is None
        assert lab.check() == []
