"""A fork repeats the same events and block ids, and can then go on differently."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ctrl_c import press_ctrl_c
from interrupting import assert_no_thread_is_left, note_threads_of_others
from labengine.config import ConfigError
from labengine.core.editions import edition
from labengine.core.merge_policy import MergePolicy
from labengine.core.parts import Parts
from labengine.engine.external import HostStore
from labengine.lab import Lab
from labengine.session.session import Session as LabSession
from labengine.session.stepper import LabClosedError
from sessions import events_until, state, story

# -- what a fork is ----------------------------------------------------------------------------------------------------


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two equal requests after three steps of five."""
    with Lab("simulated", num_blocks=12, block_size=4) as lab:
        for _ in range(2):
            lab.add("one two three four five six seven", max_tokens=5)
        lab.step(3)
        yield lab


def test_a_fork_goes_its_own_way(lab: Lab) -> None:
    before = story(lab)
    with lab.fork() as fork:
        assert fork.add("and another one", max_tokens=2) == 2
        fork.run()
        assert story(lab) == before and lab.snapshot().step == 3
        assert story(fork)[: len(before)] == before
        assert fork.lab_id != lab.lab_id and fork.hooks is not lab.hooks and fork.feed is not lab.feed
        assert [type(kept).__name__ for kept in fork.inputs] == ["AddInput"] * 3


def test_a_fork_speaks_the_same_words(lab: Lab) -> None:
    with lab.fork() as fork:
        ids = fork.snapshot().requests[0].token_ids[:7]
        assert "".join(map(fork.token_text, ids)) == "one two three four five six seven"
        assert fork.encode("two") != lab.encode("new") and fork.encode("new") == lab.encode("new")


def nano_lab() -> Lab:
    return Lab("simulated", num_blocks=12, block_size=4, edition="nano-vllm")


def test_another_edition_gets_the_same_inputs(lab: Lab) -> None:
    with lab.fork(2, edition="nano-vllm") as fork, nano_lab() as n:
        for _ in range(2):
            n.add("one two three four five six seven", max_tokens=5)
        n.step(2)
        assert fork.parts == n.parts and fork.snapshot().num_used_blocks == n.snapshot().num_used_blocks
        assert [type(e) for e in story(fork)] == [type(e) for e in story(n)]


def test_other_parts_replace_those_of_the_lab() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, edition="nano-vllm+243") as lab:
        with lab.fork(parts=Parts(name="no merge", merge_policy=MergePolicy)) as fork:
            assert fork.parts.name == "no merge" and fork.parts.merge_policy is MergePolicy
            assert fork.parts.scheduler is lab.parts.scheduler
            with fork.fork() as again:
                assert again.parts == fork.parts
        with lab.fork(edition="vllm", parts=Parts(merge_policy=MergePolicy)) as fork:
            assert fork.parts.scheduler is edition("vllm").scheduler


def test_other_sizes(lab: Lab) -> None:
    with lab.fork(num_blocks=30, block_size=2, max_num_batched_tokens=4) as fork:
        assert (fork.config.num_blocks, fork.config.groups[0].block_size) == (30, 2)
        assert fork.snapshot().step == 3 and fork.snapshot().requests[0].num_computed_tokens == 8
    with lab.fork(num_blocks=4, max_num_seqs=1) as fork:
        fork.run()
        assert fork.output(1).finish_reason == "length"


def test_an_edition_that_is_done_earlier_does_not_wait_for_the_next_input() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, max_num_batched_tokens=4) as lab:
        lab.generate([list(range(16))], max_tokens=1)
        assert lab.snapshot().step == 4
        lab.generate([list(range(50, 54))], max_tokens=1)
        with lab.fork(max_num_batched_tokens=64) as fork:
            assert fork.snapshot().step == 2
            assert [r.status for r in fork.snapshot().requests.values()] == ["finished"] * 2


