"""judge: each verdict on two runs of a request, reached by a real cause on a tiny random model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import labengine
from labengine import ConfigError, Lab, ModelRunner, judge
from labengine.core.step_plan import StepPlan
from labengine.engine.step_tensors import StepTensors
from labengine.events import RequestPreempted
from labengine.record.violation import Violation
from labengine.scenarios import bug
from labengine.scenarios.tiny_model import tiny_model
from labengine.session.judging.sentences import difference_before_sentence
from labengine.session.judging.verdict import RunVerdict

OFF_BY_ONE = bug("nano-vllm-71")

PROMPT = [5, 9, 14, 3, 77, 8, 21, 4, 60, 33, 2, 41, 11]

MakeLab = Callable[..., Lab]

BROKEN: dict[str, Any] = {"parts": OFF_BY_ONE.column("PR 71").all_parts}
RIGHT: dict[str, Any] = {"edition": "nano-vllm-2025-07"}
"""The rule that takes a block one token early, and the rule that does not."""


class ReversedTables(ModelRunner):
    """Reads each request's blocks in reverse order, so that the plan is right but the content is not."""

    def step_tensors(self, plan: StepPlan) -> StepTensors:
        step = super().step_tensors(plan)
        groups = tuple(replace(group, block_tables=group.block_tables.flip(1)) for group in step.groups)
        return replace(step, groups=groups)


class RotatedLogits(ModelRunner):
    """Gives each token the logit of its neighbour."""

    def forward(self, plan: StepPlan) -> Tensor:
        return super().forward(plan).roll(1, dims=-1)


class SecondHighest(ModelRunner):
    """Samples the second highest logit."""

    def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
        return [int(token) for token in logits.topk(2).indices[:, 1]]


class DrawsByCalls(ModelRunner):
    """Samples a different token in each call, so that it depends on more than its inputs."""

    calls = count()

    def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
        number = next(self.calls)
        return [number % 90 for _ in plan.sampling]


@pytest.fixture
def make() -> Iterator[MakeLab]:
    with ExitStack() as labs:

        def make_lab(model: str | Path | None = None, **settings: Any) -> Lab:
            defaults: dict[str, Any] = {"num_blocks": 24, "block_size": 4}
            if model != "simulated":
                defaults |= {"device": "cpu", "attention": "torch", "dtype": "float32"}
                if "runner" in settings and settings["runner"].attention is not None:
                    del defaults["attention"]
            lab = labs.enter_context(Lab(str(model or tiny_model()), **defaults | settings))
            lab.session.violation_warnings.is_silent = True
            return lab

        yield make_lab


def ran(lab: Lab, *prompts: list[int], max_tokens: int = 6, **sampling: Any) -> Lab:
    for prompt in prompts or (PROMPT,):
        lab.add(token_ids=prompt, max_tokens=max_tokens, ignore_eos=True, **sampling)
    lab.run()
    return lab


def assert_plain(verdict: RunVerdict) -> None:
    assert json.loads(json.dumps(verdict.to_dict(), allow_nan=False))["kind"] == verdict.kind
    assert verdict._repr_html_().count("<rect") == (0 if verdict.first_difference is None else 3)
    assert repr(verdict).lower().startswith(f"{verdict.kind.lower()}: ")


# -- the verdicts ------------------------------------------------------------------------------------------------------


def test_the_same_steps_are_equal_bit_for_bit(make: MakeLab) -> None:
    verdict = judge(ran(make()), ran(make()))
    assert verdict.kind == "equal" and "bit for bit" in verdict.message
    assert verdict.figures is not None and verdict.figures.is_bitwise_equal
    assert (verdict.figures.num_tokens, verdict.figures.num_positions) == (6, len(PROMPT) + 5)
    assert_plain(verdict)


def test_chunks_round_otherwise_and_the_tokens_are_equal(make: MakeLab) -> None:
    verdict = judge(ran(make()), ran(make(max_num_batched_tokens=3)))
    assert verdict.kind == "equal" and "the bits are not" in verdict.message
    figures = verdict.figures
    assert figures is not None and 0 < figures.key_difference < 1e-4 and 0 < figures.logit_difference < 1e-3
    assert_plain(verdict)


