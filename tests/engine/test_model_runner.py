from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.plan_builder import Dealer, plan_of
from labengine.config import ConfigError, SamplingParams
from labengine.core.step_plan import StepPlan
from labengine.engine import model_runner, sampler
from labengine.engine.model_runner import ModelRunner


def test_rows_come_in_the_order_of_plan_sampling(tiny_runner: ModelRunner) -> None:
    dealer = Dealer(64, 4)
    texts = [dealer.request([number] * 9) for number in (5, 6, 7)]
    first = plan_of(texts[0].take(9), texts[1].take(4, samples=False), texts[2].take(9))
    logits = tiny_runner.forward(first)
    assert logits.shape == (2, tiny_runner.vocab_size) and logits.dtype == torch.float32
    assert [request.request_id for request in first.sampling] == [0, 2]
    alone = tiny_runner.forward(plan_of(dealer.request([7] * 9).take(9)))
    assert torch.allclose(logits[1], alone[0], atol=1e-5)
    assert tiny_runner.sample(first, logits) == logits.argmax(-1).tolist()


def test_a_step_without_sampling_requests_gives_no_rows_but_writes(tiny_runner: ModelRunner) -> None:
    request = Dealer(64, 4).request([3] * 8)
    plan = plan_of(request.take(4, samples=False))
    logits = tiny_runner.forward(plan)
    assert logits.shape == (0, tiny_runner.vocab_size)
    assert tiny_runner.sample(plan, logits) == []
    assert tiny_runner.kv(request.table[0], 0)[0].abs().sum() > 0


def test_an_empty_plan_gives_no_rows(tiny_runner: ModelRunner) -> None:
    assert tiny_runner.forward(StepPlan(())).shape == (0, tiny_runner.vocab_size)


def test_kv_holds_what_attention_reads(tiny_runner: ModelRunner) -> None:
    """Equal prompts have equal KV in their own blocks, but for rounding: a row's place in the batch may change it."""
    dealer = Dealer(64, 4)
    texts = [dealer.request([9, 8, 7, 6, 5, 4]) for _ in range(2)]
    tiny_runner.forward(plan_of(*(text.take(6) for text in texts)))
    for layer in range(tiny_runner.num_layers):
        for ours, theirs in zip(*(tiny_runner.kv(text.table[0], layer) for text in texts), strict=True):
            assert ours.shape == (4, 2, 16)
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
            assert ours.abs().min() > 0
    keys, _ = tiny_runner.kv(texts[0].table[1], 0)
    assert keys[2:].abs().max() == 0, "slots 2 and 3 of the second block were never written"
    keys.zero_()  # an ordinary tensor of the caller's own


def test_unwritten_slots_may_hold_nan(tiny_runner: ModelRunner) -> None:
    text = Dealer(64, 4).request([9, 8, 7, 6, 5, 4])
    clean = tiny_runner.forward(plan_of(text.take(6)))
    for layer in range(tiny_runner.num_layers):
        kv = tiny_runner.kv_tensors.layer(layer)
        kv.keys.fill_(torch.nan), kv.values.fill_(torch.nan)
    text.num_computed = 0
    assert torch.equal(tiny_runner.forward(plan_of(text.take(6))), clean)


def pool_of(runner: ModelRunner) -> Tensor:
    kvs = [runner.kv_tensors.layer(layer) for layer in range(runner.num_layers)]
    return torch.stack([torch.stack((kv.keys, kv.values)) for kv in kvs])


