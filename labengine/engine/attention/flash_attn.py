"""Paged attention by flash-attn, if installed: FA3 on Hopper for any block size, else FA2 for multiples of 256."""

from __future__ import annotations

import torch
from torch import Tensor

from labengine.engine.attention import AttentionBackend, AttentionSetting, StepAttention
from labengine.engine.attention.flash_attn_kernels import FA2, FA3, Attend, FlashKernels
from labengine.engine.attention.kv_store import Store, best_store
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors

GENERATIONS: tuple[type[FlashKernels], ...] = (FA3, FA2)
"""The first that can is taken."""

DTYPES = (torch.float16, torch.bfloat16)


class FlashStep(StepAttention):
    """One step and group: our own store, their attention."""

    def __init__(self, slots: Tensor, store: Store, attend: Attend) -> None:
        self._slots = slots
        self._store = store
        self._attend = attend

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """See StepAttention."""
        self._store(keys, values, cache, self._slots)

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """See StepAttention."""
        return self._attend(queries, cache, scale)


class FlashAttention(AttentionBackend):
    """The newest generation of flash-attn that this setting allows."""

    name = "flash_attn"
    virtue = "flash-attn's kernels"
    is_capturable = True

    def __init__(self, setting: AttentionSetting) -> None:
        """RuntimeError for a setting that is refused."""
        super().__init__(setting)
        refusal = self.refusal(setting)
        if refusal is not None:
            raise RuntimeError(f"flash_attn cannot serve this: {refusal}")
        self._kernels = self._generation(setting)(setting)
        self._store = best_store(setting.device)

    @property
    def generation(self) -> str:
        """FA2 or FA3."""
        return self._kernels.title

    @classmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        """A GPU, half precision, and a generation that fits both the GPU and the blocks."""
        if setting.device.type != "cuda":
            return f"it runs on a GPU, and the model is on {setting.device}"
        if setting.dtype not in DTYPES:
            return f"it computes in float16 and bfloat16, not in {str(setting.dtype).removeprefix('torch.')}"
        if setting.head_dim > 256 or setting.head_dim % 8:
            return f"it takes a head_dim up to 256 and a multiple of 8, not {setting.head_dim}"
        refusals = _refusals(setting)
        return None if None in refusals else "; ".join(filter(None, refusals))

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Return lengths and tables as flash-attn wants them."""
        return FlashStep(group.slots, self._store, self._kernels.prepare(step, group))

    @staticmethod
    def _generation(setting: AttentionSetting) -> type[FlashKernels]:
        return GENERATIONS[_refusals(setting).index(None)]


def _refusals(setting: AttentionSetting) -> list[str | None]:
    capability = torch.cuda.get_device_capability(setting.device)
    return [generation.refusal(setting, capability) for generation in GENERATIONS]
