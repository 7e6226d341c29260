"""Steps that need more memory than the device has: the error names the settings to lower."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

import torch

from labengine.engine.kv_tensors import KVTensors


class AdviceWhenFull(AbstractContextManager[None]):
    """Replaces torch.OutOfMemoryError by one that gives the pool's size and the settings to lower."""

    def __init__(self, kv: KVTensors) -> None:
        self._kv = kv

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            kv = self._kv
            raise torch.OutOfMemoryError(
                f"{kv.device} has too little memory for this step: the KV pool holds {kv.num_bytes / 2**30:,.1f} GiB "
                f"in {kv.num_blocks} blocks; lower num_blocks, max_num_batched_tokens or max_num_seqs "
                f"({error})"
            ) from error
