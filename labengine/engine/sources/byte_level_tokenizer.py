"""A GGUF's byte-level BPE tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from labengine.engine.sources.errors import SourceError
from labengine.engine.sources.token_types import add_special_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PRE_TOKENIZERS = ("smollm", "default", "gpt-2")
"""The ways of cutting text before BPE that we know; smollm makes every digit a word of its own."""


def byte_level_tokenizer(fields: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer, from the metadata under "tokenizer."; SourceError for another kind."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    kind = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre")
    if kind[0] != "gpt2" or kind[1] not in PRE_TOKENIZERS:
        raise SourceError(f"the GGUF's tokenizer is of kind {kind[0]}/{kind[1]}; only byte-level BPE is converted")
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(fields["tokenizer.ggml.tokens"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = byte_level
    if kind[1] == "smollm":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    add_special_tokens(tokenizer, fields)
    return tokenizer
