"""Damaged files of a disk store: a load gives what was saved, or an error that names the damage."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.external.pools import FINGERPRINT, SimulatedPool, TensorPool, chain, hash_of, held, saved, transfer
from labengine.core.connector import LoadError
from labengine.engine.external import DiskStore
from labengine.engine.external.block_files import decode, encode, file_name, namespace_of
from labengine.engine.external.store import StoreError

KEY = (0, hash_of(1))


def file_of(store: DiskStore, name: int, group: int = 0) -> Path:
    return store.path / file_name(namespace_of(FINGERPRINT), (group, hash_of(name)))


def truncated(data: bytes) -> bytes:
    return data[:-20]


def bit_flipped_in_the_values(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def of_another_shape(data: bytes) -> bytes:
    return data.replace(b'"shape":[4,2,8]', b'"shape":[8,2,4]')


def under_another_name(data: bytes) -> bytes:
    return data.replace(b'"layers.0.keys"', b'"layers.7.keys"')


def of_another_format(data: bytes) -> bytes:
    return data.replace(b"labengine-kv-1", b"labengine-kv-9")


DAMAGES = {
    truncated: "its file is damaged: .*incomplete metadata",
    bit_flipped_in_the_values: "its file is damaged: the digest is wrong",
    of_another_shape: "the digest is wrong",
    under_another_name: "the digest is wrong",
    of_another_format: "its file is not in the format labengine-kv-1",
    lambda data: b"": "its file is damaged",
    lambda data: b"\xff" * 300: "its file is damaged",
    lambda data: (2).to_bytes(8, "little") + b"[]": "its file is damaged",
    lambda data: (100_000).to_bytes(8, "little") + b"[" * 100_000: "its file is damaged",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_reported_and_dropped(disk: DiskStore, damage: Callable[[bytes], bytes]) -> None:
    pool = saved(disk, [1, 2])
    intact = file_of(disk, 1).read_bytes()
    assert damage(intact) != intact
    file_of(disk, 1).write_bytes(damage(intact))
    pool.written.clear()
    with pytest.raises(LoadError, match=DAMAGES[damage]) as caught:
        disk.start_load_kv(chain(1, 2), pool)
    assert caught.value.failed == (transfer(1),)
    assert (pool.written, held(disk, [1, 2])) == ([], [2])
    assert not file_of(disk, 1).exists()
    assert disk.save_kv(chain(1), pool) == tuple(chain(1))


@pytest.mark.parametrize("pool", [TensorPool(), SimulatedPool()], ids=["tensors", "simulated"])
def test_no_flipped_bit_goes_unseen(pool: TensorPool | SimulatedPool) -> None:
    data = encode(FINGERPRINT, KEY, pool.read_block(0, 1))
    decode(FINGERPRINT, KEY, data)
    for position in range(min(len(data), 1_000)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(StoreError):
                decode(FINGERPRINT, KEY, bytes(flipped))


@pytest.mark.parametrize(
    ("fingerprint", "group", "name", "message"),
    [("gemma", 0, 1, "model is"), (FINGERPRINT, 1, 1, "group is 0"), (FINGERPRINT, 0, 2, "block_hash is 00000001")],
)
def test_an_intact_file_of_another_block_is_refused(fingerprint: str, group: int, name: int, message: str) -> None:
    data = encode(FINGERPRINT, KEY, TensorPool().read_block(0, 1))
    with pytest.raises(StoreError, match=f"damaged: {message}"):
        decode(fingerprint, (group, hash_of(name)), data)


def test_names_dtypes_and_shapes_are_part_of_the_digest() -> None:
    zeros = torch.zeros(8, dtype=torch.float32)
    alike = [
        {"a": zeros},
        {"b": zeros},
        {"a": zeros.view(torch.int32)},
        {"a": zeros.view(2, 4)},
        {"a": zeros[:4], "b": zeros[4:]},
        {"a": zeros[:5], "b": zeros[5:]},
    ]
    digests = {_digest_in(encode(FINGERPRINT, KEY, kv)) for kv in alike}
    assert len(digests) == len(alike)


def _digest_in(data: bytes) -> str:
    digest: str = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["digest"]
    return digest


def test_a_file_that_is_gone_is_reported_and_then_a_miss(disk: DiskStore) -> None:
    pool = saved(disk, [1, 2])
    file_of(disk, 1).unlink()
    assert held(disk, [1, 2]) == [1, 2]  # has() does not look
    with pytest.raises(LoadError, match="its file no longer exists"):
        disk.start_load_kv(chain(1, 2), pool)
    assert held(disk, [1, 2]) == [2]


def test_a_folder_that_is_gone_is_reported_and_then_made_again(disk: DiskStore) -> None:
    pool = saved(disk, [1])
    shutil.rmtree(disk.path)
    with pytest.raises(LoadError, match="its file no longer exists"):
        disk.start_load_kv(chain(1), pool)
    assert disk.save_kv(chain(1), pool) == tuple(chain(1))
    disk.start_load_kv(chain(1), pool)


def test_no_pickle_is_ever_read(disk: DiskStore, tmp_path: Path) -> None:
    import pickle

    class Bomb:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    pool = saved(disk, [1])
    file_of(disk, 1).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(LoadError, match="damaged"):
        disk.start_load_kv(chain(1), pool)
    assert not (tmp_path / "exploded").exists()
