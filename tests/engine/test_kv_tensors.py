from __future__ import annotations

import pytest
import torch

from labengine.config import ConfigError
from labengine.engine import kv_tensors
from labengine.engine.kv_tensors import KVTensors


def pool(num_blocks: int = 6, layer_groups: tuple[int, ...] = (0, 0, 0)) -> KVTensors:
    return KVTensors(
        num_blocks=num_blocks,
        block_size=4,
        layer_groups=layer_groups,
        num_kv_heads=2,
        head_dim=8,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def test_every_layer_has_its_own_keys_and_values() -> None:
    kv = pool()
    tensors = [tensor for layer in range(3) for tensor in (kv.layer(layer).keys, kv.layer(layer).values)]
    for number, tensor in enumerate(tensors):
        assert tensor.shape == (6, 4, 2, 8)
        tensor.fill_(number)
    assert [tensor.unique().tolist() for tensor in tensors] == [[0], [1], [2], [3], [4], [5]]
    assert kv.num_bytes == sum(tensor.numel() * 4 for tensor in tensors)


def test_groups_share_the_pool_layer_by_layer() -> None:
    """Full, sliding, full, sliding: the n-th layer of either group lives in the n-th tensor, in blocks of its own."""
    kv = pool(layer_groups=(0, 1, 0, 1))
    addresses = [kv.layer(layer).keys.data_ptr() for layer in range(4)]
    assert addresses[0] == addresses[1] != addresses[2] == addresses[3]
    assert kv.num_bytes == pool(layer_groups=(0, 0)).num_bytes


def test_block_gives_copies() -> None:
    kv = pool()
    kv.layer(1).keys[5] = 1.0
    kv.layer(1).values[5] = 2.0
    keys, values = kv.block(5, 1)
    kv.layer(1).keys[5] = 7.0
    assert keys.shape == values.shape == (4, 2, 8)
    assert keys.unique().tolist() == [1.0] and values.unique().tolist() == [2.0]


@pytest.mark.parametrize(("block_id", "layer"), [(6, 0), (-1, 0), (0, 3), (0, -1)])
def test_block_refuses_what_is_not_there(block_id: int, layer: int) -> None:
    with pytest.raises(IndexError, match=r"there is no (block|layer) (6|-1|3): the (pool|model) has"):
        pool().block(block_id, layer)


def test_a_pool_that_does_not_fit_is_refused_with_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_per_block = pool(num_blocks=1).num_bytes
    monkeypatch.setattr(kv_tensors, "free_memory", lambda device: 100 * bytes_per_block)
    assert pool(num_blocks=100).num_blocks == 100
    with pytest.raises(ConfigError, match=r"num_blocks=101 needs .* GiB .* at most 100 blocks fit"):
        pool(num_blocks=101)


def test_a_pool_for_a_larger_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"num_blocks=1000000000 needs [\d,.]+ GiB for the KV pool, but cpu has"):
        pool(num_blocks=10**9)
