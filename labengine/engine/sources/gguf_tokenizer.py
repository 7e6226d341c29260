"""A GGUF's byte-level BPE tokenizer, as the files that transformers reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.engine.sources.errors import SourceError

if TYPE_CHECKING:
    from gguf import GGUFReader
    from tokenizers import Tokenizer

CONTROL_TOKEN = 3
"""GGUF's token type of special tokens."""

PRE_TOKENIZERS = ("smollm", "default", "gpt-2")
"""The ways of cutting text before BPE that we know; smollm makes every digit a word of its own."""


def write_tokenizer(reader: GGUFReader, out: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and, if the file has one, chat_template.jinja into `out`."""
    fields = {name: entry.contents() for name, entry in reader.fields.items() if name.startswith("tokenizer.")}
    if fields.get("tokenizer.ggml.model") != "gpt2" or fields.get("tokenizer.ggml.pre") not in PRE_TOKENIZERS:
        kind = f"{fields.get('tokenizer.ggml.model')}/{fields.get('tokenizer.ggml.pre')}"
        raise SourceError(f"the GGUF's tokenizer is of kind {kind}; only byte-level BPE is converted")
    _tokenizer(fields).save(str(out / "tokenizer.json"))
    config = json.dumps(_tokenizer_config(fields), indent=2)
    (out / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
    if template := fields.get("tokenizer.chat_template"):
        (out / "chat_template.jinja").write_text(template, encoding="utf-8")


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = byte_level
    if fields["tokenizer.ggml.pre"] == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {key: fields.get(f"tokenizer.ggml.{name}_token_id") for key, name in named.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{key: tokens[token_id] for key, token_id in ids.items() if token_id is not None},
    }
