"""The trial launch: it launches what a step of the model launches, and what fails in it is refused with the reason."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.ops_settings import SMALL
from engine.plan_builder import Dealer, plan_of
from labengine.core.step_plan import StepPlan
from labengine.engine import backend_choice, triton_sampler
from labengine.engine.attention import AttentionBackend, AttentionSetting, flash_attn
from labengine.engine.attention import triton as triton_attention
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.attention.triton import TritonAttention, try_kernels
from labengine.engine.attention.triton_tiles import Gpu
from labengine.engine.backend_choice import choose_attention, choose_ops
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.model import PagedModel
from labengine.engine.model_files.config_file import load_config
from labengine.engine.ops import triton as ops_by_triton
from labengine.engine.ops.trial_layer import take_trial_layer
from labengine.engine.ops.triton import TritonOps
from labengine.engine.rope import Rotation
from labengine.engine.step_tensors import step_tensors
from sampling import sampled

if not sys.platform.startswith("linux"):
    pytest.skip("Triton is made for Linux", allow_module_level=True)

from engine.compiled_launches import GPUS, MODELS, attend, half_precision, spec_of, specializing
from labengine.engine import sampler_cut_kernels, sampler_kernels
from labengine.engine.attention import triton_kernels
from labengine.engine.ops import triton_ops

SAMPLERS = (sampler_kernels, sampler_cut_kernels)
CPU = torch.device("cpu")
SMALL_GPU = Gpu((8, 0), 1)

Launches = set[tuple[str, str]]
"""Kernels and what they are compiled for: two launches with the same one run the same code."""


def launches_of(capability: int, run: Callable[[], object]) -> Launches:
    """Run something on a CPU with kernels that only note what they would be compiled for."""
    with specializing(capability) as found:
        run()
    return found


SAMPLE = {(75, "smollm2", 256), (80, "gemma3", 16), (90, "qwen3", 1), (90, "gemma3", 256)}


@pytest.mark.parametrize(
    ("capability", "model", "block_size"), sampled(product((75, 80, 90, 120), MODELS, (1, 16, 256, 512)), SAMPLE)
)
def test_attentions_trial_launches_every_kernel_of_a_step(capability: int, model: str, block_size: int) -> None:
    """Prompts and decodes, mixed and alone, with their keys whole and in spans."""
    heads, dtype, spec = MODELS[model], half_precision(capability), spec_of(model, block_size)
    gpu = GPUS[capability]
    undivided = launches_of(capability, lambda: attend(replace(gpu, num_sms=1), dtype, heads, spec))
    spans = launches_of(capability, lambda: attend(gpu, dtype, heads, spec))
    assert undivided - spans and any(name == "join_kernel" for name, _ in spans - undivided)
    setting = AttentionSetting(CPU, dtype, *heads, (block_size,), (spec.window,))
    trial = launches_of(capability, lambda: try_kernels(TritonAttention(setting, gpu)))
    assert undivided | spans <= trial


class Steps:
    """A model without weights, and the steps it takes: chunks beside decodes, and decodes alone."""

    def __init__(self, model_dir: Path) -> None:
        self.config = load_config(model_dir)
        self.model = PagedModel(self.config)
        self.groups, layer_groups = self.config.kv_groups(4)
        self.kv = KVTensors(
            num_blocks=100, block_size=4, layer_groups=layer_groups, num_kv_heads=self.config.num_kv_heads,
            head_dim=self.config.head_dim, dtype=torch.float32, device=CPU,
        )  # fmt: skip
        heads = self.config.num_heads, self.config.num_kv_heads, self.config.head_dim
        windows = tuple(group.window for group in self.groups)
        self.setting = AttentionSetting(CPU, torch.float32, *heads, (4,), windows)

    def plans(self) -> Iterator[StepPlan]:
        dealer = Dealer(100, self.groups)
        long, short = dealer.request(list(range(20, 37))), dealer.request(list(range(5, 12)))
        yield plan_of(long.take(9), short.take(6))
        yield plan_of(short.take(1), long.take(7))
        yield plan_of(long.take(1))

    @torch.inference_mode()
    def take(self, backend: AttentionBackend) -> None:
        for plan in self.plans():
            step = step_tensors(plan, self.groups, CPU)
            ropes = {layer.rope for layer in self.config.layers}
            rotations = {
                rope: Rotation.at(step.positions, rope.inverse_frequencies(self.config.head_dim)) for rope in ropes
            }
            attention = [backend.prepare(step, group) for group in step.groups]
            self.model(step, self.kv, attention, rotations, TritonOps())


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_the_trials_launch_every_kernel_of_a_models_steps(family: str, tiny_model: Callable[..., Path]) -> None:
    """Beside Triton's attention and beside torch's, whose write no kernel may replace."""
    steps = Steps(tiny_model(family))

    def take_trials() -> None:
        try_kernels(TritonAttention(steps.setting, SMALL_GPU))
        take_trial_layer(TritonOps(), steps.model.ops_setting)

    trial = launches_of(80, take_trials)
    for backend in (TritonAttention(steps.setting, SMALL_GPU), TorchGather(steps.setting)):
        taken = launches_of(80, lambda backend=backend: steps.take(backend))
        assert taken and taken <= trial


# -- what fails is refused ---------------------------------------------------------------------------------------------

REASON = (
    "a trial launch failed (OutOfResources: out of resource: shared memory, Required: 300000, Hardware limit: 232448. "
    "Reducing block sizes or `num_stages` may help.)"
)


class Kernel:
    """Does nothing, or fails as Triton does for a program that needs more than the GPU has."""

    def __init__(self, kernel: Any, is_too_large: Callable[[dict[str, Any]], bool] = lambda arguments: False) -> None:
        self.arg_names = kernel.arg_names
        self._is_too_large = is_too_large

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self._launch

    def _launch(self, *args: object, **named: Any) -> None:
        from triton.runtime.errors import OutOfResources

        if self._is_too_large({**dict(zip(self.arg_names, args, strict=False)), **named}):
            raise OutOfResources(300_000, 232_448, "shared memory")


def replace_kernel(
    patch: pytest.MonkeyPatch, module: Any, name: str, is_too_large: Callable[[dict[str, Any]], bool]
) -> None:
    patch.setattr(module, name, Kernel(getattr(module, name), is_too_large))


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A CPU on which Triton's backends come first, with kernels that do nothing."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(TritonAttention, "unsupported", lambda setting: None)
    monkeypatch.setitem(backend_choice.PREFERRED, "cpu", ("triton", "torch"))
    monkeypatch.setitem(backend_choice.PREFERRED_OPS, "cpu", ("triton", "torch"))
    for module in (triton_kernels, triton_ops):
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            monkeypatch.setattr(module, name, Kernel(getattr(module, name)))
    for module in (triton_attention, ops_by_triton):
        module._trial.cache_clear()
    yield
    for module in (triton_attention, ops_by_triton):
        module._trial.cache_clear()


def setting(block_size: int = 16, window: int | None = None) -> AttentionSetting:
    return AttentionSetting(CPU, torch.bfloat16, 16, 8, 128, (block_size,), (window,))


TOO_LARGE: dict[str, Callable[[dict[str, Any]], bool]] = {
    "decodes in spans": lambda arguments: arguments["QUERIES"] == 1 and arguments["IS_SPLIT"],
    "whole decodes": lambda arguments: arguments["QUERIES"] == 1 and not arguments["IS_SPLIT"],
    "prompts": lambda arguments: arguments["QUERIES"] > 1,
    "windows": lambda arguments: arguments["WINDOW"] > 0,
    "heads of their size": lambda arguments: arguments["PADDED"] == 128,
    "blocks of their size": lambda arguments: arguments["BLOCK_SIZE"] == 256,
}


@pytest.mark.parametrize("reason", TOO_LARGE)
def test_attention_that_is_too_large_for_the_gpu_is_refused(
    reason: str, on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = setting(256, 512)
    assert type(choose_attention(None, asked)[0]) is TritonAttention
    triton_attention._trial.cache_clear()
    replace_kernel(monkeypatch, triton_kernels, "attend_kernel", TOO_LARGE[reason])
    assert TritonAttention.refusal(asked) == REASON
    backend, line = choose_attention(None, asked)
    assert type(backend) is TorchGather and line.endswith(f"; not triton: {REASON})")
    with pytest.raises(backend_choice.ConfigError, match=r"attention='triton' .*trial launch"):
        choose_attention("triton", asked)


def test_another_setting_has_a_trial_of_its_own(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_kernel(monkeypatch, triton_kernels, "attend_kernel", TOO_LARGE["blocks of their size"])
    assert TritonAttention.refusal(setting(256)) == REASON
    assert TritonAttention.refusal(setting(16)) is None


@pytest.mark.parametrize("kernel", ["add_norm_kernel", "gated_kernel", "rotate_kernel", "rotate_write_kernel"])
def test_ops_that_are_too_large_for_the_gpu_are_refused(
    kernel: str, on_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the model's own sizes: a smaller model of the same process has Triton's ops."""
    large = replace(SMALL, hidden_size=5120, intermediate_size=25_600, num_heads=40, num_kv_heads=8, head_dim=128)
    needs_much = {
        "add_norm_kernel": lambda arguments: arguments["PADDED"] == 8192,
        "gated_kernel": lambda arguments: arguments["SIZE"] == 25_600,
        "rotate_kernel": lambda arguments: arguments["HALF"] == 64,
        "rotate_write_kernel": lambda arguments: arguments["NUM_HEADS"] == 40,
    }
    replace_kernel(monkeypatch, triton_ops, kernel, needs_much[kernel])
    ops, line = choose_ops(large)
    assert ops.name == "torch" and line.endswith(f"; not triton: {REASON})")
    assert type(choose_ops(SMALL)[0]) is TritonOps


