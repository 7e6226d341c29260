from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from checkout import child_environment
from labengine.config import ConfigError
from labengine.engine.external import DiskStore, HostStore, open_store
from waiting import PATIENCE


def test_disk_is_a_folder_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path))
    store = open_store("disk")
    assert isinstance(store, DiskStore)
    assert store.path == tmp_path / "kv"


def test_a_path_or_a_text_with_a_separator_is_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for spec, path in [
        (tmp_path / "kv", tmp_path / "kv"),
        (Path("disk"), Path("disk")),
        (f"{tmp_path}/kv", tmp_path / "kv"),
        ("./host", Path("host")),
        ("~/kv", tmp_path / "kv"),
    ]:
        store = open_store(spec)
        assert isinstance(store, DiskStore)
        assert store.path == path


@pytest.mark.parametrize("spec", ["memory", "Host", "", "kv", 3, None, True, b"/kv", HostStore, ["disk"]])
def test_anything_else_is_refused_with_what_there_is(spec: object) -> None:
    with pytest.raises(ConfigError, match=r"external .*'host'.*'disk'"):
        open_store(spec)  # type: ignore[arg-type]


def test_stores_open_and_keep_a_simulated_models_keys_without_torch(tmp_path: Path) -> None:
    code = """
import sys
from labengine.core.connector import BlockTransfer
from labengine.engine.external import Delayed, Threaded, open_store
import faulty_stores

class Pool:
    def read_block(self, group, block_id):
        return None
    def write_block(self, group, block_id, kv):
        assert kv is None

for late in Delayed(open_store("host")), Threaded(open_store(sys.argv[1])):
    late.bind("simulated")
    transfer = BlockTransfer(0, 0, 0, 0, b"abc")
    assert late.save_kv([transfer], Pool()) == (transfer,), late.failures
    late.start_load_kv([transfer], Pool())
    late.wait(float(sys.argv[2]))
    assert late.get_finished(Pool()) == ({0}, set()), late.failures
print("loaded:", *{"torch", "numpy", "transformers"} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, str(tmp_path), str(PATIENCE)]
    run = subprocess.run(command, env=child_environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert run.stdout == "loaded:\n", run.stdout + run.stderr
