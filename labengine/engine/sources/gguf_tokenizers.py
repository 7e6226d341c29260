"""Tokenizers from a GGUF's metadata: byte-level BPE, and Gemma's SentencePiece as BPE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONTROL, USER_DEFINED, BYTE = 3, 4, 6
"""Types of tokens: special tokens; texts that are always a separate token; single bytes in a vocabulary of texts."""


def tokens_of_type(fields: Mapping[str, Any], wanted: int) -> list[str]:
    """Return the tokens of one type, in the order of their ids."""
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    return [token for token, its_type in zip(tokens, types, strict=True) if its_type == wanted]


def add_special_tokens(tokenizer: Tokenizer, fields: Mapping[str, Any]) -> None:
    """Register the special tokens, which the tokenizer never splits, and omits when decoding."""
    from tokenizers import AddedToken

    special = tokens_of_type(fields, CONTROL)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])


def byte_level_tokenizer(fields: Mapping[str, Any]) -> Tokenizer:
    """Return SmolLM's tokenizer, for which each digit is a word, from the metadata under "tokenizer."."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(fields["tokenizer.ggml.tokens"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    add_special_tokens(tokenizer, fields)
    return tokenizer


SPACE = "▁"
"""The vocabulary's spelling of a space; in the GGUF, tokens of only spaces have real spaces."""


def gemma_tokenizer(fields: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer, from the metadata under "tokenizer."."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    tokens = [_respelled(token) for token in fields["tokenizer.ggml.tokens"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[fields["tokenizer.ggml.unknown_token_id"]]
    merges = list(derived_merges(_mergeable(tokens, fields["tokenizer.ggml.token_type"])))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    add_special_tokens(tokenizer, fields)
    user_defined = [token for token in tokens_of_type(fields, USER_DEFINED) if token in vocab]
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in user_defined])
    if fields.get("tokenizer.ggml.add_bos_token", True):
        start = fields["tokenizer.ggml.bos_token_id"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[start]} $A", special_tokens=[(tokens[start], start)]
        )
    return tokenizer


def derived_merges(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every pair of tokens that merges into a token, best first.

    The order is by the result's place in the vocabulary; among equal results the longest left part comes first.
    """
    known = set(tokens)
    for token in tokens:
        for cut in range(len(token) - 1, 0, -1):
            if token[:cut] in known and token[cut:] in known:
                yield token[:cut], token[cut:]


def _mergeable(tokens: Sequence[str], types: Sequence[int]) -> list[str]:
    """Return the tokens that merges can make; special tokens and bytes are never made from characters."""
    return [token for token, its_type in zip(tokens, types, strict=True) if its_type not in (CONTROL, BYTE)]


def _respelled(token: str) -> str:
    return SPACE * len(token) if token and not token.strip(" ") else token
