from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labengine.engine.direct_tokenizer import DirectTokenizer, direct_tokenizer
from labengine.engine.tokenizer import HuggingFaceTokenizer

TEXTS = ("Hello world , it is n't .", "a  2024 b\n", "héllo 日本 👍", "<|im_start|>user<|im_end|> x", "", "<0xE2> \x00")


@pytest.fixture
def directory(smollm2: Path, tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(smollm2 / name, tmp_path)
    return tmp_path


def write(directory: Path, **values: object) -> dict[str, Any]:
    path = directory / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(path.read_bytes()) | values
    path.write_text(json.dumps(config))
    return config


def test_ids_texts_and_pieces_are_those_of_transformers(smollm2: Path) -> None:
    tokenizer = HuggingFaceTokenizer(smollm2)
    ours, theirs = tokenizer._loaded, tokenizer._transformers
    assert isinstance(ours, DirectTokenizer) and len(ours) == len(theirs)
    for text in TEXTS:
        for is_adding in (True, False):
            assert ours.encode(text, add_special_tokens=is_adding) == theirs.encode(text, add_special_tokens=is_adding)
    for start in range(0, len(ours), 97):
        ids = range(start, min(start + 97, len(ours)))
        for is_skipping in (True, False):
            assert ours.decode(ids, is_skipping) == theirs.decode(list(ids), skip_special_tokens=is_skipping)
        assert [ours.convert_ids_to_tokens(one) for one in ids] == theirs.convert_ids_to_tokens(list(ids))
    assert ours.added_tokens_decoder.keys() == theirs.added_tokens_decoder.keys()


def test_added_tokens_that_are_listed_twice_alike_change_nothing(directory: Path) -> None:
    added = json.loads((directory / "tokenizer.json").read_bytes())["added_tokens"]
    write(directory, added_tokens_decoder={str(token.pop("id")): token for token in added})
    assert direct_tokenizer(directory) is not None


def test_transformers_cleans_up_what_is_no_bpe(directory: Path) -> None:
    path = directory / "tokenizer.json"
    contents = json.loads(path.read_bytes())
    vocab = contents["model"]["vocab"]
    limits = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    contents["model"] = {"type": "WordPiece", "unk_token": next(iter(vocab)), "vocab": vocab, **limits}
    path.write_text(json.dumps(contents))
    write(directory, clean_up_tokenization_spaces=False)
    assert direct_tokenizer(directory) is not None
    write(directory, clean_up_tokenization_spaces=True)
    assert direct_tokenizer(directory) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda directory: write(directory, tokenizer_class="LlamaTokenizerFast"),
        lambda directory: write(directory, auto_map={"AutoTokenizer": ["own.py", None]}),
        lambda directory: write(directory, add_bos_token=True),
        lambda directory: write(directory, bos_token="<new>"),
        lambda directory: write(directory, extra_special_tokens=["<new>"]),
        lambda directory: write(directory, added_tokens_decoder={"49152": {"content": "<new>"}}),
        lambda directory: write(directory, added_tokens_decoder=["<new>"]),
        lambda directory: (directory / "tokenizer_config.json").unlink(),
        lambda directory: (directory / "tokenizer_config.json").write_text("[1"),
        lambda directory: (directory / "tokenizer.json").write_text('{"version": "1.0"'),
        lambda directory: (directory / "tokenizer.json").write_text('{"model": {"type": "BPE"}, "added_tokens": []}'),
    ],
)
def test_transformers_is_asked_where_its_tokenizer_might_differ(
    directory: Path, change: Callable[[Path], object]
) -> None:
    assert direct_tokenizer(directory) is not None
    change(directory)
    assert direct_tokenizer(directory) is None


def test_a_prompt_is_encoded_without_importing_transformers(smollm2: Path) -> None:
    program = (
        "import pathlib, sys; from labengine.engine.tokenizer import HuggingFaceTokenizer as Tokenizer;"
        "print(Tokenizer(pathlib.Path(sys.argv[1])).encode('Hello world'), 'transformers' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program, smollm2], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[19556, 905] False"
