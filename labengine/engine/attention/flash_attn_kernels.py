"""Calls of flash-attn's two generations: FA3 (package flash_attn_interface) and FA2 (package flash_attn).

Both take the pool's tensors unchanged, [num_blocks, block_size, num_kv_heads, head_dim], with int32 tables and lengths,
and align a causal mask to the last key, so the last query of a request sees its whole context. Both load keys in tiles
of 64 and more, and mask the keys that a query must not see. But 0 * NaN is NaN, so masked keys must be finite or not
loaded:

    after a context     FA2 clears such rows, and so does FA3 where it copies row by row. If a tile lies in one block
                        and there are many queries, FA3 copies complete tiles by TMA, NaN included (its issue 1745).
                        With an argument for padding on the left it copies row by row, so it gets one, of 0 tokens, if
                        a context ends inside a block. If all contexts fill their blocks, as in the chunks of a long
                        prompt, no tile has a row after a context, and TMA, which is faster, stays on.
    before a window     Entries of the table have no meaning here. They are cut off: a table that begins with the first
                        block to be read, and a context that is shorter by as much, give the same result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from labengine.engine.attention import AttentionSetting
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors

Attend = Callable[[Tensor, LayerKV, float], Tensor]
"""Map queries [num_tokens, num_heads, head_dim], a layer's KV and the scale to the attention output."""

SMALLEST_TILE = 64
"""Number of keys, or packed query rows, in FA3's smallest tile; with fewer it never copies complete tiles."""


class FlashKernels(ABC):
    """One generation of flash-attn."""

    title: ClassVar[str]
    module_name: ClassVar[str]
    functions: ClassVar[tuple[str, ...]]
    """Names of the package's functions that are called."""

    def __init__(self, setting: AttentionSetting) -> None:
        """Import the package, which loads its kernels."""
        self._package: Any = import_module(self.module_name)
        self._group_size = setting.num_heads // setting.num_kv_heads

    @classmethod
    @abstractmethod
    def refusal(cls, setting: AttentionSetting, capability: tuple[int, int]) -> str | None:
        """Return why it cannot run with that setting on a GPU of that compute capability; None if it can."""

    @abstractmethod
    def prepare(self, step: StepTensors, group: GroupTensors) -> Attend:
        """Compute the arguments that the group's layers share."""

    @classmethod
    def _missing(cls) -> str | None:
        """Return why the package cannot be used; None if it can.

        flash-attn-4 brings a folder flash_attn without FA2, which is imported as an empty namespace package.
        """
        where = f"{cls.title} ({cls.module_name})"
        try:
            package = import_module(cls.module_name)
        except (ImportError, OSError) as error:  # OSError: kernels built against another torch
            is_absent = isinstance(error, ModuleNotFoundError) and error.name == cls.module_name
            return f"{where} " + ("is not installed" if is_absent else f"cannot be loaded: {error}")
        absent = [name for name in cls.functions if not callable(getattr(package, name, None))]
        return f"{where} has no {' and no '.join(absent)}" if absent else None


class FA3(FlashKernels):
    """FlashAttention 3: one call for decodes, chunks, and both together."""

    title = "FA3"
    module_name = "flash_attn_interface"
    functions = ("flash_attn_with_kvcache",)

    @classmethod
    def refusal(cls, setting: AttentionSetting, capability: tuple[int, int]) -> str | None:
        """Refuse all GPUs but Hopper's."""
        if capability[0] != 9:
            return f"FA3 needs sm_90, but this GPU is sm_{capability[0]}{capability[1]}"
        return cls._missing()

    def prepare(self, step: StepTensors, group: GroupTensors) -> Attend:
        """Prepare one call's keywords, which serve decodes and chunks together."""
        tables, contexts = window_only(step, group)
        shared: dict[str, Any] = {
            "cache_seqlens": contexts,
            "page_table": tables,
            "causal": True,
            "window_size": flash_window(group),
        }
        if self._copies_unwritten_rows(step, group):
            shared["cache_leftpad"] = torch.zeros_like(contexts)
        if not step.is_decode:
            shared.update(cu_seqlens_q=step.query_starts, max_seqlen_q=max(step.query_lens))
        return lambda queries, cache, scale: self._attend(queries, cache, scale, step.is_decode, shared)

    def _copies_unwritten_rows(self, step: StepTensors, group: GroupTensors) -> bool:
        """Return True if complete tiles may be copied, and one may extend past the end of a context.

        A decode's lengths on the host may be upper bounds; see StaticStep.
        """
        copies_tiles = min(max(step.query_lens) * self._group_size, group.block_size) >= SMALLEST_TILE
        return copies_tiles and (step.is_decode or any(length % group.block_size for length in step.context_lens))

    def _attend(self, queries: Tensor, cache: LayerKV, scale: float, is_decode: bool, shared: dict[str, Any]) -> Tensor:
        call = self._package.flash_attn_with_kvcache
        rows = queries.unsqueeze(1) if is_decode else queries
        out: Tensor = call(rows, cache.keys, cache.values, softmax_scale=scale, **shared)
        return out.squeeze(1) if is_decode else out


