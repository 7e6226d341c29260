"""Gemma's SentencePiece tokenizer out of a GGUF, as BPE: the file lists tokens and no merges, so these are derived."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labengine.engine.sources.errors import SourceError
from labengine.engine.sources.token_types import BYTE, CONTROL, USER_DEFINED, add_special_tokens, tokens_of_type

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "▁"
"""How the vocabulary spells a space; the GGUF spells tokens of nothing but spaces with real ones."""


def gemma_tokenizer(fields: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer, from the metadata under "tokenizer."; SourceError for another kind."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    if fields.get("tokenizer.ggml.model") != "llama":
        kind = fields.get("tokenizer.ggml.model")
        raise SourceError(f"the GGUF's tokenizer is of kind {kind}; only SentencePiece is converted for Gemma")
    tokens = [_respelled(token) for token in fields["tokenizer.ggml.tokens"]]
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[fields["tokenizer.ggml.unknown_token_id"]]
    merges = list(derived_merges(_mergeable(tokens, fields["tokenizer.ggml.token_type"])))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    add_special_tokens(tokenizer, fields)
    whole = [token for token in tokens_of_type(fields, USER_DEFINED) if token in vocab]
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in whole])
    if fields.get("tokenizer.ggml.add_bos_token", True):
        start = fields["tokenizer.ggml.bos_token_id"]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[start]} $A", special_tokens=[(tokens[start], start)]
        )
    return tokenizer


def derived_merges(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every pair of tokens that makes a token, best first: the result that comes first in the vocabulary, and of
    equal results the one with the longest left part.
    """
    known = set(tokens)
    for token in tokens:
        for cut in range(len(token) - 1, 0, -1):
            if token[:cut] in known and token[cut:] in known:
                yield token[:cut], token[cut:]


def _mergeable(tokens: Sequence[str], types: Sequence[int]) -> list[str]:
    """Return tokens that text can be made of; a special token or a byte is never pieced together from characters."""
    return [token for token, its_type in zip(tokens, types, strict=True) if its_type not in (CONTROL, BYTE)]


def _respelled(token: str) -> str:
    return SPACE * len(token) if token and not token.strip(" ") else token
