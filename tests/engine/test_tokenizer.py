from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from labengine.config import ConfigError
from labengine.engine.tokenizer import HuggingFaceTokenizer, readable_fragment

TEXTS = (
    "Hello world",
    "def f(x):\n    return x + 1",
    "a  2024 b",
    "héllo wörld 日本 👍",
    "<script>alert('1')</script>",
    " ",
)


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(smollm2)


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_the_round_trip(tokenizer: HuggingFaceTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids and all(isinstance(token_id, int) for token_id in ids)
    assert tokenizer.decode(ids) == text


def test_token_ids_of_smollm2(tokenizer: HuggingFaceTokenizer) -> None:
    """Known from the model's own tokenizer: no token is added, every digit is a token, spaces before digits join."""
    assert tokenizer.encode("Hello world") == [19556, 905]
    texts = [tokenizer.token_text(token_id) for token_id in tokenizer.encode("a  2024 b")]
    assert texts == ["a", "  ", "2", "0", "2", "4", " b"]


def test_chat_uses_the_models_template(tokenizer: HuggingFaceTokenizer) -> None:
    text = tokenizer.decode(tokenizer.chat([{"role": "user", "content": "Hi <b>there</b>"}]), skip_special_tokens=False)
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_start|>user\nHi <b>there</b><|im_end|>\n<|im_start|>assistant\n")


def test_special_tokens_are_skipped_or_kept(tokenizer: HuggingFaceTokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>user")
    assert tokenizer.decode(ids) == "user"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>user"


def test_tokens_are_readable_one_by_one(tokenizer: HuggingFaceTokenizer) -> None:
    texts = [tokenizer.token_text(token_id) for token_id in tokenizer.encode("Hi there 👍\n<|im_end|>")]
    assert texts == ["Hi", " there", r" \xf0\x9f", r"\x91", r"\x8d", "\n", "<|im_end|>"]


def test_every_id_reads_as_something(tokenizer: HuggingFaceTokenizer) -> None:
    texts = [tokenizer.token_text(token_id) for token_id in range(49152)]
    assert all(texts)
    assert sum("\ufffd" in text for text in texts) == 1, "the replacement character itself is a token"
    assert tokenizer.token_text(49152) == "<#49152>"
    assert tokenizer.token_text(-1) == "<#-1>"


@pytest.mark.parametrize(
    ("token", "text"),
    [("<0xE2>", r"\xe2"), ("Ã©", "é"), ("Ġé".replace("é", "Ã"), r" \xc3"), ("日本", "日本"), ("<0xE2>x", "<0xE2>x")],
)
def test_fragments_of_both_vocabulary_spellings(token: str, text: str) -> None:
    assert readable_fragment(token) == text


def test_sentencepiece_spaces_are_kept(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {"<unk>": 0, "▁Hello": 1, "▁world": 2, "<0xE2>": 3}
    backend = Backend(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>").save_pretrained(tmp_path)
    tokenizer = HuggingFaceTokenizer(tmp_path)
    assert [tokenizer.token_text(token_id) for token_id in range(5)] == ["<unk>", " Hello", " world", r"\xe2", "<#4>"]


@pytest.mark.parametrize("messages", [["hi"], [{"role": "user"}], [{"role": "user", "content": None}]])
def test_messages_that_are_none(tokenizer: HuggingFaceTokenizer, messages: list[dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match=r"a chat message .*'role' and 'content'"):
        tokenizer.chat(messages)


def test_the_generic_class_is_what_autotokenizer_would_load(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(smollm2, local_files_only=True)
    ours = HuggingFaceTokenizer(smollm2)
    assert type(ours._transformers) is type(theirs)
    assert ours.encode("Two people ask, 1234 times: naïve?") == theirs.encode("Two people ask, 1234 times: naïve?")
    assert ours.chat([{"role": "user", "content": "hi"}]) == theirs.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False
    )


@pytest.fixture
def tokenizer_dir(smollm2: Path, tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(smollm2 / name, tmp_path)
    return tmp_path


def test_a_broken_tokenizer_is_named(tokenizer_dir: Path) -> None:
    (tokenizer_dir / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(ConfigError, match=f"{tokenizer_dir} cannot be loaded"):
        HuggingFaceTokenizer(tokenizer_dir).encode("x")


def test_no_template_or_one_that_refuses(tokenizer_dir: Path) -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(ConfigError, match="no chat template"):
        HuggingFaceTokenizer(tokenizer_dir).chat(messages)
    (tokenizer_dir / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ConfigError, match="roles must alternate"):
        HuggingFaceTokenizer(tokenizer_dir).chat(messages)