class FA2(FlashKernels):
    """FlashAttention 2: one call with split keys for decodes, another for all other steps."""

    title = "FA2"
    module_name = "flash_attn"
    functions = ("flash_attn_with_kvcache", "flash_attn_varlen_func")

    def __init__(self, setting: AttentionSetting) -> None:
        super().__init__(setting)
        self._decodes_without_waiting = not _waits_for_longest_context(self._package)

    @classmethod
    def refusal(cls, setting: AttentionSetting, capability: tuple[int, int]) -> str | None:
        """Refuse GPUs before Ampere, and block sizes that are not multiples of 256 tokens."""
        if capability[0] < 8:
            return f"FA2 needs sm_80 or newer, but this GPU is sm_{capability[0]}{capability[1]}"
        wrong = [size for size in setting.block_sizes if size % 256]
        if wrong:
            return f"FA2 needs block sizes that are multiples of 256 tokens, got {wrong[0]}"
        return cls._missing()

    def prepare(self, step: StepTensors, group: GroupTensors) -> Attend:
        """Prepare the keywords of the call for decodes, or of the other call."""
        tables, contexts = window_only(step, group)
        shared: dict[str, Any] = {"block_table": tables, "causal": True, "window_size": flash_window(group)}
        if step.is_decode and self._decodes_without_waiting:
            shared["cache_seqlens"] = contexts
            return lambda queries, cache, scale: self._decode(queries, cache, scale, shared)
        shared.update(
            cu_seqlens_q=step.query_starts,
            cu_seqlens_k=pad(contexts.cumsum(0, dtype=torch.int32), (1, 0)),
            max_seqlen_q=max(step.query_lens),
            max_seqlen_k=max(step.context_lens),
        )
        return lambda queries, cache, scale: self._attend(queries, cache, scale, shared)

    def _decode(self, queries: Tensor, cache: LayerKV, scale: float, shared: dict[str, Any]) -> Tensor:
        call = self._package.flash_attn_with_kvcache
        out: Tensor = call(queries.unsqueeze(1), cache.keys, cache.values, softmax_scale=scale, **shared)
        return out.squeeze(1)

    def _attend(self, queries: Tensor, cache: LayerKV, scale: float, shared: dict[str, Any]) -> Tensor:
        out: Tensor = self._package.flash_attn_varlen_func(
            queries, cache.keys, cache.values, softmax_scale=scale, **shared
        )
        return out


def flash_window(group: GroupTensors) -> tuple[int, int]:
    """Return the number of keys that a query sees left and right of its own; -1 means all."""
    return (-1, -1) if group.window is None else (group.window - 1, 0)


def window_only(step: StepTensors, group: GroupTensors) -> tuple[Tensor, Tensor]:
    """Return tables and contexts without the blocks before the window of a request's first query."""
    if group.window is None:
        return group.block_tables, step.contexts
    starts = step.contexts - step.query_starts.diff()
    skipped = (starts - group.window + 1).clamp(min=0) // group.block_size
    width = group.block_tables.shape[1]
    columns = torch.arange(width, dtype=torch.int32, device=skipped.device) + skipped.unsqueeze(1)
    tables = group.block_tables.gather(1, columns.clamp(max=width - 1).long())
    return tables, step.contexts - skipped * group.block_size


def _waits_for_longest_context(package: ModuleType) -> bool:
    """Return True for 2.8.4 and newer: with block tables, each decode waits for the GPU's longest context.

    A graph cannot record that, and a step would wait once per layer.
    """
    numbers = str(getattr(package, "__version__", "0")).split(".")[:3]
    return tuple(int(number) if number.isdecimal() else 0 for number in numbers) >= (2, 8, 4)