def test_a_request_that_never_fits_the_fork_is_named_and_this_lab_stays(lab: Lab) -> None:
    note_threads_of_others()
    with pytest.raises(ConfigError, match="needs 3 blocks, but the pool has 2") as refused:
        lab.fork(num_blocks=2)
    assert "after 0 of 3 steps" in refused.value.__notes__[-1]
    assert lab.step()
    assert_no_thread_is_left()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"step": 4}, "step must be between 0 and 3 (the lab has taken 3 steps), got 4"),
        ({"model": "smollm2"}, "loaded weights, which determine model"),
        ({"dtype": "bfloat16"}, "which determine dtype"),
        ({"edition": "vlm"}, "got 'vlm'"),
        ({"parts": "vllm"}, "parts must be a labengine.Parts"),
    ],
)
def test_what_cannot_be_is_refused(lab: Lab, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        lab.fork(**arguments)


def test_unknown_keywords_are_refused_by_name(lab: Lab) -> None:
    with pytest.raises(TypeError, match=r"fork\(\) has no keyword 'num_block'; did you mean 'num_blocks'"):
        lab.fork(num_block=3)


def test_an_open_step_is_left_out_and_stays_open(lab: Lab) -> None:
    lab.next_phase()
    before = events_until(story(lab), 3)
    with lab.fork() as fork:
        assert fork.snapshot().step == 3 and story(fork) == before and fork.phase != "schedule"
    assert lab.phase == "schedule" and lab.next_phase() == "forward"


def test_what_comes_in_an_open_step_comes_after_it(lab: Lab) -> None:
    lab.next_phase()
    lab.add(token_ids=[1, 2, 3], max_tokens=2)
    assert lab.inputs[-1].num_steps == 4
    with lab.fork() as fork:
        assert story(fork) == story(lab) and fork.snapshot() == lab.snapshot()


def test_a_lab_that_records_nothing_can_be_forked() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, record=False) as lab:
        lab.generate([[1, 2, 3, 4, 5]], max_tokens=4)
        with lab.fork(2) as fork:
            assert fork.timeline is None and fork.snapshot().step == 2
        with lab.fork(2, record=True) as fork:
            assert len(story(fork)) > 10
            fork.run()
            assert fork.snapshot() == lab.snapshot()


def test_a_history_that_was_dropped_can_be_gone_again() -> None:
    with Lab("simulated", num_blocks=64, block_size=4, record=60) as lab:
        lab.generate([[1, 2, 3]], max_tokens=60)
        assert lab.timeline is not None and lab.timeline.num_dropped
        with lab.fork(2, record=True) as fork:
            assert fork.timeline is not None and fork.timeline.num_dropped == 0
            fork.run()
            assert fork.snapshot() == lab.snapshot()
            kept = story(lab)
            assert story(fork)[-len(kept) :] == kept


def test_a_lab_that_was_reset_begins_anew(lab: Lab) -> None:
    lab.reset()
    assert lab.inputs == ()
    lab.generate([[1, 2, 3]], max_tokens=2)
    with lab.fork() as fork:
        assert story(fork) == story(lab)


def test_a_connector_of_ones_own_is_refused_and_may_be_replaced() -> None:
    store = HostStore()
    with Lab("simulated", num_blocks=12, block_size=4, external=store) as lab:
        lab.generate([[1, 2, 3, 4, 5]], max_tokens=2)
        with pytest.raises(ConfigError, match=r"host memory.*: use fork\(external=None\)"):
            lab.fork()
        with lab.fork(external=None) as fork:
            assert fork.external is None and fork.snapshot().step == 2
        with lab.fork(external="host") as fork:
            assert fork.external is not store and story(fork) == story(lab)
        assert len(store) > 0


def test_a_host_tier_that_reset_has_kept_is_reported() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, external="host") as lab:
        lab.generate([[1, 2, 3, 4, 5]], max_tokens=2)
        lab.reset()
        lab.generate([[1, 2, 3, 4, 5]], max_tokens=2)
        with pytest.warns(UserWarning, match=r"reset\(\) kept the host tier's blocks"):
            lab.fork().close()


def test_a_closed_lab_has_nothing_to_share(lab: Lab) -> None:
    lab.close()
    with pytest.raises(LabClosedError):
        lab.fork()


