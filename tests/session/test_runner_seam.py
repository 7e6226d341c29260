"""Lab(runner=...): decisions below the plan, replaced by a subclass; wrong classes are refused before any loading."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from labengine import ConfigError, Lab, ModelRunner, StaticRunner, StaticStep, StaticTorch
from labengine.core.step_plan import StepPlan
from labengine.engine.attention import AttentionBackend, AttentionSetting, StepAttention
from labengine.engine.attention.native import NativeAttention
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors
from labengine.scenarios.tiny_model import tiny_model

PROMPTS = [[5, 9, 14, 3, 77, 8], [21, 4, 60], [33, 2, 41, 11, 90, 17, 6]]
NUM_TOKENS = 12

MakeLab = Callable[..., Lab]


class ReversedTables(ModelRunner):
    """Reads each request's blocks in reverse order."""

    def step_tensors(self, plan: StepPlan) -> StepTensors:
        step = super().step_tensors(plan)
        groups = tuple(replace(group, block_tables=group.block_tables.flip(1)) for group in step.groups)
        return replace(step, groups=groups)


class WithoutPadding(StaticStep):
    """Leaves the rows of finished requests unchanged."""

    def pad(self, rows: StepTensors, first: int) -> None:
        padded.append((rows.num_requests, first))


class KeepsStaleRows(StaticRunner):
    static_step = WithoutPadding


class CountsWrites(StaticTorch):
    def write(self, keys: Tensor, values: Tensor, cache: LayerKV, slots: Tensor) -> None:
        written.append(slots.tolist())
        super().write(keys, values, cache, slots)


class Counting(StaticRunner):
    attention = CountsWrites


class NotesKeys(NativeAttention):
    """The native kernels' attention, module by module."""

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        read.append(max(step.context_lens))
        return super().prepare(step, group)


class Noting(ModelRunner):
    attention = NotesKeys


read: list[int] = []
padded: list[tuple[int, int]] = []
written: list[list[int]] = []


@pytest.fixture
def lab() -> MakeLab:
    def make(runner: type[ModelRunner] | None = None, **settings: Any) -> Lab:
        settings = {"num_blocks": 24, "block_size": 4, "device": "cpu", "runner": runner, **settings}
        return Lab(tiny_model(), **settings)

    return make


def tokens(lab: Lab) -> list[list[int]]:
    """Three requests; the third ends four tokens earlier."""
    for prompt, fewer in zip(PROMPTS, (0, 0, 4), strict=True):
        lab.add(token_ids=prompt, max_tokens=NUM_TOKENS - fewer, ignore_eos=True)
    return run(lab)


def run(lab: Lab) -> list[list[int]]:
    """Run what was added; return each request's new tokens."""
    lab.run()
    return [list(lab.snapshot().requests[number].token_ids[len(prompt) :]) for number, prompt in enumerate(PROMPTS)]


def test_replayed_decodes_give_the_tokens_of_every_other_runner(lab: MakeLab) -> None:
    assert tokens(lab(StaticRunner)) == tokens(lab()) == tokens(lab(StaticRunner, cuda_graphs=False))
    assert lab(StaticRunner).status()["forward"].startswith("replay over static tensors for decodes of 1, 2, 4, 8 and")


def test_an_override_of_the_step_tensors_is_what_the_model_reads(lab: MakeLab) -> None:
    assert tokens(lab(ReversedTables)) != tokens(lab())


def test_an_override_of_the_static_step_and_of_the_attention_is_called(lab: MakeLab) -> None:
    padded.clear()
    written.clear()
    tokens(lab(KeepsStaleRows))
    assert padded == [(3, 2)]
    tokens(lab(Counting))
    assert [-1 in slots for slots in written].count(True) > 0, "three requests run in a graph of four rows"


def test_an_override_of_the_native_attention_is_called(lab: MakeLab) -> None:
    """Its name is that of the native program, which has no modules."""
    own = lab(Noting)
    assert tokens(own) == tokens(lab())
    assert max(read) == len(PROMPTS[0]) + NUM_TOKENS - 1
    assert "NotesKeys, set by the runner" in own.status()["attention"]
    with pytest.raises(ConfigError, match=r"the runner's attention NotesKeys cannot run here: it has kernels for"):
        lab(Noting, dtype="float16")


def test_a_fork_has_the_same_runner(lab: MakeLab) -> None:
    broken = lab(ReversedTables)
    expected = tokens(broken)
    fork = broken.fork(0)
    assert type(fork.session.model.runner) is ReversedTables
    assert run(fork) == expected
    with pytest.raises(ConfigError, match="which determine runner"):
        broken.fork(runner=StaticRunner)


