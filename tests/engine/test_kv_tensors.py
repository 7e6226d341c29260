from __future__ import annotations

import pytest
import torch

from labengine.config import ConfigError
from labengine.engine import pool_size
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.recurrence_sizes import StateTensor


def pool(
    num_blocks: int = 6, layer_groups: tuple[int, ...] = (0, 0, 0), dtype: torch.dtype = torch.float32
) -> KVTensors:
    return KVTensors(
        num_blocks=num_blocks,
        block_size=4,
        layer_groups=layer_groups,
        num_kv_heads=2,
        head_dim=8,
        dtype=dtype,
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
    """Full, sliding, full, sliding: the n-th layer of either group lives in the n-th tensor, in separate blocks."""
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


def random_pool(dtype: torch.dtype = torch.float32) -> KVTensors:
    """Full, sliding, sliding, full, sliding: groups of 2 and 3 layers, so that one page is not quite used."""
    kv = pool(layer_groups=(0, 1, 1, 0, 1), dtype=dtype)
    for layer in range(5):
        kv.layer(layer).keys.normal_(), kv.layer(layer).values.normal_()
    return kv


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_is_read_and_written_back_bit_by_bit(dtype: torch.dtype) -> None:
    kv = random_pool(dtype)
    kv.layer(1).keys[2, 0, 0, 0] = torch.nan
    block = kv.read_block(1, 2)
    names = [f"layers.{layer}.{half}" for layer in (1, 2, 4) for half in ("keys", "values")]
    assert list(block) == names and all(tensor.shape == (4, 2, 8) for tensor in block.values())
    for layer in (2, 4):
        keys, values = kv.block(2, layer)
        assert torch.equal(block[f"layers.{layer}.keys"], keys) and torch.equal(block[f"layers.{layer}.values"], values)
    before = [torch.stack(kv.block(5, layer)) for layer in (0, 3)]
    kv.write_block(1, 5, block)
    again = kv.read_block(1, 5)
    same_bits = torch.int32 if dtype == torch.float32 else torch.int16
    assert all(torch.equal(again[name].view(same_bits), block[name].view(same_bits)) for name in names)
    # Tensors are shared by the n-th layers of both groups, so block 5 of group 0 now holds group 1's KV: real memory.
    after = [torch.stack(kv.block(5, layer)) for layer in (0, 3)]
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_what_was_read_is_a_copy_and_writing_touches_one_block() -> None:
    kv = random_pool()
    block = kv.read_block(0, 3)
    kept = {name: tensor.clone() for name, tensor in block.items()}
    others = [torch.stack(kv.block(block_id, layer)) for block_id in (0, 1, 2, 4, 5) for layer in range(5)]
    kv.layer(0).keys.neg_()
    assert all(torch.equal(block[name], kept[name]) for name in kept)
    kv.layer(0).keys.neg_()
    kv.write_block(0, 3, {name: tensor.add_(1) for name, tensor in block.items()})
    now = [torch.stack(kv.block(block_id, layer)) for block_id in (0, 1, 2, 4, 5) for layer in range(5)]
    assert all(torch.equal(old, new) for old, new in zip(others, now, strict=True))


def test_kv_that_does_not_fit_is_refused_before_anything_is_written() -> None:
    kv = random_pool()
    good, old = kv.read_block(1, 2), torch.stack(kv.block(3, 1))
    last = "layers.4.values"
    for bad, message in (
        (kv.read_block(0, 2), "a block of group 1 must have layers.1.keys, .*, got layers.0.keys"),
        ({}, "got nothing"),
        ({**good, last: good[last][:2]}, r"layers.4.values .* must be torch.float32 \[4, 2, 8\], got .* \[2, 2, 8\]"),
        ({**good, last: good[last].half()}, "got torch.float16"),
    ):
        with pytest.raises(ValueError, match=message):
            kv.write_block(1, 3, bad)
    assert torch.equal(torch.stack(kv.block(3, 1)), old)


@pytest.mark.parametrize(("group", "block_id"), [(2, 0), (-1, 0), (0, 6), (0, -1)])
def test_read_and_write_refuse_what_is_not_there(group: int, block_id: int) -> None:
    kv = random_pool()
    with pytest.raises(IndexError, match=r"no (group|block) "):
        kv.read_block(group, block_id)
    with pytest.raises(IndexError, match=r"no (group|block) "):
        kv.write_block(group, block_id, {})


@pytest.mark.parametrize(("block_id", "layer"), [(6, 0), (-1, 0), (0, 3), (0, -1)])
def test_block_refuses_what_is_not_there(block_id: int, layer: int) -> None:
    with pytest.raises(IndexError, match=r"no (block|layer) (6|-1|3): the (pool|model) has"):
        pool().block(block_id, layer)


def test_a_pool_that_does_not_fit_is_refused_with_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_per_block = pool(num_blocks=1).num_bytes
    monkeypatch.setattr(pool_size, "free_memory", lambda device: 100 * bytes_per_block)
    assert pool(num_blocks=100).num_blocks == 100
    with pytest.raises(ConfigError, match=r"num_blocks=101 needs .* GiB .* at most 100 blocks fit"):
        pool(num_blocks=101)


# -- states ------------------------------------------------------------------------------------------------------------

CONV, MATRICES = StateTensor("conv", (3, 8)), StateTensor("matrices", (2, 4, 5), is_float32=True)


def pool_with_states(dtype: torch.dtype = torch.float32) -> KVTensors:
    """State, full, state, full, full: one group of states, one of attention."""
    states = ((CONV, MATRICES), (), (CONV, MATRICES), (), ())
    kv = KVTensors(6, (0, 1, 0, 1, 1), 4, 2, 8, dtype, torch.device("cpu"), states)
    for layer in (0, 2):
        for tensor in kv.states(layer).values():
            tensor.normal_()
    return kv


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_costs_its_kv_and_a_state_of_each_layer(dtype: torch.dtype) -> None:
    kv = pool_with_states(dtype)
    kv_bytes, state_bytes = 3 * 2 * 4 * 2 * 8 * dtype.itemsize, 2 * (8 * 3 * dtype.itemsize + 2 * 4 * 5 * 4)
    assert kv.block_bytes == kv_bytes + state_bytes and kv.num_bytes == 6 * kv.block_bytes
    allocated = [tensor for layer in (0, 2) for tensor in kv.states(layer).values()]
    allocated += [half for layer in (1, 3, 4) for half in (kv.layer(layer).keys, kv.layer(layer).values)]
    assert sum(tensor.numel() * tensor.element_size() for tensor in allocated) == kv.num_bytes


def test_states_are_read_written_and_copied_block_by_block() -> None:
    kv = pool_with_states()
    block = kv.read_block(0, 2)
    assert list(block) == ["layers.0.conv", "layers.0.matrices", "layers.2.conv", "layers.2.matrices"]
    assert block["layers.2.matrices"].shape == (2, 4, 5)
    others = [0, 1, 3]
    before = kv.states(2)["matrices"][others].clone()
    kv.write_block(0, 4, block)
    kv.copy_block(0, 4, 5)
    for target in (4, 5):
        assert all(torch.equal(tensor, block[name]) for name, tensor in kv.read_block(0, target).items())
    assert torch.equal(kv.states(2)["matrices"][others], before)
    assert not any(tensor.any() for tensor in kv.read_block(1, 4).values()), (
        "the KV of the same block is another memory"
    )


def test_a_layer_with_a_state_has_no_keys() -> None:
    with pytest.raises(ConfigError, match=r"layer 2 .*layers with K and V: 1, 3, 4"):
        pool_with_states().block(0, 2)
