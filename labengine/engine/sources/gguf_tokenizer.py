"""A GGUF's tokenizer, as the files that transformers reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labengine.engine.sources.conversion import Conversion

if TYPE_CHECKING:
    from gguf import GGUFReader


def write_tokenizer(reader: GGUFReader, conversion: Conversion, out: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and, if the file has one, chat_template.jinja into `out`."""
    fields = {name: entry.contents() for name, entry in reader.fields.items() if name.startswith("tokenizer.")}
    conversion.tokenizer_of(fields).save(str(out / "tokenizer.json"))
    config = json.dumps(_tokenizer_config(fields), indent=2)
    (out / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
    if template := fields.get("tokenizer.chat_template"):
        (out / "chat_template.jinja").write_text(template, encoding="utf-8")


def _tokenizer_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    named = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {key: fields.get(f"tokenizer.ggml.{name}_token_id") for key, name in named.items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{key: tokens[token_id] for key, token_id in ids.items() if token_id is not None},
    }
