from __future__ import annotations

import os
import shutil
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from labengine.config import ConfigError
from labengine.engine import fingerprint, model_runner
from labengine.engine.external import DiskStore
from labengine.engine.model_runner import ModelRunner
from labengine.lab import Lab


@pytest.fixture
def model_dir(tiny_llama: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


def name_of(model_dir: Path, **settings: object) -> str:
    arguments = {"num_blocks": 8, "block_size": 4, "device": "cpu", **settings}
    return ModelRunner.load(model_dir, **arguments).fingerprint  # type: ignore[arg-type]


def test_a_model_has_one_name(model_dir: Path) -> None:
    name = name_of(model_dir)
    assert len(name) == 32 and int(name, 16)
    assert name_of(model_dir, num_blocks=20) == name, "how many blocks there are does not change what is in them"


def test_what_changes_kv_changes_the_name(model_dir: Path, tiny_gemma: Path) -> None:
    settings: list[dict[str, object]] = [{}, {"block_size": 8}, {"dtype": "bfloat16"}, {"dtype": "float16"}]
    names = {name_of(model_dir, **setting) for setting in settings}
    assert len(names | {name_of(tiny_gemma)}) == len(settings) + 1


def edit(path: Path) -> None:
    """One bit of the last weight, with size and mtime as before."""
    stat = path.stat()
    sleep(0.01)  # file systems tick in milliseconds
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_every_byte_counts(model_dir: Path, name: str) -> None:
    before = name_of(model_dir)
    if name == "config.json":
        (model_dir / name).write_text((model_dir / name).read_text().replace('"eos_token_id": 2', '"eos_token_id": 3'))
    else:
        edit(model_dir / name)
    assert name_of(model_dir) != before


def test_a_copy_has_the_same_name(model_dir: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model_dir, tmp_path / "copy", copy_function=shutil.copyfile))
    assert name_of(copy) == name_of(model_dir)


def num_read() -> int:
    return fingerprint._sha256.cache_info().misses


def test_a_process_reads_a_file_once_until_it_changes(model_dir: Path) -> None:
    counts = []
    for _ in range(2):
        before = num_read()
        name_of(model_dir), name_of(model_dir)
        counts.append(num_read() - before)
        edit(model_dir / "model.safetensors")
    assert counts == [2, 1]


def test_without_an_external_tier_nothing_is_hashed(model_dir: Path) -> None:
    before = num_read()
    with Lab(model_dir, num_blocks=8, block_size=4) as lab:
        lab.generate([3, 4, 5], max_tokens=2)
    assert num_read() == before


def test_a_name_is_that_of_the_weights_in_memory(model_dir: Path) -> None:
    """Asked for after the files have changed, there is none; known before, it stays, a sibling's too."""
    dtypes = ("float32", "bfloat16")  # runners of one dtype share weights, and their digests
    first, second = (ModelRunner.load(model_dir, num_blocks=8, block_size=4, device="cpu", dtype=t) for t in dtypes)
    before = first.fingerprint
    edit(model_dir / "model.safetensors")
    assert first.sibling(8, 4, 4).fingerprint == before
    with pytest.raises(ConfigError, match=r"model.safetensors has changed"):
        _ = second.fingerprint


def test_weights_that_change_while_they_are_loaded(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = model_runner.load_weights

    def interrupted(*arguments: Any) -> None:
        original(*arguments)
        edit(model_dir / "model.safetensors")

    monkeypatch.setattr(model_runner, "load_weights", interrupted)
    with pytest.raises(ConfigError, match="has changed"):
        name_of(model_dir)


def test_a_tier_does_not_serve_the_kv_of_edited_weights(model_dir: Path, tmp_path: Path) -> None:
    prompt, answers = list(range(3, 40)), []
    for kind in ("first", "edited", "edited, without a tier"):
        if kind == "edited":
            tensors = {name: tensor.flip(0) for name, tensor in load_file(model_dir / "model.safetensors").items()}
            stat = (model_dir / "model.safetensors").stat()
            save_file(tensors, model_dir / "model.safetensors", metadata={"format": "pt"})
            os.utime(model_dir / "model.safetensors", ns=(stat.st_atime_ns, stat.st_mtime_ns))
        external = None if kind.endswith("without a tier") else DiskStore(tmp_path / "kv", max_bytes=10**8)
        with Lab(model_dir, num_blocks=32, block_size=4, external=external) as lab:
            answers.append(lab.generate(prompt, max_tokens=10)[0].token_ids)
            assert lab.check() == []
    assert answers[1] == answers[2] != answers[0]