def test_another_dtype_is_other_rounding_and_shows_at_a_narrow_tie(make: MakeLab) -> None:
    labs = [ran(make(dtype=dtype, num_blocks=64), max_tokens=100) for dtype in ("float32", "bfloat16")]
    one, other = (lab.output(0).token_ids for lab in labs)
    first = next(i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
    verdict = judge(*labs)
    assert verdict.kind == "other rounding" and verdict.first_difference == len(PROMPT) + first
    assert verdict.figures is not None and verdict.figures.margin is not None
    margin, figures = verdict.figures.margin, verdict.figures
    assert margin.tokens == (labs[0].token_text(one[first]), labs[1].token_text(other[first]))
    assert 0 < sum(margin.margins) <= 2 * margin.logit_difference <= 2 * figures.logit_difference
    assert max(layer.relative for layer in figures.layers) < figures.limit and figures.distances is None
    assert_plain(verdict)


def test_a_misread_is_wrong_content_with_slot_and_event(make: MakeLab) -> None:
    labs = [ran(make(**engine), [1, 2, 3]) for engine in (BROKEN, RIGHT)]
    verdict = judge(*labs)
    assert verdict.kind == "wrong content"
    found = verdict.misreads[0][0]
    assert verdict.misreads == (tuple(v for v in labs[0].violations if v.rule == "read"), ())
    assert found.message in verdict.message and f"event {found.first_event}" in verdict.message
    assert verdict.figures is not None and verdict.figures.key_difference > 0
    assert_plain(verdict)


def test_what_the_runner_reads_wrongly_is_wrong_content_though_the_plan_is_right(make: MakeLab) -> None:
    broken, right = ran(make(runner=ReversedTables)), ran(make())
    verdict = judge(broken, right)
    assert verdict.kind == "wrong content" and verdict.misreads == ((), ())
    assert "The KV of the first run " in verdict.message and "below the plan" in verdict.message
    assert verdict.figures is not None and verdict.figures.distances is not None
    wrong, exact = verdict.figures.distances
    assert wrong > verdict.figures.limit > exact and verdict.figures.first_far_layer == 1
    assert_plain(verdict)


@pytest.mark.parametrize("bug_id", ["sglang-32477", "vllm-7018"])
def test_upstream_bugs_below_the_plan_are_wrong_content_of_the_broken_engine(bug_id: str) -> None:
    """A padded row's NaN, and a table of zeros: no rule is broken, and the fixed engine has the request's own KV."""
    with labengine.bug(bug_id).compare() as comparison:
        comparison.run()
        left, right = comparison.left, comparison.right
        states = left.snapshot().requests, right.snapshot().requests
        wrong = [i for i in states[0] if states[0][i].token_ids != states[1][i].token_ids]
        verdict = judge(left, right, request=wrong[0], names=comparison.names)
    assert verdict.kind == "wrong content" and f"The KV of {comparison.names[0]} does not match" in verdict.message
    assert verdict.figures is not None and verdict.figures.distances is not None
    assert verdict.figures.distances[0] > 1 and verdict.figures.distances[1] < 1e-5
    assert_plain(verdict)


@pytest.mark.parametrize(("runner", "word"), [(RotatedLogits, "The logits differ"), (SecondHighest, "the sampler")])
def test_what_goes_wrong_after_the_kv_is_not_the_kv(make: MakeLab, runner: type[ModelRunner], word: str) -> None:
    verdict = judge(ran(make()), ran(make(runner=runner)))
    assert verdict.kind == "not the KV" and word in verdict.message
    assert verdict.first_difference == len(PROMPT)
    assert_plain(verdict)


class TiedLogits(ModelRunner):
    """Raises the second highest logit to the highest one, as rounding to bfloat16 may."""

    def forward(self, plan: StepPlan) -> Tensor:
        logits = super().forward(plan)
        top = logits.topk(2)
        return logits.scatter(1, top.indices[:, 1:], top.values[:, :1])


def test_an_exact_tie_is_no_fault_of_the_sampler(make: MakeLab) -> None:
    verdict = judge(ran(make(), max_tokens=20), ran(make(runner=TiedLogits), max_tokens=20))
    assert verdict.figures is not None and verdict.figures.margin is not None
    assert verdict.figures.margin.margins[1] == 0 and verdict.figures.margin.is_possible


def test_a_drawn_token_need_not_be_the_highest(make: MakeLab) -> None:
    labs = [ran(make(dtype=dtype, num_blocks=64), max_tokens=60, temperature=1.0) for dtype in ("float32", "bfloat16")]
    assert judge(*labs).kind == "other rounding"


# -- the runs ----------------------------------------------------------------------------------------------------------


def test_a_cold_and_a_warm_request_of_one_lab(make: MakeLab) -> None:
    lab = ran(ran(make()))
    verdict = judge((lab, "A"), (lab, 1))
    assert verdict.kind == "equal" and verdict.names == ("request A", "request B")
    assert lab.session.inspection.snapshot().step == 12 and lab.violations == []


def test_a_batch_and_an_unfinished_request(make: MakeLab) -> None:
    alone = ran(make())
    batch = make()
    for prompt in ([7, 7, 7], PROMPT, [50, 3]):
        batch.add(token_ids=prompt, max_tokens=6, ignore_eos=True)
    batch.step(3)
    verdict = judge(alone, (batch, "B"), names=("alone", "in a batch"))
    assert verdict.kind == "equal" and verdict.figures is not None and verdict.figures.num_tokens == 3


def test_with_a_tier_in_host_memory_and_without(make: MakeLab) -> None:
    with_tier = make(external="host", num_blocks=12)
    for prompt in (PROMPT, list(range(20, 40)), PROMPT):
        ran(with_tier, prompt)
    verdict = judge(ran(make()), (with_tier, "C"))
    assert verdict.kind == "equal"


def test_requests_that_were_preempted_are_judged(make: MakeLab) -> None:
    tight = ran(make(num_blocks=8), PROMPT, PROMPT[::-1], max_tokens=10)
    assert tight.timeline is not None and tight.timeline.of_kind(RequestPreempted)
    assert judge(ran(make(), max_tokens=10), tight).kind == "equal"
    assert judge(ran(make(), PROMPT[::-1], max_tokens=10), (tight, 1), request="A").kind == "equal"


def test_a_lab_without_checks_is_judged_by_its_repetition(make: MakeLab) -> None:
    unchecked = ran(make(**BROKEN, check=False), [1, 2, 3])
    verdict = judge(unchecked, ran(make(), [1, 2, 3]))
    assert verdict.kind == "wrong content" and unchecked.violations == []


def test_the_simulated_model_is_judged_by_the_oracle_alone(make: MakeLab) -> None:
    broken, right, unchecked = (
        ran(make("simulated", **engine), [1, 2, 3]) for engine in (BROKEN, RIGHT, {**BROKEN, "check": False})
    )
    assert judge(broken, right).kind == judge(right, unchecked).kind == "wrong content"
    verdict = judge(right, ran(make("simulated"), [1, 2, 3]))
    assert verdict.kind == "equal" and verdict.figures is None and "no weights" in verdict.message
    assert_plain(verdict)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_runs_of_other_requests_are_refused(make: MakeLab) -> None:
    lab = ran(make(), PROMPT, PROMPT[1:], PROMPT)
    lab.add(token_ids=PROMPT, temperature=1.0), lab.add(token_ids=PROMPT, extra_keys={"adapter": "x"})
    lab.add(token_ids=PROMPT)
    for other, message in (
        (0, "the same lab"),
        (1, "different prompts"),
        (3, "temperature 0.0 and 1.0"),
        (4, "extra_keys"),
        (5, "request F of the second run has not sampled a token yet"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            judge((lab, 0), (lab, other))
    with pytest.raises(ConfigError, match="different models"):
        judge(lab, ran(make("simulated")))
    with pytest.raises(ConfigError, match="a run must be a lab"):
        judge(lab, "other")  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="no request"):
        judge(lab, (lab, "Z"))


def test_drawn_tokens_need_the_same_seed(make: MakeLab) -> None:
    lab = ran(make(), PROMPT, PROMPT, temperature=1.0)
    with pytest.raises(ConfigError, match="seed 0 and 1"):
        judge((lab, 0), (lab, 1))
    seeded = ran(make(), PROMPT, PROMPT, temperature=1.0, seed=5)
    assert judge((seeded, 0), (seeded, 1)).kind == "equal"


def test_a_run_that_depends_on_more_than_its_inputs_is_refused(make: MakeLab) -> None:
    with pytest.raises(ConfigError, match="gets different tokens"):
        judge(ran(make()), ran(make(runner=DrawsByCalls)))


def test_a_tier_that_stays_is_refused(make: MakeLab, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="external"):
        judge(ran(make()), ran(make(external=tmp_path / "tier")))


def test_nothing_of_it_is_loaded_with_labengine() -> None:
    assert labengine.judge is judge and "judge" in labengine.__all__


def test_names_are_escaped_in_a_notebook(make: MakeLab) -> None:
    labs = [ran(make(dtype=dtype, num_blocks=64), max_tokens=100) for dtype in ("float32", "bfloat16")]
    html = judge(*labs, names=("<b>one</b>", "two"))._repr_html_()
    assert "<b>one" not in html and "&lt;b&gt;one" in html and html.count("<rect") == 3


def test_without_figures_another_request_that_misread_is_named(make: MakeLab) -> None:
    """The judged request may have hit KV computed since, because the oracle reports only the first link of a chain."""
    labs = [ran(make("simulated", **engine), [1, 2, 3]) for engine in (BROKEN, RIGHT)]
    for lab in labs:
        ran(lab, [7, 8], max_tokens=1)
    verdict = judge(*labs, request="B")
    assert verdict.kind == "equal" and "In the first run, request 0 reads position 3" in verdict.message


def test_a_misread_after_the_first_differing_token_did_not_cause_it() -> None:
    read = Violation("read", "request 0 reads position 9 ...", (0,), (2,), step=7, first_event=40)
    assert "due to rounding" in difference_before_sentence(((read,), ()), (6, 6))
    assert difference_before_sentence(((read,), ()), (7, 7)) == ""
