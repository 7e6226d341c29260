"""A model directory with one thing wrong is refused with file and field or tensor, whatever the thing is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from engine import malformed
from engine.malformed import Case, write_tiny_tokenizer
from labengine.config import ConfigError
from labengine.lab import Lab

COMMON = (
    malformed.config_cases,
    malformed.generation_cases,
    malformed.tensor_cases,
    malformed.file_cases,
    malformed.index_cases,
    malformed.tokenizer_cases,
)
LLAMA = [*chain(*(cases() for cases in (*COMMON, malformed.rope_cases, malformed.tied_cases)))]
QWEN3 = [*chain(*(cases() for cases in (*COMMON, malformed.rope_cases)))]
GEMMA3 = [*chain(*(cases() for cases in (*COMMON, malformed.gemma_cases, malformed.tied_cases)))]


@pytest.fixture(scope="module")
def intact(tiny_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A directory of each family with everything in it, and nothing wrong."""
    made: dict[str, Path] = {}
    settings = {
        "llama": {"tie_word_embeddings": True},
        "qwen3": {},
        "gemma3": {"num_hidden_layers": 8, "sliding_window": 8},
    }

    def make(family: str) -> Path:
        if family not in made:
            directory = tmp_path_factory.mktemp(family) / "whole"
            shutil.copytree(tiny_model(family, **settings[family]), directory)
            write_tiny_tokenizer(directory)
            made[family] = directory
        return made[family]

    return make


def use(directory: Path) -> None:
    """Open it, and say something by text."""
    with Lab(directory, num_blocks=8, block_size=4) as lab:
        lab.add("ab", max_tokens=1)
        lab.run()


def assert_refused(case: Case, directory: Path) -> None:
    case.damage(directory)
    with pytest.raises(ConfigError) as refused:
        use(directory)
    assert str(directory) in str(refused.value)
    message = str(refused.value).replace(str(directory), "")
    assert all(name in message for name in case.names), message
    assert "\n" not in message and len(message) < 600, message


@pytest.fixture
def copy(intact: Callable[[str], Path], tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    yield lambda family: Path(shutil.copytree(intact(family), tmp_path / "model"))


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_an_intact_model_opens(copy: Callable[[str], Path], family: str) -> None:
    use(copy(family))


def test_an_intact_split_model_opens(copy: Callable[[str], Path]) -> None:
    directory = copy("llama")
    malformed.split(directory)
    use(directory)


def test_there_are_enough() -> None:
    assert len({case.name for case in LLAMA}) == len(LLAMA) > 150


@pytest.mark.parametrize("case", LLAMA, ids=str)
def test_llama(copy: Callable[[str], Path], case: Case) -> None:
    assert_refused(case, copy("llama"))


@pytest.mark.sweep
@pytest.mark.parametrize("case", QWEN3, ids=str)
def test_qwen3(copy: Callable[[str], Path], case: Case) -> None:
    assert_refused(case, copy("qwen3"))


@pytest.mark.sweep
@pytest.mark.parametrize("case", GEMMA3, ids=str)
def test_gemma3(copy: Callable[[str], Path], case: Case) -> None:
    assert_refused(case, copy("gemma3"))
