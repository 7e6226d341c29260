"""Pools to load into and save from, and transfers between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from labengine.core.connector import BlockTransfer, Connector

FINGERPRINT = "tiny llama, float32, blocks of 4"

KV = Mapping[str, Tensor]


class TensorPool:
    """Real memory of two groups: group 0 has two layers, group 1 one, in blocks of [4, 2, 8]."""

    def __init__(self, num_blocks: int = 32, dtype: torch.dtype = torch.float32, block_size: int = 4) -> None:
        layers = {0: ("layers.0", "layers.2"), 1: ("layers.1",)}
        shape = (num_blocks, block_size, 2, 8)
        self.memory = {
            group: {f"{name}.{half}": torch.zeros(shape, dtype=dtype) for name in names for half in ("keys", "values")}
            for group, names in layers.items()
        }
        self.written: list[tuple[int, int]] = []
        self.num_reads = 0

    def read_block(self, group: int, block_id: int) -> dict[str, Tensor]:
        self.num_reads += 1
        return {name: tensor[block_id].clone() for name, tensor in self.memory[group].items()}

    def write_block(self, group: int, block_id: int, kv: KV | None) -> None:
        assert kv is not None and kv.keys() == self.memory[group].keys()
        self.written.append((group, block_id))
        for name, tensor in self.memory[group].items():
            tensor[block_id] = kv[name]

    def fill(self, transfers: Iterable[BlockTransfer], seed: int = 0) -> None:
        """Put random bits of any kind (NaN, infinities, subnormal numbers too) into these blocks."""
        generator = torch.Generator().manual_seed(seed)
        for transfer in transfers:
            for tensor in self.memory[transfer.group].values():
                bits = tensor[transfer.block_id].view(torch.uint8)
                bits.copy_(torch.randint(0, 256, bits.shape, dtype=torch.uint8, generator=generator))

    def bits(self, transfer: BlockTransfer) -> list[tuple[str, bytes]]:
        """A block's content, so that it can be compared bit by bit."""
        content = self.read_block(transfer.group, transfer.block_id)
        return [(name, bits_of(tensor)) for name, tensor in sorted(content.items())]


class SimulatedPool:
    """What a model without weights has: nothing to read, and a list of what was written."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int, Any]] = []

    def read_block(self, group: int, block_id: int) -> None:
        return None

    def write_block(self, group: int, block_id: int, kv: KV | None) -> None:
        self.written.append((group, block_id, kv))


def bits_of(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).flatten().tolist())


def hash_of(name: int) -> bytes:
    """A block hash, 32 bytes."""
    return name.to_bytes(4, "big") * 8


def transfer(name: int, block_id: int | None = None, group: int = 0, request_id: int = 0) -> BlockTransfer:
    """The block of content `name`, in the pool's block of that number unless said otherwise."""
    return BlockTransfer(request_id, group, name, name if block_id is None else block_id, hash_of(name))


def chain(*names: int, group: int = 0, request_id: int = 0) -> list[BlockTransfer]:
    return [transfer(name, group=group, request_id=request_id) for name in names]


def held(store: Connector, names: Iterable[int], group: int = 0) -> list[int]:
    """Which of these contents the store has."""
    return [name for name in names if store.has(group, hash_of(name))]


def saved(store: Connector, names: Sequence[int], pool: TensorPool | None = None) -> TensorPool:
    """Save blocks of random content, one call each; returns the pool that they came from."""
    pool = pool or TensorPool()
    for name in names:
        pool.fill(chain(name), seed=name)
        assert store.save_kv(chain(name), pool) == tuple(chain(name))
    return pool
