"""Mixtures of experts against transformers: equal logits and tokens in fp32; the forms of their files; refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import silu

import labengine
from engine.plan_builder import Dealer, plan_of
from engine.reference import largest_difference, transformers_logits
from engine.state_models import WITHOUT_STATES, save_state_model
from labengine.config import ConfigError
from labengine.engine import weights
from labengine.engine.draft_model import DraftModel
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.mlp import Mixture, Router, SigmoidRouter
from labengine.engine.model_runner import ModelRunner
from labengine.engine.ops.torch_ops import TorchOps
from labengine.engine.static_runner import StaticRunner

TOLERANCE = 1e-4
TEXT = Random(3).choices(range(3, 101), k=80)


def load(model_dir: Path, **settings: Any) -> ModelRunner:
    settings = {"num_blocks": 128, "block_size": 4, "device": "cpu", **settings}
    return ModelRunner.load(model_dir, **settings)


def worst_of(model_dir: Path) -> float:
    texts = [TEXT, TEXT[:9], TEXT[5:40]]
    reference = transformers_logits(model_dir)
    return largest_difference(load(model_dir), texts, [reference(text) for text in texts], chunk=13, num_decodes=5)


# -- equal to transformers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITHOUT_STATES)
def test_models_without_states(name: str, tmp_path: Path) -> None:
    assert worst_of(save_state_model(name, tmp_path)) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("lfm2_moe", {"use_expert_bias": False}),
        ("lfm2_moe", {"norm_topk_prob": False, "num_experts_per_tok": 1}),
        ("lfm2_moe", {"num_dense_layers": 0}),
        ("qwen3_next", {"norm_topk_prob": False, "decoder_sparse_step": 2}),
        ("qwen3_moe", {"norm_topk_prob": True, "mlp_only_layers": [0, 2]}),
        ("granitemoehybrid, experts", {"num_experts_per_tok": 6}),
        ("granitemoehybrid, attention", {"position_embedding_type": None, "num_local_experts": 4}),
        ("mixtral", {"sliding_window": 6}),
    ],
)
def test_settings_that_change_the_computation(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    assert worst_of(save_state_model(name, tmp_path, **settings)) < TOLERANCE


@pytest.mark.parametrize("name", WITHOUT_STATES)
@pytest.mark.parametrize("settings", [{"num_blocks": 26}, {"max_num_batched_tokens": 9, "edition": "vllm"}])
def test_tokens_are_those_of_transformers(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model_dir = save_state_model(name, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True).eval()
    prompts = [TEXT[:30], TEXT[40:45], TEXT[:30], [*TEXT[:20], 5, 6]]
    lab = labengine.Lab(model_dir, **{"num_blocks": 100, "block_size": 4, "device": "cpu", **settings})
    for prompt in prompts:
        lab.add(token_ids=prompt, max_tokens=12, ignore_eos=True)
    lab.run()
    for number, prompt in enumerate(prompts):
        generation: dict[str, Any] = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=12, **generation)[0].tolist()
        assert list(lab.snapshot().requests[number].token_ids) == expected
    assert lab.violations == []
    lab.close()


# -- the mixture itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def mixture_of() -> Callable[..., Mixture]:
    def make(router: type[Router] = Router, **sizes: Any) -> Mixture:
        generator = torch.Generator().manual_seed(1)
        made = Mixture(8, MixtureSizes(frozenset({0}), 5, 2, 6, **sizes), router, silu)
        for parameter in made.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)
        return made

    return make


def one_by_one(mixture: Mixture, hidden: Tensor) -> Tensor:
    """The definition: each token through each of its experts."""
    experts, scales = mixture.router.choose(hidden)
    rows = []
    for row, chosen, weighed in zip(hidden, experts, scales, strict=True):
        out = torch.zeros(8)
        for expert, scale in zip(chosen, weighed, strict=True):
            gate, up = (mixture.experts.gate_up.weight[expert] @ row).chunk(2)
            out += scale * (mixture.experts.down.weight[expert] @ (silu(gate) * up))
        rows.append(out)
    return torch.stack(rows)


@pytest.mark.parametrize("num_tokens", [1, 2, 40])
def test_tokens_are_grouped_by_expert(mixture_of: Callable[..., Mixture], num_tokens: int) -> None:
    mixture, hidden = mixture_of(), torch.randn(num_tokens, 8)
    assert torch.allclose(mixture(hidden, TorchOps()), one_by_one(mixture, hidden), atol=1e-4)


def test_an_expert_that_nobody_chose_is_not_read(mixture_of: Callable[..., Mixture]) -> None:
    mixture, hidden = mixture_of(), torch.randn(1, 8)
    chosen = set(mixture.router.choose(hidden)[0].flatten().tolist())
    for expert in set(range(5)) - chosen:
        mixture.experts.gate_up.weight.data[expert] = torch.nan
    assert mixture(hidden, TorchOps()).isfinite().all()


def test_a_bias_takes_part_in_the_choice_alone(mixture_of: Callable[..., Mixture]) -> None:
    router, hidden = mixture_of(SigmoidRouter, has_bias=True, is_normalized=False).router, torch.randn(7, 8)
    assert isinstance(router, SigmoidRouter) and router.expert_bias is not None
    router.expert_bias.data = torch.tensor([0.0, 9.0, 0.0, 9.0, 0.0])
    experts, scales = router.choose(hidden)
    assert {frozenset(row) for row in experts.tolist()} == {frozenset({1, 3})}
    assert torch.equal(scales, router(hidden).sigmoid().gather(1, experts))


def test_the_bias_stays_in_float32(tmp_path: Path) -> None:
    runner = load(save_state_model("lfm2_moe", tmp_path), dtype="bfloat16")
    dtypes = {name.rpartition(".")[2]: p.dtype for name, p in runner.model.named_parameters() if "router" in name}
    assert dtypes == {"weight": torch.bfloat16, "expert_bias": torch.float32}
    stored = load_file(tmp_path / "model.safetensors")["model.layers.2.feed_forward.expert_bias"]
    assert torch.equal(runner.model.get_parameter("layers.2.mlp.router.expert_bias"), stored)


# -- files -------------------------------------------------------------------------------------------------------------


def edit(model_dir: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, model_dir / "model.safetensors")


def stack_experts(tensors: dict[str, Tensor]) -> None:
    """Bring one tensor per expert into the form of Qwen3.5's published files: one of all experts, without .weight."""
    for layer in sorted({name.partition(".experts.")[0] for name in tensors if ".experts." in name}):
        found: dict[str, list[Tensor]] = {}
        for part in ("gate_proj", "up_proj", "down_proj"):
            names = [f"{layer}.experts.{expert}.{part}.weight" for expert in range(6)]
            found[part] = [tensors.pop(name) for name in names]
        both = zip(found["gate_proj"], found["up_proj"], strict=True)
        tensors[f"{layer}.experts.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in both])
        tensors[f"{layer}.experts.down_proj"] = torch.stack(found["down_proj"])


def logits(model_dir: Path) -> Tensor:
    runner = load(model_dir)
    return runner.forward(plan_of(Dealer(128, runner.groups).request(TEXT).take(40))).clone()


@pytest.mark.parametrize("family", ["qwen3_5_moe_text", "qwen3_5_moe", "qwen3_next"])
def test_experts_in_one_tensor(family: str, tmp_path: Path) -> None:
    model_dir = save_state_model(family, tmp_path)
    expected = logits(model_dir)
    edit(model_dir, stack_experts)
    assert torch.equal(logits(model_dir), expected)


E1 = "model.layers.0.mlp.experts.1"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(f"{E1}.up_proj.weight"), f"has no tensor {E1}.up_proj.weight"),
        (
            lambda t: t.update({"model.layers.0.mlp.experts.6.up_proj.weight": torch.zeros(28, 48)}),
            "experts.6.up_proj.weight",
        ),
        (
            lambda t: (stack_experts(t), t.pop("model.layers.0.mlp.experts.down_proj")),
            "has no tensor model.layers.0.mlp.experts.0.down_proj.weight",
        ),
        (
            lambda t: (
                stack_experts(t),
                t.update({"model.layers.0.mlp.experts.gate_up_proj": torch.zeros(5, 56, 48)}),
            ),
            r"experts.gate_up_proj has shape \(5, 56, 48\).* \(6, 56, 48\)",
        ),
    ],
    ids=["missing", "one too many", "half stacked", "one too few, stacked"],
)
def test_files_that_do_not_fit(change: Callable[[dict[str, Tensor]], object], message: str, tmp_path: Path) -> None:
    model_dir = save_state_model("qwen3_next", tmp_path)
    edit(model_dir, change)
    with pytest.raises(ConfigError, match=message):
        load(model_dir)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_larger_than_the_memory_are_refused_before_they_are_read(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_dir = save_state_model("mixtral", tmp_path)
    numbers = sum(tensor.numel() for tensor in load_file(model_dir / "model.safetensors").values())
    num_bytes = numbers * (4 if dtype == "float32" else 2)
    advice = "; dtype='bfloat16' needs half as much" if dtype == "float32" else ""
    monkeypatch.setattr(weights, "free_memory", lambda device: num_bytes - 1)
    monkeypatch.setattr(weights, "_filled", lambda *_: pytest.fail("something was read"))
    with pytest.raises(ConfigError, match=rf"the weights need 0.0 GiB as {dtype}, but cpu has 0.0 GiB free{advice}$"):
        load(model_dir, dtype=dtype, num_blocks=64)


# -- what computes them ------------------------------------------------------------------------------------------------


@pytest.fixture
def mixtral(tmp_path: Path) -> Iterator[Path]:
    yield save_state_model("mixtral", tmp_path)


def test_torch_computes_them_module_by_module(mixtral: Path) -> None:
    lines = load(mixtral).describe()
    assert "not cpu: it cannot compute mixtures of experts" in lines["attention"]
    assert "mixtures of experts" in lines["forward"]


def test_others_refuse_them_by_name(mixtral: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(ConfigError, match=r"attention='cpu' .* mixtures of experts"):
        load(mixtral, attention="cpu")
    with pytest.raises(ConfigError, match=r"records decodes .* mixtures of experts"):
        StaticRunner.load(mixtral, num_blocks=8, block_size=4, device="cpu")
    granite = save_state_model("granitemoehybrid, attention", tmp_path_factory.mktemp("granite"))
    with pytest.raises(ConfigError, match="Granite's multipliers"):
        load(granite, attention="cpu")


def test_the_first_layers_draft(mixtral: Path) -> None:
    """A draft model of the lab's own first layers has their mixtures; the tokens are those without drafts."""
    tokens = []
    for speculation in (None, DraftModel(2, num_layers=1)):
        with labengine.Lab(mixtral, num_blocks=64, block_size=4, device="cpu", speculation=speculation) as lab:
            lab.add(token_ids=TEXT[:20], max_tokens=12, ignore_eos=True)
            lab.run()
            tokens.append(lab.snapshot().requests[0].token_ids)
    assert tokens[0] == tokens[1]
