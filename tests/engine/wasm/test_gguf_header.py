"""The head of a GGUF, read without the package gguf, beside what that package has written and reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import quantize

from labengine.config import ConfigError
from labengine.engine.wasm.gguf_header import GGUFHeader, read_header
from labengine.engine.wasm.weights import LlamaSizes

TOKENS = ["<|endoftext|>", "a", "Ġthe", "日"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small file with values of all kinds."""
    path = tmp_path / "small.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(512)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50_000.0)
    writer.add_eos_token_id(0)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1])
    writer.add_bool("a.truth", True)
    writer.add_int64("a.debt", -(2**40))
    writer.add_float64("a.third", 1 / 3)
    writer.add_array("a.floats", [0.5, -1.5])
    writer.add_array("a.nested", [[1, 2], [3]])
    rows = np.random.default_rng(1).standard_normal((5, 64), dtype=np.float32)
    writer.add_tensor("blk.0.attn_norm.weight", rows[0])
    writer.add_tensor(
        "token_embd.weight", quantize(rows, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0
    )
    writer.add_tensor("odd.weight", rows[:, :3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def header(path: Path) -> GGUFHeader:
    return read_header(path.read_bytes())


def test_values_and_tensors_are_those_of_the_reader(path: Path, header: GGUFHeader) -> None:
    reader = GGUFReader(path)
    theirs = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    theirs["a.nested"] = [[1, 2], [3]]  # the reader makes one list of it
    assert header.fields == theirs and header.fields["tokenizer.ggml.tokens"] == TOKENS
    assert {name: (place.shape, place.kind, place.offset) for name, place in header.tensors.items()} == {
        tensor.name: (tuple(tensor.shape.tolist()), int(tensor.tensor_type), int(tensor.data_offset))
        for tensor in reader.tensors
    }


def test_sizes(header: GGUFHeader) -> None:
    sizes = LlamaSizes.of(header.fields)
    assert (sizes.num_layers, sizes.hidden_size, sizes.head_dim, sizes.kv_width) == (2, 64, 16, 32)
    assert (sizes.vocab_size, sizes.max_model_len, sizes.rms_norm_eps, sizes.rope_theta) == (4, 512, 1e-5, 50_000.0)
    assert sizes.eos_token_ids == {0}
    layer = 64 * (64 + 2 * 32) + 64 * 64 + 3 * 64 * 96 + 2 * 64
    assert sizes.num_parameters == 4 * 64 + 2 * layer + 64
    with pytest.raises(ConfigError, match="gemma3"):
        LlamaSizes.of({**header.fields, "general.architecture": "gemma3"})


def test_what_is_no_head_is_refused(path: Path, header: GGUFHeader) -> None:
    content = path.read_bytes()
    begin = min(place.offset for place in header.tensors.values())
    for bad in (b"", b"GGUF", b"PK\3\4" + content[4:]):
        with pytest.raises(ConfigError, match="not a GGUF"):
            read_header(bad)
    with pytest.raises(ConfigError, match="version 2"):
        read_header(content[:4] + b"\2" + content[5:])
    for end in range(24, begin - 32, 7):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_header(content[:end])
