"""The tokenizer of a page beside the reference one (Rust's tokenizers), on thousands of strings."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any
from unicodedata import category

import pytest

from labengine.config import ConfigError
from labengine.engine.sources import model_path
from labengine.engine.tokenizer import HuggingFaceTokenizer
from labengine.engine.wasm.bpe_tokenizer import CONTROL, BPETokenizer

TEXTS = (
    *(
        "",
        " ",
        "  ",
        "\n",
        " \n ",
        "a",
        " a",
        "don't we'll I'VE 'sx '' ''s",
        "it's 1984's 12 3 a1b2",
        "\t\tx = [1, 2]\n",
    ),
    *(
        "naïve café – “quoted” …",
        "日本語のテキスト",
        "Привет, мир!",
        "👩‍👩‍👧 family 🇩🇪",
        "e\u0301 \u0301",
        "ſ K Å ½ ² ٣ Ⅷ 〇",
    ),
    *("\x1c\x1d\x1e\x1f", "\x85\xa0\u1680\u180e\u2003\u200b\u2028\u202f\u3000\ufeff", "\x00\x01", "a\u3000b \u3000 c"),
    *("<|im_start|>user\nHi<|im_end|>", "<|im_start|", "x<|endoftext|> y", "aaaaaaaaaaaaaaaaaaaaaaaa" * 9),
)
COMMON = "etaoin shrdlu,.'\n\t0123456789\"-()<|>_" + "abcdefghijklmnopqrstuvwxyz"
ASSIGNED = [chr(point) for point in range(0x20000) if category(chr(point)) not in ("Cn", "Cs", "Co")]


@pytest.fixture(scope="module")
def reference() -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(model_path("smollm2"))


def vocabulary_of(model_dir: Path) -> dict[str, Any]:
    """Return a tokenizer.json in the words of the GGUF from which it was made."""
    read = json.loads((model_dir / "tokenizer.json").read_text(encoding="utf-8"))
    vocab, added = read["model"]["vocab"], {one["content"] for one in read["added_tokens"] if one["special"]}
    tokens = sorted(vocab, key=vocab.__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if token in added else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in read["model"]["merges"]],
    }


@pytest.fixture(scope="module")
def ours() -> BPETokenizer:
    return BPETokenizer(vocabulary_of(model_path("smollm2")))


def random_text(random: Random) -> str:
    """A few runs, each of characters of one kind, and now and then a token's text or a special token."""
    pieces = []
    for _ in range(random.randrange(1, 8)):
        letters = random.choice(
            (COMMON, COMMON, "".join(random.choices(ASSIGNED, k=9)), " \n\t", "0123456789", "'sdmtlvre ")
        )
        pieces.append("".join(random.choices(letters, k=random.randrange(1, 12))))
        if random.random() < 0.1:
            pieces.append(random.choice(("<|im_end|>", "<|endoftext|>", "'ll", " the", "  ", "\u2003")))
    return "".join(pieces)


def test_ids_and_texts_are_the_reference_s(ours: BPETokenizer, reference: HuggingFaceTokenizer) -> None:
    random = Random(11)
    for text in (*TEXTS, *(random_text(random) for _ in range(6_000))):
        ids = reference.encode(text)
        assert ours.encode(text) == ids, repr(text)
        assert ours.decode(ids) == reference.decode(ids), repr(text)
        cut = ids[random.randrange(len(ids) + 1) :]  # a text may begin inside a character
        assert ours.decode(cut) == reference.decode(cut), repr(text)


def test_a_link_spells_special_tokens(ours: BPETokenizer) -> None:
    text = "<|im_start|>user\nWhat's up, naïve 日本?<|im_end|>\n"
    ids = ours.encode(text)
    assert ours.spelled(ids) == text and ours.decode(ids) == "user\nWhat's up, naïve 日本?\n"


def test_each_token_reads_as_elsewhere(ours: BPETokenizer, reference: HuggingFaceTokenizer) -> None:
    for token_id in (*range(49_152), -1, 49_152):
        assert ours.token_text(token_id) == reference.token_text(token_id), token_id


CONVERSATIONS = (
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why\n is the sky blue?"}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
)


@pytest.mark.parametrize("messages", CONVERSATIONS)
def test_a_conversation_is_written_as_by_the_template(
    messages: list[dict[str, str]], ours: BPETokenizer, reference: HuggingFaceTokenizer
) -> None:
    assert ours.chat(messages) == reference.chat(messages)


def test_a_word_of_twenty_thousand_letters(ours: BPETokenizer, reference: HuggingFaceTokenizer) -> None:
    word = "".join(Random(3).choices("abcdefgh", k=20_000))
    assert ours.encode(word) == reference.encode(word)


def test_another_kind_is_refused(ours: BPETokenizer) -> None:
    with pytest.raises(ConfigError, match="llama/default"):
        BPETokenizer({"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"})
    with pytest.raises(ConfigError, match="a conversation"):
        ours.chat([])
