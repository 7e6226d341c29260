"""What has to be known of a GGUF architecture to make a model directory of transformers out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

Config = dict[str, Any]
"""The content of config.json, in the words of transformers."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the GGUF of one architecture is undone.

    layer_names: of a layer's tensors, from the GGUF's to transformers'. config_of: config.json out of the metadata.
    restored: a dequantized tensor as transformers has it, given its GGUF name. tokenizer_of: from the metadata under
    "tokenizer."; SourceError for a kind of tokenizer that is not converted.
    """

    layer_names: Mapping[str, str]
    config_of: Callable[[GGUFReader], Config]
    restored: Callable[[str, NDArray[np.float32], Config], NDArray[np.float32]]
    tokenizer_of: Callable[[Mapping[str, Any]], Tokenizer]


def field(reader: GGUFReader, name: str) -> Any:
    """One metadata value, None when the file has none of that name."""
    entry = reader.get_field(name)
    return None if entry is None else entry.contents()


def common_config(reader: GGUFReader, architecture: str) -> Config:
    """What every architecture says in the same way: sizes and special tokens."""
    sizes = {key: field(reader, f"{architecture}.{name}") for key, name in _SIZE_FIELDS.items()}
    head_dim = field(reader, f"{architecture}.attention.key_length")
    tokens = {key: field(reader, f"tokenizer.ggml.{name}") for key, name in TOKEN_FIELDS.items()}
    return {
        "dtype": "bfloat16",
        **sizes,
        "head_dim": head_dim or sizes["hidden_size"] // sizes["num_attention_heads"],
        "vocab_size": len(field(reader, "tokenizer.ggml.tokens")),
        # Written as float32 in the file: 1e-05 reads back as 9.99999974e-06.
        "rms_norm_eps": float(f"{field(reader, f'{architecture}.attention.layer_norm_rms_epsilon'):.6g}"),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
        **{key: token for key, token in tokens.items() if token is not None},
    }


_SIZE_FIELDS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
}
TOKEN_FIELDS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
"""Of config.json, and of the GGUF."""