def test_an_interrupted_forward_leaves_garbage_only_in_its_own_slots(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Module by module, where an interrupt can arrive in between; a native program is over before Python sees it."""
    tiny_runner = ModelRunner.load(tiny_llama, num_blocks=64, block_size=4, device="cpu", attention="torch")
    dealer = Dealer(64, 4)
    old, new = dealer.request([5] * 11), dealer.request([6] * 7)
    tiny_runner.forward(plan_of(old.take(10)))
    before = pool_of(tiny_runner)
    plan = plan_of(old.take(1), new.take(7))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tiny_runner.model.layers[1].mlp, "forward", interrupt)
        tiny_runner.forward(plan)
    changed = (pool_of(tiny_runner) != before).flatten(4).any(-1).any(0).any(0)  # [num_blocks, block_size]
    slots = {(block, offset + i) for e in plan.scheduled for block, offset, n in e.slot_runs[0] for i in range(n)}
    assert {tuple(slot) for slot in changed.nonzero().tolist()} == slots
    again = tiny_runner.forward(plan)
    fresh = Dealer(64, 4, seed=1)
    old, new = fresh.request([5] * 11), fresh.request([6] * 7)
    tiny_runner.forward(plan_of(old.take(10)))
    assert torch.allclose(again, tiny_runner.forward(plan_of(old.take(1), new.take(7))), atol=1e-5)


def test_sampling_is_repeatable_and_differs_by_seed(tiny_runner: ModelRunner) -> None:
    warm = SamplingParams(temperature=2.0)
    dealer = Dealer(64, 4)
    plan = plan_of(*(dealer.request([5] * 4, warm, seed).take(4) for seed in range(12)))
    logits = tiny_runner.forward(plan)
    assert tiny_runner.sample(plan, logits) == tiny_runner.sample(plan, logits)
    assert len(set(tiny_runner.sample(plan, logits))) > 3


# -- sampling behind the forward pass, before the host schedules the next step -----------------------------------------


class Asynchronous(ModelRunner):
    """As on a GPU, but for the device."""

    is_asynchronous = True


class ForbidsAToken(Asynchronous):
    """Its logits are changed in place, after its forward pass has returned."""

    @torch.inference_mode()
    def forward(self, plan: StepPlan) -> Tensor:
        logits = super().forward(plan)
        logits[:, logits[0].argmax()] = -torch.inf
        return logits


class TakesTheLeast(Asynchronous):
    def sample(self, plan: StepPlan, logits: Tensor) -> list[int]:
        return super().sample(plan, -logits)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each sampling on the device."""
    rows: list[int] = []
    on_device = sampler.sample_on_device

    def counted(logits: Tensor, *arguments: Any) -> Tensor:
        rows.append(len(logits))
        return on_device(logits, *arguments)

    for module in (sampler, model_runner):
        monkeypatch.setattr(module, "sample_on_device", counted)
    return rows


def loaded(kind: type[ModelRunner], model_dir: Path) -> ModelRunner:
    return kind.load(model_dir, num_blocks=64, block_size=4, device="cpu", attention="torch")


def a_plan(*settings: SamplingParams) -> StepPlan:
    dealer = Dealer(64, 4)
    return plan_of(*(dealer.request([3 + row] * 7, one, row).take(7) for row, one in enumerate(settings)))


GREEDY, WARM = SamplingParams(), SamplingParams(temperature=1.0)


def test_sampling_is_launched_by_the_forward_pass(tiny_llama: Path, launched: list[int]) -> None:
    plan = a_plan(GREEDY, WARM, SamplingParams(temperature=2.0, top_k=5))
    plain, early = loaded(ModelRunner, tiny_llama), loaded(Asynchronous, tiny_llama)
    expected = plain.sample(plan, plain.forward(plan))
    launched.clear()
    logits = early.forward(plan)
    assert launched == [3]
    assert early.sample(plan, logits) == expected and launched == [3]
    assert early.sample(plan, logits) == expected and launched == [3, 3], "once more: they are not kept"


def test_sampling_that_asks_the_host_is_not_launched_early(tiny_llama: Path, launched: list[int]) -> None:
    """It would wait for the forward pass while nothing is scheduled."""
    runner = loaded(Asynchronous, tiny_llama)
    plan = a_plan(GREEDY, SamplingParams(temperature=1.0, top_p=0.5))
    logits = runner.forward(plan)
    assert launched == [] and len(runner.sample(plan, logits)) == 2 and launched == [2]
    runner.forward(a_plan(SamplingParams(temperature=1.0, top_p=0.5, top_k=4)))
    assert launched == [2, 1]


@pytest.mark.parametrize("kind", [ForbidsAToken, TakesTheLeast])
def test_an_override_samples_from_the_logits_that_it_makes(kind: type[ModelRunner], tiny_llama: Path) -> None:
    plan, runner = a_plan(GREEDY), loaded(kind, tiny_llama)
    logits = runner.forward(plan)
    expected = (-logits if kind is TakesTheLeast else logits).argmax(-1).tolist()
    plain = loaded(ModelRunner, tiny_llama)
    assert runner.sample(plan, logits) == expected != plain.sample(plan, plain.forward(plan))


def test_other_logits_are_sampled_themselves(tiny_llama: Path) -> None:
    """As a wrapper of the runner may pass them on."""
    plan, runner = a_plan(GREEDY), loaded(Asynchronous, tiny_llama)
    logits = runner.forward(plan)
    assert runner.sample(plan, -logits) == logits.argmin(-1).tolist()


def test_broken_logits_are_an_error_of_sampling(tiny_llama: Path) -> None:
    runner = loaded(Asynchronous, tiny_llama)
    with torch.no_grad():
        runner.model.norm.weight.fill_(torch.nan)
    plan = a_plan(WARM)
    logits = runner.forward(plan)
    with pytest.raises(FloatingPointError, match="logits of request 0"):
        runner.sample(plan, logits)


def test_what_a_runner_says_of_itself(tiny_llama: Path) -> None:
    runner = ModelRunner.load(tiny_llama, num_blocks=8, block_size=4, device="cpu", dtype="bfloat16")
    assert (runner.num_layers, runner.max_model_len, runner.vocab_size) == (3, 512, 101)
    assert runner.eos_token_ids == {2}
    lines = runner.describe()
    assert lines["device"] == "cpu (asked for)"
    assert lines["dtype"] == "bfloat16 (asked for)"
    assert lines["attention"].startswith("cpu (native kernels")
    assert lines["forward"].startswith("native: one program")
    assert lines["model"].startswith("llama, 3 layers")
    assert lines["kv_pool"].startswith("8 blocks of 4 tokens")
    assert runner.kv(0, 0)[0].dtype == torch.bfloat16


def test_defaults_suit_the_device(tiny_llama: Path) -> None:
    runner = ModelRunner.load(tiny_llama, num_blocks=8, block_size=4)
    has_gpu = torch.cuda.is_available()
    assert runner.kv(0, 0)[0].dtype == (torch.bfloat16 if has_gpu else torch.float32)
    assert runner.describe()["device"].startswith("cuda" if has_gpu else "cpu (torch sees no GPU)")


@pytest.mark.parametrize("dtype", [torch.float16, "float16", "torch.float16"])
def test_dtypes_by_name_or_as_they_are(tiny_llama: Path, dtype: str | torch.dtype) -> None:
    runner = ModelRunner.load(tiny_llama, num_blocks=8, block_size=4, device="cpu", dtype=dtype)
    assert runner.model.norm.weight.dtype == runner.kv(0, 0)[0].dtype == torch.float16


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16, got 'int8'"),
        ({"dtype": torch.float64}, "dtype must be one of float32, bfloat16, float16, got torch.float64"),
        ({"device": "gpu"}, "device must be .*'cpu', 'cuda'.* got 'gpu'"),
        ({"device": "meta"}, "device must be 'cpu' or 'cuda', got 'meta'"),
        ({"device": "cuda:99"}, r"'cuda:99'.*torch sees \d+ GPUs"),
        ({"device": 3.5}, "device must be .* got 3.5"),
        ({"num_blocks": 10**8}, r"num_blocks=100000000 needs .* GiB .* at most \d+ blocks fit"),
    ],
)
def test_settings_that_cannot_work(tiny_llama: Path, settings: dict[str, object], message: str) -> None:
    arguments = {"num_blocks": 8, "block_size": 4, "device": "cpu", **settings}
    with pytest.raises(ConfigError, match=message):
        ModelRunner.load(tiny_llama, **arguments)  # type: ignore[arg-type]


def test_bfloat16_is_close_to_float32(tiny_model: Callable[..., Path]) -> None:
    """Near enough to be the same model; far enough to show that bfloat16 was used."""
    model_dir = tiny_model("llama", initializer_range=0.05)
    logits = []
    for dtype in ("float32", "bfloat16"):
        runner = ModelRunner.load(model_dir, num_blocks=8, block_size=4, device="cpu", dtype=dtype)
        logits.append(runner.forward(plan_of(Dealer(8, 4).request(list(range(20))).take(20)))[0])
    assert 0 < (logits[0] - logits[1]).abs().max() < 0.05 * logits[0].abs().max()
