"""From a package to a model directory, with a tiny package that pip takes from a folder: no network is used."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.plan_builder import Dealer, plan_of
from engine.sources.tiny_package import MEMBER, TOKENS, entry_of, tiny_entry, write_gguf, write_wheel
from labengine.config import ConfigError
from labengine.engine import sources
from labengine.engine.model_runner import ModelRunner
from labengine.engine.sources import SourceError, build, catalogue, model_path
from labengine.engine.sources.cache import cache_root
from labengine.engine.sources.catalogue import WheelMember
from labengine.engine.tokenizer import HuggingFaceTokenizer
from labengine.system import extras
from waiting import PATIENCE


@pytest.fixture(scope="module")
def original(tiny_model: Callable[..., Path]) -> Path:
    """The tiny Llama before it became a GGUF."""
    return tiny_model("llama", vocab_size=len(TOKENS), tie_word_embeddings=False)


@pytest.fixture(scope="module")
def gguf(original: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path, original)
    return path.read_bytes()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which pip looks."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gguf: bytes) -> Path:
    """An empty cache, and a catalogue that knows "tiny"."""
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sources.KNOWN_MODELS, "tiny", tiny_entry(gguf))
    return tmp_path / "cache"


def left_in(cache: Path) -> list[str]:
    """All files of the cache but locks."""
    return [path.name for path in cache.iterdir() if not path.name.endswith(".lock")]


def test_a_package_becomes_the_original_model(shelf: Path, cache: Path, gguf: bytes, original: Path) -> None:
    write_wheel(shelf, gguf)
    directory = model_path("tiny")
    assert left_in(cache) == [directory.name]
    expected, found = load_file(original / "model.safetensors"), load_file(directory / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor.bfloat16()) for name, tensor in expected.items())
    runner = ModelRunner.load(directory, num_blocks=8, block_size=4, device="cpu", dtype="float32")
    reference = ModelRunner.load(original, num_blocks=8, block_size=4, device="cpu", dtype="float32")
    plan = plan_of(Dealer(8, 4).request([3, 4, 5, 6, 7]).take(5))
    assert (runner.forward(plan) - reference.forward(plan)).abs().max() < 0.1, "bfloat16 rounds the weights, no more"
    assert runner.model.config.rms_norm_eps == reference.model.config.rms_norm_eps
    assert runner.eos_token_ids == {1}
    tokenizer = HuggingFaceTokenizer(directory)
    ids = tokenizer.encode("ab a<|im_end|>")
    assert [TOKENS[token_id] for token_id in ids] == ["ab", "Ġa", "<|im_end|>"]
    assert tokenizer.decode(ids) == "ab a"
    assert tokenizer.chat([{"role": "user", "content": "ab"}]) == ids[:1]


def test_the_second_time_nothing_is_fetched(
    shelf: Path, cache: Path, gguf: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_wheel(shelf, gguf)
    first = model_path("tiny")
    assert "tiny: convert: 100%" in capsys.readouterr().err
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("pip was called"))
    assert model_path("tiny") == first
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("content", ["absent", "another file", "another package"])
def test_what_goes_wrong_is_said_and_leaves_nothing(shelf: Path, cache: Path, gguf: bytes, content: str) -> None:
    messages = {
        "absent": r"pip could not download tiny-model==1.0; it said:\n.*No matching distribution found",
        "another file": f"tiny-model==1.0: .*sha256.*, expected {tiny_entry(gguf).sha256}",
        "another package": f"has no {MEMBER}",
    }
    if content == "another file":
        write_wheel(shelf, gguf[:-1] + b"!")
    elif content == "another package":
        write_wheel(shelf, gguf, member="tiny_model/other.gguf")
    with pytest.raises(SourceError, match=f"(?s){messages[content]}"):
        model_path("tiny")
    assert left_in(cache) == []


def test_a_wheel_broken_on_the_way_from_pip(tmp_path: Path, gguf: bytes) -> None:
    path = write_wheel(tmp_path, gguf)
    intact = path.read_bytes()
    zeros, ones = (intact[:3000] + fill * 100 + intact[3100:] for fill in (b"\x00", b"\xff"))
    for broken in (zeros, ones, intact[:4000], b"<html>"):
        path.write_bytes(broken)
        with pytest.raises(SourceError, match="was damaged in the download"):
            build.copy_member(path, MEMBER, io.BytesIO())


def test_an_interrupted_download_ends_pip_and_leaves_nothing(
    shelf: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **settings: object) -> None:
            super().__init__([sys.executable, "-c", "import time; time.sleep(60)"])
            started.append(self)

    def interrupt(folder: Path) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(build.subprocess, "Popen", Slow)
    monkeypatch.setattr(build, "_largest_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model_path("tiny")
    assert [process.returncode is not None for process in started] == [True]
    assert left_in(cache) == []


def test_what_a_killed_process_left_is_swept_away(shelf: Path, cache: Path, gguf: bytes) -> None:
    (cache / ".preparing-tiny-abc").mkdir(parents=True)
    (cache / ".preparing-tiny-abc" / "half.whl").write_bytes(b"half")
    write_wheel(shelf, gguf)
    assert left_in(cache) == [".preparing-tiny-abc"]
    assert [model_path("tiny").name] == left_in(cache)


RACER = """
import sys
from labengine.engine import sources
from labengine.engine.sources.catalogue import WheelMember, WheelModel
parts = (WheelMember("tiny-model==1.0", sys.argv[1]),)
sources.KNOWN_MODELS["tiny"] = WheelModel("tiny", parts, int(sys.argv[2]), sys.argv[3])
print(sources.model_path("tiny"))
"""


def test_processes_may_race(shelf: Path, cache: Path, gguf: bytes, project_root: Path) -> None:
    write_wheel(shelf, gguf)
    entry = tiny_entry(gguf)
    command = [sys.executable, "-c", RACER, MEMBER, str(entry.num_bytes), entry.sha256]
    racers = [
        subprocess.Popen(command, cwd=project_root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [racer.communicate(timeout=PATIENCE) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], outputs
    assert {out.strip() for out, _ in outputs} == {str(cache / name) for name in left_in(cache)}
    assert sum("tiny: convert: 100%" in err for _, err in outputs) == 1, "only one of them converts"


def test_a_cache_that_cannot_be_written(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LABENGINE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(SourceError, match=r"cannot prepare 'tiny' in .*LABENGINE_CACHE"):
        model_path("tiny")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABENGINE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == Path.home() / ".cache" / "labengine"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_root() == Path("/xdg/labengine")
    monkeypatch.setenv("LABENGINE_CACHE", "/mine")
    assert cache_root() == Path("/mine")


def test_a_local_directory_is_taken_as_it_is(tiny_llama: Path) -> None:
    assert model_path(tiny_llama) == model_path(str(tiny_llama)) == tiny_llama


def test_only_a_conversion_needs_gguf(
    shelf: Path, cache: Path, gguf: bytes, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(shelf, gguf)

    def find_spec(module: str) -> object:
        return None if module == "gguf" else object()

    with monkeypatch.context() as patch:
        patch.setattr(extras, "find_spec", find_spec)
        with pytest.raises(ConfigError, match="'tiny' needs gguf: pip install"):
            model_path("tiny")
        assert model_path(tiny_llama) == tiny_llama
    prepared = model_path("tiny")
    monkeypatch.setattr(extras, "find_spec", find_spec)
    assert model_path("tiny") == prepared


def test_a_directory_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no config.json"):
        model_path(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"has no \*.safetensors"):
        model_path(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2", "no model 'smolm2'.* 'smollm2'.* smollm2, gemma3-270m"),
        ("no/such/place", "no model 'no/such/place'.* smollm2, gemma3-270m"),
        ("", "no model ''"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model_path(name)


PARTS = [WheelMember(f"tiny-part{number}==1.0", f"tiny_part{number}/tiny.gguf.part{number}") for number in (1, 2, 3)]
NOTICES = [WheelMember("tiny-terms==1.0", "tiny_terms/TERMS.html")]


def shelve_parts(shelf: Path, gguf: bytes) -> None:
    """Put the file on the shelf, cut in three, and its terms."""
    third = len(gguf) // 3 + 1
    for number, part in enumerate(PARTS):
        content = gguf[number * third : (number + 1) * third]
        write_wheel(shelf, content, part.member, part.requirement.removesuffix("==1.0"))
    write_wheel(shelf, b"be good", NOTICES[0].member, "tiny-terms")


def test_a_model_in_several_packages(shelf: Path, cache: Path, gguf: bytes) -> None:
    """Joined in the order of the catalogue, with its terms beside it."""
    shelve_parts(shelf, gguf)
    sources.KNOWN_MODELS["tiny"] = entry_of("tiny", gguf, PARTS, NOTICES)
    directory = model_path("tiny")
    assert left_in(cache) == [directory.name]
    assert (directory / "TERMS.html").read_bytes() == b"be good"
    names = ["TERMS.html", "chat_template.jinja", "config.json", "generation_config.json"]
    names += ["model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in directory.iterdir()) == names


def test_parts_in_another_order_are_another_file(shelf: Path, cache: Path, gguf: bytes) -> None:
    shelve_parts(shelf, gguf)
    sources.KNOWN_MODELS["tiny"] = entry_of("tiny", gguf, [PARTS[1], PARTS[0], PARTS[2]], NOTICES)
    with pytest.raises(SourceError, match=r"part2==1\.0 and tiny-part1==1\.0 and tiny-part3==1\.0: .*sha256"):
        model_path("tiny")
    assert left_in(cache) == []


def test_the_catalogue_is_consistent() -> None:
    for name, entry in catalogue.KNOWN_MODELS.items():
        assert entry.name == name and len(entry.sha256) == 64
        assert all("==" in member.requirement for member in (*entry.parts, *entry.notices))


def test_sources_are_light_to_import(project_root: Path) -> None:
    code = "import sys, labengine.engine.sources as s; s.model_path; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=project_root, capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "gguf", "numpy", "safetensors", "tqdm"} & set(done.stdout.split())
