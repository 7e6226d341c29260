"""A step for which the device's memory is too small: the error says which settings leave it more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from labengine.engine.kv_tensors import KVTensors


@contextmanager
def advice_when_full(kv: KVTensors) -> Iterator[None]:
    """Raise torch.OutOfMemoryError with the pool's size and with what to lower, in place of torch's own."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise torch.OutOfMemoryError(
            f"{kv.device} has too little memory for this step: the KV pool holds {kv.num_bytes / 2**30:,.1f} GiB in "
            f"{kv.num_blocks} blocks; give a smaller num_blocks, max_num_batched_tokens or max_num_seqs ({error})"
        ) from error
