"""Paged attention by flash-attn, if installed: FA3 on Hopper for any block size, else FA2 for multiples of 256."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from labengine.engine.attention import AttentionBackend, AttentionSetting, StepAttention
from labengine.engine.attention.flash_attn_kernels import FA2, FA3, Attend, FlashKernels
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors
from labengine.engine.trial_launch import launch_refusal

Store = Callable[[Tensor, Tensor, LayerKV, Tensor], None]
"""Takes keys and values [num_tokens, num_kv_heads, head_dim], the layer's KV, and slots; below 0 is not written."""


def choose_store(setting: AttentionSetting) -> Store:
    """Return a single Triton kernel on a GPU that can run it, else some torch ops. A graph can record both."""
    if setting.device.type != "cuda":
        return torch_store
    try:
        from labengine.engine.attention.triton import write_kv
    except ImportError:
        return torch_store
    return write_kv if _trial(write_kv, setting) is None else torch_store


@cache
def _trial(store: Store, setting: AttentionSetting) -> str | None:
    """Return why writing one token fails, at the model's size of a slot."""

    def launch() -> None:
        shape = 3, 1, setting.num_kv_heads, setting.head_dim
        rows, keys, values = torch.zeros(shape, dtype=setting.dtype, device=setting.device)
        cache = LayerKV(keys.unsqueeze(0), values.unsqueeze(0))
        store(rows, rows, cache, torch.zeros(1, dtype=torch.int32, device=setting.device))

    return launch_refusal(setting.device, launch)


def torch_store(keys: Tensor, values: Tensor, cache: LayerKV, slots: Tensor) -> None:
    """Write without waiting for the device: a padding row repeats another row's write, or the cache's own content.

    It repeats the row with the highest slot. If all rows are padding, slot 0 is overwritten with its content.
    """
    rows = torch.where(slots >= 0, torch.arange(len(slots), device=slots.device), slots.argmax())
    targets = slots[rows]
    is_written = (targets >= 0).view(-1, 1, 1)
    targets = targets.clamp(min=0).long()
    for fresh, pool in ((keys, cache.keys), (values, cache.values)):
        by_slot = pool.view(-1, *pool.shape[2:])
        by_slot.index_copy_(0, targets, torch.where(is_written, fresh[rows], by_slot[targets]))


GENERATIONS: tuple[type[FlashKernels], ...] = (FA3, FA2)
"""In order of preference: the first one that accepts the setting is used."""

DTYPES = (torch.float16, torch.bfloat16)


class FlashStep(StepAttention):
    """One step and group: labengine's KV store, flash-attn's attention."""

    def __init__(self, slots: Tensor, store: Store, attend: Attend) -> None:
        self._slots = slots
        self._store = store
        self._attend = attend

    def write(self, keys: Tensor, values: Tensor, cache: LayerKV) -> None:
        """Write the KV with the store."""
        self._store(keys, values, cache, self._slots)

    @property
    def plain_slots(self) -> Tensor | None:
        """The slots, unless a subclass writes differently, or torch writes because Triton's kernels cannot run."""
        is_plain = self._store is not torch_store and type(self).write is FlashStep.write
        return self._slots if is_plain else None

    def attend(self, queries: Tensor, cache: LayerKV, scale: float) -> Tensor:
        """Attend with flash-attn."""
        return self._attend(queries, cache, scale)


class FlashAttention(AttentionBackend):
    """The newest generation of flash-attn that serves this setting."""

    name = "flash_attn"
    advantage = "flash-attn's kernels"
    is_capturable = True

    def __init__(self, setting: AttentionSetting) -> None:
        """Raise RuntimeError for a refused setting."""
        super().__init__(setting)
        refusal = self.refusal(setting)
        if refusal is not None:
            raise RuntimeError(f"flash_attn cannot serve this: {refusal}")
        self._kernels = self._generation(setting)(setting)
        self._store = choose_store(setting)

    @property
    def generation(self) -> str:
        """FA2 or FA3."""
        return self._kernels.title

    @classmethod
    def refusal(cls, setting: AttentionSetting) -> str | None:
        """Return None for half precision on a GPU, if a generation supports both the GPU and the blocks."""
        if setting.device.type != "cuda":
            return f"it runs on a GPU, but the model is on {setting.device}"
        if setting.dtype not in DTYPES:
            return f"it computes in float16 or bfloat16, not in {str(setting.dtype).removeprefix('torch.')}"
        if setting.head_dim > 256 or setting.head_dim % 8:
            return f"head_dim must be a multiple of 8 up to 256, got {setting.head_dim}"
        refusals = _refusals(setting)
        return None if None in refusals else "; ".join(filter(None, refusals))

    def prepare(self, step: StepTensors, group: GroupTensors) -> StepAttention:
        """Prepare lengths and tables in flash-attn's form."""
        return FlashStep(group.slots, self._store, self._kernels.prepare(step, group))

    @staticmethod
    def _generation(setting: AttentionSetting) -> type[FlashKernels]:
        return GENERATIONS[_refusals(setting).index(None)]


def _refusals(setting: AttentionSetting) -> list[str | None]:
    capability = torch.cuda.get_device_capability(setting.device)
    return [generation.refusal(setting, capability) for generation in GENERATIONS]
