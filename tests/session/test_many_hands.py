"""Concurrent use: threads that add requests, a busy background, and views that post commands."""

from __future__ import annotations

import threading

import pytest

import labengine
from labengine.config import ConfigError
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.lab import Lab
from waiting import PATIENCE, join, wait_until


def test_threads_add_while_it_runs() -> None:
    errors: list[BaseException] = []
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        lab.add(token_ids=range(4), max_tokens=200)

        def add_some(name: int) -> None:
            try:
                for i in range(20):
                    request_id = lab.add(f"thread {name} says number {i} and more", max_tokens=3)
                    prompt = lab.snapshot().requests[request_id].token_ids[:7]
                    assert "".join(map(lab.token_text, prompt)) == f"thread {name} says number {i} and more"
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=add_some, args=(name,), daemon=True) for name in range(6)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            lab.run()
        lab.run()
        assert errors == []
        state = lab.snapshot()
        assert len(state.requests) == 121 and {r.status for r in state.requests.values()} == {"finished"}
        assert lab.check() == [] and lab.hooks.failures == []
        assert lab.timeline is not None and lab.timeline.state().snapshot() == state


def test_threads_add_texts_to_the_real_model_while_it_runs(smollm2: Lab) -> None:
    (expected,) = smollm2.generate("One, two, three,", max_tokens=4)
    errors: list[BaseException] = []

    def add_some() -> None:
        try:
            for _ in range(5):
                smollm2.add("One, two, three,", max_tokens=4)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add_some, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    smollm2.run(until=lambda lab: False)
    join(*threads)
    smollm2.run()
    assert errors == [] and smollm2.check() == []
    outputs = [smollm2.output(request_id).token_ids for request_id in smollm2.snapshot().requests]
    assert len(outputs) == 21 and set(outputs) == {expected.token_ids}


def test_the_background_works_and_the_lab_can_be_asked(smollm2: Lab) -> None:
    smollm2.add("One, two, three,", max_tokens=200, ignore_eos=True)
    smollm2.start()
    assert smollm2.is_running and smollm2.status()["state"] == "running"
    wait_until(lambda: smollm2.snapshot().step > 2)
    second = smollm2.add("The capital of France is", max_tokens=4)
    wait_until(lambda: smollm2.output(second).finish_reason is not None)
    assert "Paris" in smollm2.output(second).text
    smollm2.pause()
    step = smollm2.snapshot().step
    assert not smollm2.is_running and smollm2.snapshot().requests[0].status == "running"
    assert smollm2.post(smollm2.snapshot).result(PATIENCE).step == step, "its thread has taken no step"
    assert smollm2.check() == []


def test_work_added_while_the_background_runs_is_done(lab: Lab) -> None:
    lab.add(token_ids=range(4), max_tokens=20)
    lab.start()
    added = [lab.add(token_ids=range(i, i + 5), max_tokens=5) for i in range(4)]
    lab.start()
    wait_until(lambda: all(lab.output(request_id).finish_reason == "length" for request_id in [0, *added]))
    wait_until(lambda: not lab.is_running)


def test_an_error_in_the_background_ends_the_run_and_is_kept(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.add(token_ids=range(6), max_tokens=5)
    before = lab.snapshot()

    def fail(plan: object) -> None:
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patched:
        patched.setattr(lab.session.model.runner, "forward", fail)
        lab.start()
        wait_until(lambda: not lab.is_running)
    assert str(lab.background_error) == "no more memory"
    assert lab.snapshot() == before and lab.check() == []
    lab.start()
    wait_until(lambda: not lab.is_running)
    assert lab.background_error is None and lab.output(0).finish_reason == "length"


def test_posted_commands_answer_with_a_future(lab: Lab) -> None:

    view_source = lab.view_source()
    assert view_source.post("add", prompt="a b c", copies=2, max_tokens=3, n=1, beams=1, priority=0).result(
        PATIENCE
    ) == [0, 1]
    assert view_source.post("phase").result(PATIENCE) == "schedule" and view_source.phase == "schedule"
    assert view_source.post("step").result(PATIENCE).step == 1 and view_source.phase is None
    assert isinstance(view_source.post("goto", step=9).exception(PATIENCE), ConfigError)
    with pytest.raises(ConfigError, match="no command 'abort'"):
        view_source.post("abort", request_id=0)
    view_source.post("start").result(PATIENCE)
    wait_until(lambda: not view_source.is_running)
    view_source.post("pause").result(PATIENCE)
    view_source.post("reset").result(PATIENCE)
    assert lab.snapshot().requests == {}


def test_a_scheduler_that_starves_a_request_is_reported_instead_of_waiting_for_ever():
    class Starving(TokenBudgetScheduler):
        def schedule(self) -> StepPlan:
            return StepPlan(())

    with labengine.Lab("simulated", parts=labengine.Parts(scheduler=Starving)) as lab:
        lab.add(token_ids=[1, 2, 3])
        with pytest.raises(RuntimeError, match="requests are waiting: 0"):
            lab.run()
        lab.start()
        wait_until(lambda: not lab.is_running)
        assert "requests are waiting: 0" in str(lab.background_error)
        assert lab.check() == []
