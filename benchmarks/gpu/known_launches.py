"""Compile, for an H100 but without one, all kernels of known and tiny models and of the figures, into Triton's cache.

    python benchmarks/gpu/known_launches.py

Steps of a model launch the same kernels as its trial launches (tests/engine/test_trial_launch.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from standin_driver import GPUS, compiling
from torch.nn.functional import silu

from labengine.engine import triton_sampler
from labengine.engine.attention import AttentionSetting
from labengine.engine.attention.triton import TritonAttention, try_kernels
from labengine.engine.modules import OffsetRMSNorm, RMSNorm
from labengine.engine.ops import Activation, OpsSetting
from labengine.engine.ops.torch_ops import gelu_tanh
from labengine.engine.ops.trial_layer import take_trial_layer
from labengine.engine.ops.triton import TritonOps

H100, CPU = 90, torch.device("cpu")
HALF, BOTH = (torch.bfloat16,), (torch.bfloat16, torch.float32)
Heads = tuple[int, int, int]
"""Numbers of query heads and KV heads, and their dimension."""


@dataclass(frozen=True)
class Sizes:
    """A model's sizes, and the settings with which it runs."""

    heads: Heads
    hidden: int
    intermediate: int
    vocabulary: int
    norm: type[RMSNorm] = RMSNorm
    has_head_norms: bool = False
    activation: Activation = silu
    dtypes: tuple[torch.dtype, ...] = BOTH
    block_sizes: tuple[int, ...] = (3, 4, 16, 256)
    windows: tuple[int | None, ...] = (None,)

    def settings(self) -> Iterator[tuple[AttentionSetting, OpsSetting]]:
        """Yield a setting of attention and of the ops for each dtype."""
        for dtype in self.dtypes:
            sizes = self.hidden, self.intermediate, *self.heads
            yield (
                AttentionSetting(CPU, dtype, *self.heads, self.block_sizes, self.windows),
                OpsSetting(CPU, dtype, *sizes, self.norm, self.has_head_norms, self.activation),
            )


GEMMA = {"norm": OffsetRMSNorm, "has_head_norms": True, "activation": gelu_tanh}
TINY = ((6, 2, 16), 48, 80, 101)
MODELS = (
    Sizes((16, 8, 128), 1024, 3072, 151_936, has_head_norms=True, dtypes=HALF, block_sizes=(16, 256)),  # Qwen3-0.6B
    Sizes((9, 3, 64), 576, 1536, 49_152, block_sizes=(4, 16, 256)),  # SmolLM2-135M
    Sizes((4, 1, 256), 640, 2048, 262_144, **GEMMA, block_sizes=(16, 256), windows=(512, None)),  # Gemma-3-270M
    Sizes(*TINY),
    Sizes(*TINY, has_head_norms=True),
    Sizes(*TINY, **GEMMA, windows=(8, None)),
    Sizes((4, 2, 16), 64, 128, 1003, has_head_norms=True, block_sizes=(1, 16)),  # device_checks.py
)
FIGURES: tuple[tuple[Heads, int | None], ...] = (((32, 8, 128), None), ((4, 1, 256), 512))
"""Heads and windows in attention.py beyond these models'."""


def launch_all() -> None:
    """Launch each model's attention and ops, the figures' attention, and each vocabulary's sampling."""
    for attention, ops in (pair for model in MODELS for pair in model.settings()):
        try_kernels(TritonAttention(attention, GPUS[H100]))
        take_trial_layer(TritonOps(), ops)
    for heads, window in FIGURES:
        setting = AttentionSetting(CPU, torch.bfloat16, *heads, (16,), (window,))
        try_kernels(TritonAttention(setting, GPUS[H100]))
    for size in {triton_sampler.LARGE_VOCABULARY, *(model.vocabulary for model in MODELS)}:
        logits, draws = torch.empty(2, size), torch.zeros(4, 2, dtype=torch.float64)
        triton_sampler.sample(logits, None)
        triton_sampler.sample(logits, draws, cuts=True)


def main() -> None:
    """Compile, and print the number of kernels."""
    with compiling(H100) as launches, torch.inference_mode():
        launch_all()
    counts = Counter({name: len({launch.compiled.hash for launch in found}) for name, found in launches.items()})
    print(f"{counts.total()} kernels: {', '.join(f'{name} {count}' for name, count in counts.items())}")


if __name__ == "__main__":
    main()
