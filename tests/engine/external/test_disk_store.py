"""Files, caps and order of a disk store, also over restarts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.external.pools import FINGERPRINT, SimulatedPool, TensorPool, chain, hash_of, held, saved, transfer
from labengine.config import ConfigError
from labengine.engine.external import DiskStore
from labengine.engine.external.block_files import namespace_of

Reopen = Callable[..., DiskStore]


def files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file())


def num_bytes_on(path: Path) -> int:
    return sum(file.stat().st_size for file in files(path))


def test_one_file_a_block_that_any_reader_of_safetensors_can_open(disk: DiskStore) -> None:
    pool = TensorPool(dtype=torch.bfloat16)
    pool.memory[0]["layers.2.keys"][3] = 1.5
    disk.save_kv([*chain(3), *chain(3, group=1)], pool)
    folder = disk.path / namespace_of(FINGERPRINT)
    name = f"{hash_of(3).hex()}.safetensors"
    assert files(disk.path) == [folder / "group-0" / name, folder / "group-1" / name]
    content = load_file(folder / "group-0" / name)
    assert torch.equal(content["layers.2.keys"], torch.full((4, 2, 8), 1.5, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_bit_survives_a_restart(disk: DiskStore, reopened: Reopen, dtype: torch.dtype) -> None:
    pool = TensorPool(dtype=dtype)
    pool.fill(chain(1, 2))
    disk.save_kv(chain(1, 2), pool)
    before = [pool.bits(block) for block in chain(1, 2)]
    disk.close()
    loads = [transfer(name, block_id=name + 10) for name in (1, 2)]
    reopened().start_load_kv(loads, pool)
    assert [pool.bits(block) for block in loads] == before


def test_views_and_permuted_tensors_are_saved_as_they_look(disk: DiskStore) -> None:
    base = torch.randn(4, 2, 8)
    content = {"a": base[:2], "b": base[1:], "c": base.permute(2, 0, 1), "d": base[:0], "e": torch.tensor(2.0)}

    class Pool(SimulatedPool):
        def read_block(self, group: int, block_id: int) -> dict[str, torch.Tensor]:  # type: ignore[override]
            return content

    pool = Pool()
    assert disk.save_kv(chain(1), pool) == tuple(chain(1))
    disk.start_load_kv(chain(1), pool)
    (_, _, loaded) = pool.written[0]
    assert loaded.keys() == content.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in content.items())


def test_the_bytes_of_all_files_are_counted_also_after_a_restart(disk: DiskStore, reopened: Reopen) -> None:
    saved(disk, [1, 2, 3])
    disk.save_kv(chain(4), SimulatedPool())
    assert disk.num_bytes == num_bytes_on(disk.path)
    disk.forget(chain(2))
    assert disk.num_bytes == num_bytes_on(disk.path)
    again = reopened()
    assert (again.num_bytes, len(again)) == (disk.num_bytes, 3)


def test_the_cap_holds_at_every_moment(tmp_path: Path) -> None:
    probe = DiskStore(tmp_path / "probe")
    probe.bind(FINGERPRINT)
    saved(probe, [1])
    store = DiskStore(tmp_path / "kv", max_bytes=3 * probe.num_bytes + 10)
    store.bind(FINGERPRINT)
    pool = TensorPool()
    for name in range(8):
        saved(store, [name], pool)
        assert store.num_bytes == num_bytes_on(store.path) <= 3 * probe.num_bytes + 10
    assert held(store, range(9)) == [5, 6, 7]


def test_the_order_of_use_survives_a_restart(disk: DiskStore, reopened: Reopen) -> None:
    pool = saved(disk, [1, 2, 3, 4])
    disk.start_load_kv(chain(1), pool)
    disk.save_kv(chain(2), pool)  # there already: a use
    cap = disk.num_bytes
    disk.close()
    again = reopened(max_bytes=cap)
    saved(again, [5], pool)
    assert held(again, range(9)) == [1, 2, 4, 5]
    saved(again, [6], pool)
    assert held(again, range(9)) == [1, 2, 5, 6]


def test_models_share_the_folder_and_the_cap_but_no_block(disk: DiskStore, reopened: Reopen) -> None:
    saved(disk, [1, 2])
    cap = disk.num_bytes + 100  # the other fingerprint may be a little longer
    other = reopened(max_bytes=cap, fingerprint="gemma")
    assert held(other, range(9)) == []
    saved(other, [2])
    assert num_bytes_on(disk.path) <= cap
    assert held(reopened(), range(9)) == [2]
    assert len(other) == 1


@pytest.mark.parametrize("fingerprint", ["", "../../etc", "a/b\\c", "CON", "ü" * 500, "x" * 5000, "\0"])
def test_any_fingerprint_makes_a_folder_inside_the_path(tmp_path: Path, fingerprint: str) -> None:
    store = DiskStore(tmp_path / "kv")
    store.bind(fingerprint)
    pool = saved(store, [1])
    store.start_load_kv(chain(1), pool)
    (file,) = files(tmp_path)
    assert file.parent.parent.parent == tmp_path / "kv"


def test_what_is_not_a_block_is_left_alone(disk: DiskStore, reopened: Reopen) -> None:
    saved(disk, [1])
    strangers = [
        disk.path / "model.safetensors",
        disk.path / "notes" / "group-0" / "ab.safetensors",
        disk.path / namespace_of(FINGERPRINT) / "readme.txt",
        disk.path / namespace_of(FINGERPRINT) / "group-0" / "my model.safetensors",
        disk.path / namespace_of(FINGERPRINT) / "group-0" / ".mine.aside",
    ]
    for stranger in strangers:
        stranger.parent.mkdir(parents=True, exist_ok=True)
        stranger.write_bytes(b"x" * 100)
    again = reopened(max_bytes=1)
    assert (len(again), again.num_bytes) == (0, 0)
    assert files(disk.path) == sorted(strangers)


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("mine")
    with pytest.raises(ConfigError, match="is a file"):
        DiskStore(tmp_path / "kv")


def test_the_folder_is_looked_at_again_every_so_often(
    disk: DiskStore, reopened: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labengine.engine.external.disk.SAVES_BETWEEN_READINGS", 4)
    other = reopened()
    saved(other, [20, 21])
    saved(disk, [1, 2, 3])
    assert held(disk, [20, 21]) == []
    saved(disk, [4])
    assert held(disk, range(30)) == [1, 2, 3, 4, 20, 21]
    assert disk.num_bytes == num_bytes_on(disk.path)


def test_uses_are_in_order_whatever_the_clock_says(disk: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labengine.engine.external.disk.time.time_ns", lambda: 1_000_000_000_000)
    saved(disk, [1, 2, 3])
    times = [os.stat(file).st_mtime_ns for file in files(disk.path)]
    assert times == sorted(set(times))