def test_an_interrupt_gives_the_fork_up_and_says_so(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LabSession] = []
    close = LabSession.close

    def closing(fork: LabSession) -> None:
        made.append(fork)
        close(fork)

    monkeypatch.setattr(LabSession, "close", closing)
    sample = lab.session.model.runner.sample

    def sample_and_interrupt(plan: Any, logits: Any) -> list[int]:
        press_ctrl_c()
        return sample(plan, logits)

    monkeypatch.setattr(lab.session.model.runner, "sample", sample_and_interrupt)
    before = state(lab)
    with pytest.raises(KeyboardInterrupt) as interrupted:
        lab.fork()
    assert ["after 1 of 3 steps" in note for note in interrupted.value.__notes__] == [True]
    assert [fork.inspection.status()["state"] for fork in made] == ["closed"] and state(lab) == before


def test_a_long_way_is_shown_by_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[Any] = []

    class Bar:
        def __init__(self, **settings: Any) -> None:
            self.total, self.n = settings["total"], 0
            bars.append(self)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self) -> None:
            self.n += 1

    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        lab.generate([[1, 2, 3]], max_tokens=80)
        lab.fork(20).close()
        assert bars == []
        lab.fork().close()
    assert [(bar.total, bar.n) for bar in bars] == [(80, 80)]


def test_while_the_background_runs() -> None:
    with Lab("simulated", num_blocks=600, block_size=4) as lab:
        lab.add(token_ids=[1, 2, 3], max_tokens=600)
        lab.start()
        forks = [lab.fork() for _ in range(3)]
        lab.pause()
        lab.run()
        for fork in forks:
            fork.run()
            assert fork.snapshot() == lab.snapshot()
            fork.close()


# -- the real model ----------------------------------------------------------------------------------------------------


def test_the_same_tokens_on_the_real_model(smollm2: Lab) -> None:
    smollm2.add("Once upon a time", max_tokens=8)
    smollm2.add("Once upon a time", max_tokens=8, temperature=0.9)
    smollm2.step(3)
    smollm2.add("The capital of France is", max_tokens=4)
    smollm2.step(2)
    with smollm2.fork(4) as fork:
        assert story(fork) == events_until(story(smollm2), 4)
        smollm2.run()
        fork.run()
        assert [fork.output(i).token_ids for i in range(3)] == [smollm2.output(i).token_ids for i in range(3)]
        assert story(fork) == story(smollm2)
        table = smollm2.timeline.state(smollm2.timeline.step_moments(5)[1]).requests[0].block_tables[0]  # type: ignore[union-attr]
        for layer in (0, smollm2.num_layers - 1):
            ours, theirs = fork.kv(table[0], layer), smollm2.kv(table[0], layer)
            assert all((a == b).all() for a, b in zip(ours, theirs, strict=True))


def test_weights_are_shared_and_go_with_the_last_lab() -> None:
    with Lab("smollm2", num_blocks=16, block_size=4, attention="torch") as lab:  # no other lab has these weights
        first = lab.generate("The capital of France is", max_tokens=4)[0]
        fork = lab.fork(0, num_blocks=20, block_size=8)
        assert fork.status()["attention"] == lab.status()["attention"]
        assert fork.session.model.runner.model is lab.session.model.runner.model  # type: ignore[attr-defined]
        third = fork.fork()
        lab.close()
    fork.run()
    assert fork.output(0) == first, "it goes on without the lab that it came from"
    fork.close()
    third.run()
    assert third.output(0) == first
    weights = third.session.model.runner._weights  # type: ignore[attr-defined]
    third.close()
    assert weights.model.norm.weight.is_meta and weights.leave(third)


class NamedLab(Lab):
    """A user's class, with one more argument."""

    def __init__(self, name: str) -> None:
        super().__init__("simulated", num_blocks=8, block_size=4)
        self.name = name

    def steps_taken(self) -> int:
        return self.snapshot().step


def test_a_users_subclass_is_forked_as_its_own_class() -> None:
    with NamedLab("mine") as lab:
        lab.add(token_ids=range(6), max_tokens=3)
        lab.step()
        with lab.fork() as fork:
            assert type(fork) is NamedLab and fork.steps_taken() == 1 and not hasattr(fork, "name")
