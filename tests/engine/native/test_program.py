"""A complete model as one native program, against the same model module by module in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch.nn.functional import relu

from engine.plan_builder import Dealer, plan_of
from engine.reference import poison
from labengine.config import ConfigError
from labengine.engine.families import table
from labengine.engine.forward.native import NativeForward
from labengine.engine.layers import Attention, LayerStep
from labengine.engine.model_runner import ModelRunner
from labengine.engine.native.layout import Op, OpKind, Step, program_of
from labengine.engine.native.library import team
from labengine.engine.sampler import greedy_on_device

FAMILIES = ("llama", "qwen3", "mistral", "gemma3")
LENGTHS = (40, 3, 23, 61, 1)
STEPS = ((40, 3, 0, 7, 0), (0, 0, 20, 30, 1), (0, 0, 1, 1, 0), (0, 0, 2, 23, 0))


def model_of(family: str, tiny_model: Callable[..., Path], tiny_gemma: Path) -> Path:
    return tiny_gemma if family == "gemma3" else tiny_model(family, tie_word_embeddings=family == "llama")


def logits_of(runner: ModelRunner, threads: int = 1) -> list[torch.Tensor]:
    """The logits of all STEPS, in a pool that is NaN in every slot not yet written."""
    dealer, random = Dealer(runner.kv_tensors.num_blocks, runner.groups), Random(0)
    poison(runner, range(runner.kv_tensors.num_blocks))
    requests = [dealer.request(random.choices(range(101), k=length)) for length in LENGTHS]
    return [
        runner.forward(plan_of(*(r.take(n) for r, n in zip(requests, chunk, strict=True) if n))).clone()
        for chunk in STEPS
    ]


def runner_of(model_dir: Path, attention: str | None, dtype: str, block_size: int = 4) -> ModelRunner:
    return ModelRunner.load(
        model_dir, num_blocks=1200, block_size=block_size, device="cpu", dtype=dtype, attention=attention
    )


@pytest.mark.parametrize(("family", "block_size"), [*zip(FAMILIES, (1, 4, 5, 256), strict=True)])
def test_float32(family: str, block_size: int, tiny_model: Callable[..., Path], tiny_gemma: Path) -> None:
    model_dir = model_of(family, tiny_model, tiny_gemma)
    native = logits_of(runner_of(model_dir, "cpu", "float32", block_size))
    torchs = logits_of(runner_of(model_dir, "torch", "float32", block_size))
    for ours, wanted in zip(native, torchs, strict=True):
        assert (ours - wanted).abs().max() < 1e-4 * wanted.abs().max()


class HalvedAttention(Attention):
    def forward(self, hidden: torch.Tensor, step: LayerStep) -> torch.Tensor:
        return super().forward(hidden, step) / 2


@pytest.mark.parametrize("own", [{"attention": HalvedAttention}, {"activation": relu}])
def test_other_mathematics_run_module_by_module(
    own: dict[str, Any], tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table.FAMILIES, "llama", replace(table.FAMILIES["llama"], **own))
    assert "module" in runner_of(tiny_llama, None, "float32").describe()["forward"]
    (name,) = (module.__name__ for module in own.values())
    with pytest.raises(ConfigError, match=f"computes no {name}"):
        runner_of(tiny_llama, "cpu", "float32")


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_is_as_near_to_float32_as_torch_is(
    family: str, tiny_model: Callable[..., Path], tiny_gemma: Path
) -> None:
    model_dir = model_of(family, tiny_model, tiny_gemma)
    exact = torch.cat(logits_of(runner_of(model_dir, "torch", "float32")))
    native, torchs = (torch.cat(logits_of(runner_of(model_dir, name, "bfloat16"))) for name in ("cpu", "torch"))
    assert (native - exact).square().mean() <= 1.5 * (torchs - exact).square().mean()
    assert (native - exact).square().mean() < 1e-3 * exact.square().mean()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_change_no_bit(dtype: str, tiny_gemma: Path) -> None:
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(logits_of(runner_of(tiny_gemma, None, dtype)))
    torch.set_num_threads(1)
    for other in results[1:]:
        assert all(torch.equal(ours, first) for ours, first in zip(other, results[0], strict=True))


def test_a_profile_names_every_op_and_computes_the_same(tiny_llama: Path) -> None:
    runner = runner_of(tiny_llama, None, "float32")
    forward, request = runner._forward, Dealer(1200, runner.groups).request(list(range(1, 20)))
    assert isinstance(forward, NativeForward)
    plan = plan_of(request.take(19))
    logits = runner.forward(plan).clone()
    profiled, seconds = forward.profile(runner._staging.step_tensors(plan))
    assert torch.equal(profiled, logits)
    names = [name for name, _ in seconds]
    assert names[:2] == ["embed", "rotation"] and names[-3:] == ["norm", "head", "argmax"]
    assert [name for name in names if name.startswith("layers.1.")] == [
        *("layers.1.attention_norm", "layers.1.qkv", "layers.1.rotate", "layers.1.attend", "layers.1.out"),
        *("layers.1.mlp_norm", "layers.1.gate_up", "layers.1.down"),
    ]
    assert all(duration > 0 for _, duration in seconds)


def test_weights_are_kept_once(tiny_llama: Path) -> None:
    """Packed for the kernels; the modules keep shapes, so that the model can still be described."""
    runner = runner_of(tiny_llama, None, "float32")
    kept = {name for name, parameter in runner.model.named_parameters() if parameter.device.type == "cpu"}
    assert all("norm" in name for name in kept)
    assert "0 M parameters" in runner.describe()["model"]


def test_a_row_does_not_depend_on_its_batch(tiny_gemma: Path) -> None:
    """Alone or among others, in one chunk or after a prefix that was there: the same bits."""
    texts = [Random(i).choices(range(101), k=30 + i) for i in range(20)]
    for dtype in ("float32", "bfloat16"):
        runner = runner_of(tiny_gemma, "cpu", dtype)
        dealer = Dealer(1200, runner.groups)
        together = [dealer.request(text) for text in texts]
        runner.forward(plan_of(*(request.take(29 + i) for i, request in enumerate(together))))
        rows = runner.forward(plan_of(*(request.take(1) for request in together))).clone()
        for text, row in zip(texts, rows, strict=True):
            alone = Dealer(1200, runner.groups, seed=7).request(text)
            runner.forward(plan_of(alone.take(len(text) - 1)))
            assert torch.equal(runner.forward(plan_of(alone.take(1)))[0], row)


@pytest.mark.parametrize("vocab_size", [1, 15, 16, 101])
def test_argmax(vocab_size: int, tiny_model: Callable[..., Path]) -> None:
    logits = torch.randn(7, vocab_size)
    logits[1] = 3.0
    logits[2, vocab_size // 2] = torch.nan
    logits[3, -1] = torch.inf
    logits[4, :-1] = -torch.inf
    logits[5] = -torch.inf
    out = torch.empty(2, 7, dtype=torch.int32)
    step = Step(num_sampling=7)
    step.buffers[0], step.buffers[1] = logits.data_ptr(), out.data_ptr()
    team(1).run(torch.float32, program_of([Op(kind=OpKind.ARGMAX, in_=0, out=1, n=vocab_size)]), step)
    wanted = greedy_on_device(logits)
    assert out[1].tolist() == wanted[1].tolist() == [1, 1, 0, 0, 1, 0, 1]
    assert [int(t) for t, fine in out.T if fine] == [int(t) for t, fine in wanted.T if fine]


def test_logits_that_somebody_changed_are_sampled_anew(tiny_llama: Path) -> None:
    runner = runner_of(tiny_llama, "cpu", "float32")
    plan = plan_of(Dealer(1200, runner.groups).request([5] * 9).take(9))
    logits = runner.forward(plan)
    first = runner.sample(plan, logits)
    assert first == [int(logits.argmax())]
    logits[0, first[0]] = -1e9
    assert runner.sample(plan, logits) == [int(logits.argmax())] != first
    assert runner.sample(plan, logits.clone().neg_()) == [int(logits.argmin())]
