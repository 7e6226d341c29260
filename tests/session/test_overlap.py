"""A lab whose free steps are scheduled ahead: run, generate, start and stream, with hands and looks in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import sleep
from typing import Any

import pytest

from labengine import Lab, Parts
from labengine.config import ConfigError
from labengine.core.request import FinishReason, Request
from labengine.core.step_plan import StepPlan
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.ahead import LOOKED_TOO_EARLY, OverlappedEngine
from labengine.engine.simulated import SimulatedRunner
from labengine.engine.step_report import StepReport
from labengine.events import Event
from labengine.record.fold import fold
from waiting import PATIENCE, wait_until

PROMPTS = ["the cat sat on the mat", "the cat sat on the hat and the bat", "a b c d e f g h i j k l m n o p"]


def small_lab(overlap: bool) -> Lab:
    """Three prompts do not fit together."""
    return Lab("simulated", num_blocks=12, block_size=4, max_num_seqs=4, check=False, overlap=overlap)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with small_lab(True) as lab:
        yield lab


def engine_of(lab: Lab) -> OverlappedEngine:
    engine = lab.session.stepper.engine
    assert isinstance(engine, OverlappedEngine)
    return engine


def events_of(lab: Lab) -> list[Event]:
    assert lab.timeline is not None
    return list(lab.timeline.events())


def generate(lab: Lab) -> object:
    return lab.generate(PROMPTS, max_tokens=20)


def stream(lab: Lab) -> object:
    ids = [lab.add(prompt, max_tokens=20) for prompt in PROMPTS]
    return [list(lab.stream(i)) for i in ids]


def run_with_looks(lab: Lab) -> object:
    for prompt in PROMPTS:
        lab.add(prompt, max_tokens=20)
    seen = []

    def until(lab: Lab) -> bool:
        step = lab.snapshot().step if len(seen) % 3 else 0
        seen.append((step, lab.output(1), lab.stats().occupancy, lab.stats().peak_used_blocks))
        return len(seen) > 12

    lab.run(until)
    lab.abort(2)
    lab.step()
    list(lab.phases())
    lab.next_phase()
    lab.run()
    return seen, [lab.output(i) for i in range(3)], lab.snapshot()


@pytest.mark.parametrize("use", [generate, stream, run_with_looks])
def test_the_same_happens_as_without(use: Callable[[Lab], object]) -> None:
    with small_lab(False) as plain, small_lab(True) as ahead:
        assert use(plain) == use(ahead)
        assert events_of(plain) == events_of(ahead)
        assert plain.snapshot() == ahead.snapshot() == fold(events_of(ahead))
        assert plain.stats().peak_used_blocks == ahead.stats().peak_used_blocks


def test_a_run_is_ahead_and_looking_ends_that(lab: Lab) -> None:
    lab.add(PROMPTS[0], max_tokens=20)
    lab.run(until=lambda lab: lab.output(0).token_ids)
    assert engine_of(lab)._ahead is not None
    lab.status(), lab.stats(), lab.output(0)
    assert engine_of(lab)._ahead is not None, "these three do not look at what is anticipated"
    assert lab.snapshot().step == 1
    assert engine_of(lab)._ahead is None


def test_steps_by_hand_never_are(lab: Lab) -> None:
    lab.add(PROMPTS[0], max_tokens=20)
    for _ in range(3):
        assert lab.step()
        assert engine_of(lab)._ahead is None
    for _ in lab.phases():
        assert engine_of(lab)._ahead is None


def test_the_background_is_ahead_while_requests_come_and_go(lab: Lab) -> None:
    ids = []
    for n in range(12):
        ids.append(lab.add(PROMPTS[n % 3], max_tokens=20))
        lab.start()
        if n % 4 == 3:
            lab.abort(ids[-2])
        lab.snapshot()
        sleep(0.002)
    wait_until(lambda: not lab.is_running)
    assert lab.background_error is None
    assert fold(events_of(lab)) == lab.snapshot()
    assert all(lab.output(i).finish_reason in ("length", "abort") for i in ids)
    assert not lab.snapshot().num_used_blocks


def test_other_threads_see_sampled_tokens_only(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while a step samples that was completely anticipated."""
    sample, lock = SimulatedRunner.sample, lab.session.stepper._lock

    def sample_during_a_look(runner: SimulatedRunner, plan: StepPlan, logits: None) -> list[int]:
        wait_until(lambda: lock._queue, "the other thread to ask for the lock")
        return sample(runner, plan, logits)

    monkeypatch.setattr(SimulatedRunner, "sample", sample_during_a_look)
    ids = [lab.add(prompt, max_tokens=20) for prompt in PROMPTS]
    lab.start()
    seen = []
    while lab.is_running:
        seen += [lab.output(i) for i in ids]
    final = [lab.output(i) for i in ids]
    assert len(seen) >= 20, "at least one look in every step"
    for output in seen:
        end = final[ids.index(output.request_id)]
        assert output.token_ids == end.token_ids[: len(output.token_ids)]
        assert output.finish_reason is None or output == end


