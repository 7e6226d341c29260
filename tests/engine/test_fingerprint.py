from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from labengine.engine import fingerprint as module
from labengine.engine.model_runner import ModelRunner
from labengine.engine.sources.manifest import write_manifest


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


@pytest.mark.parametrize("with_manifest", [True, False])
def test_other_weights_of_the_same_shape_have_another_name(model_dir: Path, with_manifest: bool) -> None:
    """Even where size, header and time of change are those of before."""
    path = model_dir / "model.safetensors"
    stat = path.stat()
    names = []
    for _ in range(2):
        if with_manifest:
            write_manifest(model_dir, source="a test")
        names.append(name_of(model_dir))
        tensors = {name: tensor + 0.01 for name, tensor in load_file(path).items()}
        save_file(tensors, path, metadata={"format": "pt"})
        assert path.stat().st_size == stat.st_size
        os.utime(path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert names[0] != names[1]


def test_a_manifest_is_not_believed_of_a_file_that_has_changed(model_dir: Path) -> None:
    write_manifest(model_dir, source="a test")
    before = name_of(model_dir)
    path = model_dir / "model.safetensors"
    save_file({name: tensor + 0.01 for name, tensor in load_file(path).items()}, path, metadata={"format": "pt"})
    assert name_of(model_dir) != before


def test_a_manifest_names_a_copy_alike(model_dir: Path, tmp_path: Path) -> None:
    write_manifest(model_dir, source="a test")
    copy = Path(shutil.copytree(model_dir, tmp_path / "copy"))
    assert name_of(copy) == name_of(model_dir)


@pytest.mark.parametrize("content", ["", "[]", '{"files": 3}', '{"files": {"model.safetensors": {"size": "?"}}}'])
def test_a_manifest_of_another_program_is_no_matter(model_dir: Path, content: str) -> None:
    before = name_of(model_dir)
    (model_dir / "manifest.json").write_text(content)
    assert name_of(model_dir) == before


def test_large_files_are_not_read_whole(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLES", 3)
    monkeypatch.setattr(module, "SAMPLE_BYTES", 16)
    read: list[int] = []
    original = module._digest
    monkeypatch.setattr(module, "_digest", lambda content: (read.append(len(content)), original(content))[1])
    name_of(model_dir)
    assert max(read[:-1]) < 100
