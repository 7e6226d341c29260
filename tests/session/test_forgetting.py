"""A lab keeps its newest finished requests: older ones are dropped, their figures stay, and a query for one says so."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

import labengine
from check.mutations import FreesWithoutRepointing
from driving import difference
from labengine.config import ConfigError
from labengine.core.parts import Parts
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import RequestFinished, RequestForgotten, StepEnded
from labengine.lab import Lab
from labengine.record.fold import fold
from labengine_widgets.why import WhyError


def small_lab(keep_finished: int | None = 2, **settings: object) -> Lab:
    return Lab("simulated", num_blocks=24, block_size=4, keep_finished=keep_finished, **settings)  # type: ignore[arg-type]


def worked(lab: Lab, num_requests: int = 6) -> Lab:
    """Request i has i + 1 tokens to sample: they finish one after the other; the third is aborted."""
    for i in range(num_requests):
        lab.add(token_ids=range(10 * i, 10 * i + 6), max_tokens=i + 1)
    lab.step(2)
    lab.abort(2)
    lab.run()
    return lab


def kept(lab: Lab) -> list[int]:
    return list(lab.snapshot().requests)


def test_the_newest_are_kept_after_every_step() -> None:
    with small_lab() as lab:
        for i in range(5):
            lab.add(token_ids=range(6), max_tokens=i + 1)
        left = []
        while lab.step():
            left.append(kept(lab))
            assert difference(fold(lab.timeline.events()), lab.snapshot()) is None  # type: ignore[union-attr]
    assert left == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [1, 2, 3, 4], [2, 3, 4], [3, 4]]


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_the_oldest_goes_first_and_between_steps(keep: int) -> None:
    with worked(small_lab(keep)) as lab:
        events = lab.timeline.events()  # type: ignore[union-attr]
        finished = [event.request_id for event in events if isinstance(event, RequestFinished)]
        forgotten = [event.request_id for event in events if isinstance(event, RequestForgotten)]
        assert forgotten == finished[: len(finished) - keep] and sorted(kept(lab)) == sorted(finished[len(forgotten) :])
        before = [type(events[i - 1]) for i, event in enumerate(events) if isinstance(event, RequestForgotten)]
        assert set(before) <= {StepEnded, RequestForgotten, RequestFinished}
        assert not lab.violations and not lab.check()


def test_by_default_small_runs_are_unchanged_and_none_keeps_all() -> None:
    with worked(Lab("simulated", num_blocks=24, block_size=4)) as usual, worked(small_lab(None)) as unlimited:
        assert usual.config.keep_finished == 10_000 and kept(usual) == kept(unlimited) == [0, 1, 2, 3, 4, 5]


def test_a_forgotten_request_is_named_as_such() -> None:
    with worked(small_lab()) as lab:
        for ask in (lab.output, lab.stream, lab.abort):
            for named in (0, "A"):
                with pytest.raises(KeyError, match=r"been forgotten: .* keeps the newest 2"):
                    ask(named)
            with pytest.raises(KeyError, match=r"no request 6: .* 0 to 5"):
                ask(6)
        with pytest.raises(WhyError, match=r"request 0 \(A\).*keep_finished"):
            lab.why(request="A", about="hit")
        lab.goto(2)
        assert "A" in str(lab.why(request="A"))
        assert "6 added, 4 forgotten" in lab.status()["requests"]


class CannotForget(TokenBudgetScheduler):
    """Fails after the first step in which a request has finished."""

    def forget_finished(self) -> None:
        if self.finished:
            raise OSError("no")


def test_a_part_that_fails_to_forget_fails_after_the_step() -> None:
    """The computed result stays, since there is nothing to roll back."""
    with small_lab(0, parts=Parts(scheduler=CannotForget)) as lab, small_lab(None) as unlimited:
        for one in (lab, unlimited):
            one.add(token_ids=range(6), max_tokens=2)
            one.step()
        with pytest.raises(OSError, match="no"):
            lab.step()
        unlimited.step()
        assert difference(lab.snapshot(), unlimited.snapshot()) is None and not lab.check()
        assert difference(fold(lab.timeline.events()), lab.snapshot()) is None  # type: ignore[union-attr]


def test_ids_are_counted_on() -> None:
    with worked(small_lab()) as lab:
        assert lab.add(token_ids=range(6), max_tokens=1) == 6
        lab.reset()
        assert lab.add(token_ids=range(6), max_tokens=1) == 0


def test_figures_of_the_forgotten_stay_in_the_sums() -> None:
    with worked(small_lab()) as lab, worked(small_lab(None)) as unlimited:
        few, all_of_them = lab.stats(), unlimited.stats()
        for name in ("num_requests", "num_finished", "num_steps", "num_sampled_tokens", "hit_rate", "peak_used_blocks"):
            assert getattr(few, name) == getattr(all_of_them, name)
        assert list(few.time_to_first_token) == kept(lab)
        times = all_of_them.time_to_first_token
        assert all_of_them.mean_time_to_first_token == pytest.approx(sum(times.values()) / len(times))
        assert few.mean_time_to_first_token > max(few.time_to_first_token.values()) / 6


def growth(lab: Lab) -> float:
    """Bytes that stay of each of 80 short requests, after 80 others."""
    memory = []
    for _ in range(2):
        for i in range(8):
            for k in range(10):
                lab.add(token_ids=[i, k, 3], max_tokens=1)
            lab.run()
        gc.collect()
        memory.append(tracemalloc.get_traced_memory()[0])
    return (memory[1] - memory[0]) / 80


def test_little_stays_of_a_forgotten_request() -> None:
    """The data that fork needs of it: tokens and settings."""
    tracemalloc.start()
    try:
        with small_lab(10, record=100) as lab, small_lab(None, record=100) as unlimited:
            few, all_of_it = growth(lab), growth(unlimited)
    finally:
        tracemalloc.stop()
    assert few < 500 < all_of_it, (few, all_of_it)


def test_generate_answers_every_prompt_however_few_are_kept() -> None:
    with small_lab(0) as lab, small_lab(None) as unlimited:
        prompts = [[*range(i, i + 6)] for i in range(7)]
        assert lab.generate(prompts, max_tokens=3) == unlimited.generate(prompts, max_tokens=3)
        assert kept(lab) == []


def test_a_stream_goes_on_to_its_end() -> None:
    with small_lab(0) as lab, small_lab(None) as unlimited:
        texts = ["".join(one.stream(one.add(token_ids=range(6), max_tokens=4))) for one in (lab, unlimited)]
    assert texts[0] == texts[1] != ""


def test_forks_and_rewinds_forget_the_same() -> None:
    with worked(small_lab()) as lab:
        events, steps = lab.timeline.events(), lab.snapshot().step  # type: ignore[union-attr]
        with lab.fork() as fork, lab.fork(keep_finished=None) as unlimited:
            assert fork.timeline is not None and fork.timeline.events() == events
            assert kept(unlimited) == [0, 1, 2, 3, 4, 5]
        lab.rewind(2)
        assert kept(lab) == [0, 1, 2, 3, 4, 5][1:]
        lab.rewind(steps)
        assert lab.timeline is not None and lab.timeline.events() == events


def test_it_is_written_down_as_a_script_and_saved(tmp_path: Path) -> None:
    with worked(small_lab()) as lab:
        code = lab.to_code()
        assert "keep_finished=2" in code and code.count("lab.add(") == 6
        lab.save(tmp_path / "run.lab")
        with labengine.open(tmp_path / "run.lab") as trace:
            assert difference(trace.snapshot(), lab.snapshot()) is None
            assert [*trace.timeline.state(40).requests] == [*lab.timeline.state(40).requests]  # type: ignore[union-attr]


def test_two_labs_in_lockstep_forget_side_by_side() -> None:
    with labengine.compare(small_lab(), small_lab(edition="vllm")) as comparison:
        for _ in range(3):
            comparison.add(token_ids=range(6), max_tokens=2)
            comparison.run()
        assert [kept(comparison.left), kept(comparison.right)] == [[1, 2]] * 2


def test_a_violation_is_traced_through_requests_that_were_forgotten() -> None:
    """The check walks the recording, in which requests write that the engine does not know any more."""
    with small_lab(0, parts=Parts(full_attention_group=FreesWithoutRepointing)) as broken:
        broken.generate([list(range(6))], max_tokens=2)
        with suppress(RuntimeError):
            broken.generate([list(range(9))] * 2, max_tokens=6)
        assert kept(broken) == [1, 2]
        assert broken.violations and all(v.rule != "watch" for v in broken.violations)
        assert all(v.first_event is not None for v in broken.violations)


@pytest.mark.parametrize("value", [-1, 2.5, "all", True])
def test_only_a_number_or_none_will_do(value: object) -> None:
    with pytest.raises(ConfigError, match="keep_finished must be"):
        small_lab(value)  # type: ignore[arg-type]