def test_generate_believes_no_end_that_may_be_taken_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two of its steps another thread begins the last one, which fails when all of it is anticipated."""
    runs, is_sampling = lab.session.runs, threading.Event()
    take_step, sample = runs.take_step, SimulatedRunner.sample

    def fail_slowly(runner: SimulatedRunner, plan: StepPlan, logits: None) -> list[int]:
        monkeypatch.setattr(SimulatedRunner, "sample", sample)
        is_sampling.set()
        wait_until(lambda: lab.session.stepper._lock._queue, "generate() to ask for the lock")
        raise ValueError

    def step_elsewhere() -> None:
        with suppress(ValueError):
            take_step()

    def step_and_another_begins() -> StepReport:
        report = take_step()
        if report.step == 2 and not is_sampling.is_set():
            monkeypatch.setattr(SimulatedRunner, "sample", fail_slowly)
            threading.Thread(target=step_elsewhere).start()
            assert is_sampling.wait(PATIENCE)
        return report

    monkeypatch.setattr(runs, "take_step", step_and_another_begins)
    [output] = lab.generate(PROMPTS[0], max_tokens=3)
    assert is_sampling.is_set()
    assert (len(output.token_ids), output.finish_reason) == (3, "length")


class PrintsTheLab(TokenBudgetScheduler):
    """A listener that a user writes to watch the lab, and forgets."""

    lab: Lab
    look: Callable[[Lab], object]

    def finish(self, request: Request, reason: FinishReason) -> None:
        type(self).look(self.lab)
        super().finish(request, reason)


@pytest.mark.parametrize("look", [Lab.snapshot, Lab.fold, Lab.check, str])
def test_a_part_that_looks_ends_it_and_status_says_so(look: Callable[[Lab], object]) -> None:
    PrintsTheLab.look = look
    parts = Parts(scheduler=PrintsTheLab)
    with (
        Lab("simulated", num_blocks=12, block_size=4, check=False, overlap=True, parts=parts) as ahead,
        Lab("simulated", num_blocks=12, block_size=4, check=False, overlap=False, parts=parts) as plain,
    ):
        for lab in (ahead, plain):
            lab.session.stepper.engine.scheduler.lab = lab  # type: ignore[attr-defined]
        assert generate(ahead) == generate(plain)
        assert events_of(ahead) == events_of(plain)
        assert ahead.check() == []
        assert ahead.status()["scheduling"] == f"synchronous ({LOOKED_TOO_EARLY})"


def test_a_stream_beside_the_background(lab: Lab) -> None:
    request_id = lab.add(PROMPTS[0], max_tokens=20)
    lab.start()
    assert "".join(lab.stream(request_id)) == lab.output(request_id).text


def test_a_closed_lab_can_be_looked_at(lab: Lab) -> None:
    lab.add(PROMPTS[0], max_tokens=20)
    lab.run(until=lambda lab: True)
    lab.close()
    assert lab.snapshot() == fold(events_of(lab))


def texts_of(overlap: bool, **options: Any) -> tuple[object, list[Event]]:
    """Two greedy texts and two drawn ones, and what happened."""
    with Lab("smollm2", num_blocks=64, block_size=4, check=False, overlap=overlap, **options) as lab:
        prompts = ["Q: Is the sky blue? A:", "One, two, three,"]
        outputs = [lab.generate(prompts, max_tokens=10), lab.generate(prompts, max_tokens=10, temperature=1.0, seed=3)]
        return outputs, events_of(lab)


def test_a_real_model_says_the_same() -> None:
    assert texts_of(True) == texts_of(False)


@pytest.mark.gpu
def test_a_gpu_overlaps_by_itself_and_says_the_same() -> None:
    with Lab("smollm2", device="cuda", check=False) as lab:
        assert lab.status()["scheduling"] == "overlapped with the forward"
    assert texts_of(True, device="cuda") == texts_of(False, device="cuda")


def test_status_says_so(lab: Lab) -> None:
    assert lab.status()["scheduling"] == "overlapped with the forward"
    with small_lab(False) as plain, Lab("simulated") as usual, Lab("simulated", external="host", check=False) as tiered:
        assert plain.status()["scheduling"] == "synchronous (asked for)"
        assert usual.status()["scheduling"].startswith("synchronous (the checks look at the core")
        assert tiered.status()["scheduling"].startswith("synchronous (the external tier")


def test_the_checks_and_an_overlap_are_not_both_to_be_had() -> None:
    with pytest.raises(ConfigError, match="check=False"):
        Lab("simulated", overlap=True)