def test_a_script_of_the_session_names_the_runner(lab: MakeLab) -> None:
    code = lab(ReversedTables).to_code()
    assert "runner=ReversedTables" in code and "import ReversedTables\n" in code.split("lab = ")[0]


def test_status_and_the_reasons_of_a_token_name_the_override(lab: MakeLab) -> None:
    counting = lab(Counting)
    assert counting.status()["runner"] == "Counting, a subclass of ModelRunner"
    assert "runner" not in lab().status()
    for kind in ("TokenSampled", "ForwardRan"):
        seam = counting.view_source().seams()[kind]
        assert seam["seam"] == "AttentionBackend.write" and seam["is_custom"]
        assert "written.append" in seam["source"] and seam["base"]["class"] == "StaticTorch"
        assert seam["methods"][-1]["is_emitter"]
    assert not lab().view_source().seams()["TokenSampled"]["is_custom"]


class FirstTokens(ModelRunner):
    def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
        return [7] * len(super().sample(plan, logits))


def test_a_method_behind_a_decorator_can_be_overridden(lab: MakeLab) -> None:
    assert tokens(lab(FirstTokens)) == [[7] * 12, [7] * 12, [7] * 8]


class Misspelt(ModelRunner):
    def step_tensor(self, plan: StepPlan) -> StepTensors:
        return super().step_tensors(plan)


class WrongArguments(ModelRunner):
    def step_tensors(self) -> StepTensors:  # type: ignore[override]
        raise AssertionError


class WrongStatic(StaticRunner):
    static_step: Any = list


class MisspeltPadding(StaticStep):
    def padd(self, rows: StepTensors, first: int) -> None: ...


class PaddingNeverCalled(StaticRunner):
    static_step = MisspeltPadding


class WrongAttention(StaticRunner):
    attention: Any = "torch"


class HalfABackend(AttentionBackend):
    @classmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        return None


class WithHalfABackend(ModelRunner):
    attention = HalfABackend


class AsksAnInstance(NativeAttention):
    def refusal(self, setting: AttentionSetting) -> str | None:  # type: ignore[override]
        return None


class WithAnInstancesRefusal(ModelRunner):
    attention = AsksAnInstance


@pytest.mark.parametrize(
    ("runner", "words"),
    [
        ("fast", "runner must be a subclass of labengine.ModelRunner, not an instance: got 'fast'"),
        (Lab, "runner must be a subclass of labengine.ModelRunner, got <class 'labengine.lab.Lab'>"),
        (Misspelt, r"runner: Misspelt.step_tensor .* ModelRunner; did you mean step_tensors\?"),
        (WrongArguments, r"WrongArguments.step_tensors\(self\) cannot be called that way"),
        (WrongStatic, "runner WrongStatic: static_step must be a subclass of StaticStep, got <class 'list'>"),
        (PaddingNeverCalled, r"MisspeltPadding.padd .* StaticStep; did you mean pad\?"),
        (WrongAttention, "runner WrongAttention: attention must be a subclass of AttentionBackend, got 'torch'"),
        (WithHalfABackend, "attention: HalfABackend is missing name, prepare; see AttentionBackend"),
        (
            WithAnInstancesRefusal,
            r"AsksAnInstance.refusal\(self, setting\) is an instance method, .* add @classmethod",
        ),
    ],
)
def test_a_wrong_runner_is_refused(lab: MakeLab, runner: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        lab(runner)


def test_a_runner_with_attention_of_its_own_refuses_another(lab: MakeLab) -> None:
    with pytest.raises(ConfigError, match="attention='torch': omit it, because StaticRunner "):
        lab(StaticRunner, attention="torch")


def test_the_simulated_model_has_no_runner_to_replace() -> None:
    with pytest.raises(ConfigError, match="runner=StaticRunner: omit it, or use a real model"):
        Lab("simulated", runner=StaticRunner)


def test_the_runner_in_the_docs_writes_padding_into_the_last_slot(lab: MakeLab) -> None:
    """docs/engine.md: the last block is never taken here, but its last slot is written."""
    source = (Path(__file__).parents[2] / "docs/engine.md").read_text(encoding="utf-8")
    example: dict[str, Any] = {}
    exec(re.search(r"```python\n(.*?)\n\n\nlab = ", source, re.DOTALL)[1], example)  # type: ignore[index]
    played = lab(example["Mine"])
    tokens(played)
    keys, _ = played.kv(23, 0)
    assert keys[-1].abs().sum() > 0 and not keys[:-1].any()