@pytest.mark.parametrize("kernel", ["weigh_kernel", "choose_kernel", "collect_kernel", "cut_kernel"])
def test_a_sampler_that_is_too_large_for_the_gpu_is_refused(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trial has a large vocabulary: as many chunks as Gemma's."""
    modules = {module: [name for name in vars(module) if name.endswith("_kernel")] for module in SAMPLERS}
    for module, names in modules.items():
        for name in names:
            monkeypatch.setattr(module, name, Kernel(getattr(module, name)))
    triton_sampler._trial.cache_clear()
    assert triton_sampler._trial(CPU) is None
    triton_sampler._trial.cache_clear()
    (module,) = (module for module, names in modules.items() if kernel in names)
    replace_kernel(monkeypatch, module, kernel, lambda arguments: arguments["PADDED"] == 128)
    assert triton_sampler._trial(CPU) == REASON
    triton_sampler._trial.cache_clear()


def test_flash_attn_writes_by_torch_where_triton_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a C compiler, say: flash-attn needs none, and the kernel that writes KV does."""
    setting_there = replace(setting(), device=torch.device("cuda:7"))
    monkeypatch.setattr(flash_attn, "launch_refusal", lambda device, launch: None)
    flash_attn._trial.cache_clear()
    assert flash_attn.choose_store(setting_there) is triton_attention.write_kv
    flash_attn._trial.cache_clear()
    monkeypatch.setattr(flash_attn, "launch_refusal", lambda device, launch: REASON)
    assert flash_attn.choose_store(setting_there) is flash_attn.torch_store
    flash_attn._trial.cache_clear()
    assert flash_attn.choose_store(setting()) is flash_attn.torch_store


def test_flash_attns_trial_writes_one_token(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    flash_attn._trial.cache_clear()
    assert flash_attn._trial(triton_attention.write_kv, setting()) is None
    flash_attn._trial.cache_clear()
    replace_kernel(monkeypatch, triton_kernels, "write_kernel", lambda arguments: arguments["SIZE"] == 8 * 128)
    assert flash_attn._trial(triton_attention.write_kv, setting()) == REASON
    flash_attn._trial.cache_clear()
