"""Model directories with one thing wrong in each: tiny random models to break, and a table of single damages."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Damage = Callable[[Path], object]
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


class Deleted(Enum):
    """Marks a value that is left out; an enum, because test ids are made from its text."""

    DELETED = "deleted"


DELETED = Deleted.DELETED
EMBEDDING, NORM = "model.embed_tokens.weight", "model.norm.weight"
Q, K = "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight"


@dataclass(frozen=True)
class Case:
    """A damage, and what the error has to name: the file, and the field or tensor in it."""

    name: str
    damage: Damage
    names: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def edited(file: str, *place: Any, to: Any) -> Damage:
    """Set the field at this place of a JSON file, or delete it."""

    def damage(directory: Path) -> None:
        path = directory / file
        content = json.loads(path.read_text()) if path.exists() else {}
        target = content
        for part in place[:-1]:
            target = target[part]
        if to is DELETED:
            del target[place[-1]]
        else:
            target[place[-1]] = to
        path.write_text(json.dumps(content))

    return damage


def written(file: str, content: str | bytes) -> Damage:
    return lambda directory: (directory / file).write_bytes(content if isinstance(content, bytes) else content.encode())


def retensored(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    """Change the tensors, and write them again."""

    def damage(directory: Path) -> None:
        tensors = {name: tensor.clone() for name, tensor in load_file(directory / WEIGHTS).items()}
        change(tensors)
        save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})

    return damage


def recoded(change: Callable[[bytes], bytes]) -> Damage:
    """Change the bytes of the weights' file."""
    return lambda directory: (directory / WEIGHTS).write_bytes(change((directory / WEIGHTS).read_bytes()))


def reheaded(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Change the header of the weights' file."""

    def change_bytes(content: bytes) -> bytes:
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        change(header)
        packed = json.dumps(header).encode()
        return len(packed).to_bytes(8, "little") + packed + content[end:]

    return recoded(change_bytes)


def split(directory: Path, *, index: dict[str, str] | None = None, **moved: str) -> None:
    """Write the weights in two files with an index; `index` overrides its entries."""
    tensors = load_file(directory / WEIGHTS)
    names = sorted(tensors, key=lambda name: (name != EMBEDDING, name))
    files = {name: f"model-{1 + number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensor for name, tensor in tensors.items() if files[name] == file}, directory / file)
    (directory / WEIGHTS).unlink()
    (directory / INDEX).write_text(json.dumps({"weight_map": {**files, **(index or {})}}))


def then(*damages: Damage) -> Damage:
    def damage(directory: Path) -> None:
        for step in damages:
            step(directory)

    return damage


NOT_INTEGERS = {"text": "48", "fraction": 1.5, "truth": True, "null": None, "list": [48], "object": {}}
OUT_OF_RANGE = {"zero": 0, "negative": -4, "huge": 10**12, "beyond 64 bits": 10**30}
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)
NOT_NUMBERS = {"text": "1e-6", "truth": True, "list": [1e-6], "NaN": float("nan"), "infinity": float("inf")}
NOT_TOKENS = {"text": "x", "negative": -1, "beyond": 10**6, "truth": True, "mixed": [2, "x"], "object": {}}
NOT_JSON = {
    "empty": b"",
    "half": b'{"hidden_size": 4',
    "not UTF-8": b"\xff\xfe{}",
    "a list": b"[1]",
    "null": b"null",
    "deep": b"[" * 200_000,
    "twice": b'{"model_type": "llama", "model_type": "qwen3"}',
    "a long number": b'{"hidden_size": ' + b"9" * 5000 + b"}",
}


def config_cases() -> Iterator[Case]:
    file = "config.json"
    for field in SIZES:
        for kind, value in {**NOT_INTEGERS, **OUT_OF_RANGE, "missing": DELETED}.items():
            yield Case(f"{field} {kind}", edited(file, field, to=value), (file, field))
    for field in ("num_key_value_heads", "head_dim"):
        for kind, value in {**NOT_INTEGERS, **OUT_OF_RANGE}.items():
            if value is not None:
                yield Case(f"{field} {kind}", edited(file, field, to=value), (file, field))
    for kind, value in {**NOT_NUMBERS, "null": None, "zero": 0.0, "negative": -1e-6, "huge": 1e30}.items():
        yield Case(f"rms_norm_eps {kind}", edited(file, "rms_norm_eps", to=value), (file, "rms_norm_eps"))
    for kind, value in NOT_TOKENS.items():
        yield Case(f"eos_token_id {kind}", edited(file, "eos_token_id", to=value), (file, "eos_token_id"))
    for field, value in {
        "num_key_value_heads": 4,
        "head_dim": 15,
        "tie_word_embeddings": "yes",
        "layer_types": "full_attention",
        "model_type": 5,
        "quantization_config": "int4",
        "attention_bias": "yes",
    }.items():
        yield Case(f"{field} {value!r}", edited(file, field, to=value), (file, field))
    for kind, content in NOT_JSON.items():
        yield Case(f"config.json {kind}", written(file, content), (file,))
    yield Case("config.json a folder", then(lambda d: (d / file).unlink(), lambda d: (d / file).mkdir()), (file,))
    yield Case("config.json missing", lambda directory: (directory / file).unlink(), (file,))
    yield Case("config.json a pipe", then(lambda d: (d / file).unlink(), lambda d: os.mkfifo(d / file)), (file,))


def rope_cases() -> Iterator[Case]:
    """For a config.json whose rope_parameters are one rope."""
    file = "config.json"
    for kind, value in {**NOT_NUMBERS, "zero": 0.0, "negative": -1e4, "huge": 1e300}.items():
        yield Case(f"rope_theta {kind}", edited(file, "rope_parameters", "rope_theta", to=value), (file, "rope_theta"))
    for rope, named in (
        (5, "rope_parameters"),
        ({"rope_type": 5}, "rope_type"),
        ({"rope_type": "yarn"}, "yarn"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "linear", "factor": 0.0}, "factor"),
        ({"rope_type": "linear", "factor": "2"}, "factor"),
        ({"rope_type": "llama3", "factor": 8.0}, "low_freq_factor"),
        ({"full_attention": {"rope_theta": 1e4}}, "full_attention"),
        ({"rope_type": "default", "thetta": 1e4}, "thetta"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ):
        yield Case(f"rope {rope!r}", edited(file, "rope_parameters", to=rope), (file, named))


def gemma_cases() -> Iterator[Case]:
    """What only Gemma 3 has."""
    file = "config.json"
    for field in ("query_pre_attn_scalar", "rope_local_base_freq"):
        for kind, value in {**NOT_NUMBERS, "zero": 0, "negative": -24}.items():
            yield Case(f"{field} {kind}", edited(file, field, to=value), (file, field))
    for field in ("sliding_window", "sliding_window_pattern"):
        for kind, value in {"text": "8", "zero": 0, "negative": -8, "huge": 10**12, "truth": True}.items():
            yield Case(f"{field} {kind}", edited(file, field, to=value), (file, field))
    yield Case("sliding_window null", edited(file, "sliding_window", to=None), (file, "sliding_window"))
    yield Case(
        "one rope", edited(file, "rope_parameters", to={"rope_theta": 1e4}), (file, "rope_parameters.rope_theta")
    )
    ropes = {"full_attention": {"rope_theta": -1}, "sliding_attention": None}
    yield Case("a wrong rope", edited(file, "rope_parameters", to=ropes), (file, "full_attention.rope_theta"))
    for kinds in ([], ["full_attention"], ["full_attention"] * 7 + [5], ["full_attention"] * 7 + ["chunked"]):
        yield Case(f"layer_types {kinds[-1:]}", edited(file, "layer_types", to=kinds), (file, "layer"))


def generation_cases() -> Iterator[Case]:
    file = "generation_config.json"
    for kind, value in NOT_TOKENS.items():
        yield Case(f"generation eos {kind}", edited(file, "eos_token_id", to=value), (file, "eos_token_id"))
    for kind, content in NOT_JSON.items():
        yield Case(f"generation_config.json {kind}", written(file, content), (file,))


SHAPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda tensor: tensor.t(),
    "flat": lambda tensor: tensor.flatten(),
    "shorter": lambda tensor: tensor[:-1],
    "a scalar": lambda tensor: tensor.sum(),
    "empty": lambda tensor: tensor[:0],
    "deeper": lambda tensor: tensor[None],
}


def tensor_cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int64", "bool", "complex64", "float8_e4m3fn"):
        change = retensored(lambda t, dtype=dtype: t.update({Q: t[Q].to(getattr(torch, dtype))}))
        yield Case(f"a tensor of {dtype}", change, (WEIGHTS, Q))
    for name in (EMBEDDING, NORM, Q):
        for kind, shape in SHAPES.items():
            if name == NORM and kind in ("transposed", "flat"):
                continue
            change = retensored(lambda t, name=name, shape=shape: t.update({name: shape(t[name]).contiguous()}))
            yield Case(f"{name} {kind}", change, (WEIGHTS, name))
        for kind, number in {"NaN": float("nan"), "infinity": float("inf")}.items():
            change = retensored(lambda t, name=name, number=number: t[name].view(-1)[-1:].fill_(number))
            yield Case(f"{name} with {kind}", change, (WEIGHTS, name))
        yield Case(f"{name} missing", retensored(lambda t, name=name: t.pop(name)), (name,))
    yield Case("k and v rows of q", retensored(lambda t: t.update({Q: t[K], K: t[Q]})), (WEIGHTS, Q))
    for extra in (Q.replace("weight", "bias"), Q.replace("layers.1", "layers.30"), "model.layers.0.mlp.router.weight"):
        yield Case(
            f"{extra} too many", retensored(lambda t, extra=extra: t.update({extra: t[NORM].clone()})), (WEIGHTS, extra)
        )


def tied_cases() -> Iterator[Case]:
    """For a model whose embedding serves both ends."""
    head = "lm_head.weight"
    yield Case("another head", retensored(lambda t: t.update({head: t[EMBEDDING] + 1})), (WEIGHTS, head))
    yield Case("no head", edited("config.json", "tie_word_embeddings", to=False), (head,))


def file_cases() -> Iterator[Case]:
    """The weights' files themselves."""
    for kind, change in {
        "empty": lambda b: b"",
        "seven bytes": lambda b: b[:7],
        "half": lambda b: b[: len(b) // 2],
        "one byte short": lambda b: b[:-1],
        "one byte long": lambda b: b + b"?",
        "a page": lambda b: b"<html>not found</html>",
        "an LFS pointer": lambda b: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
        "a huge header": lambda b: (2**62).to_bytes(8, "little") + b[8:],
        "no header": lambda b: bytes(8) + b[8:],
        "a pickle": lambda b: b"\x80\x04" + b,
    }.items():
        yield Case(f"weights {kind}", recoded(change), (WEIGHTS,))
    for kind, field, value in (
        ("overlapping", "data_offsets", [0, 10]),
        ("backwards", "data_offsets", [20, 10]),
        ("negative", "data_offsets", [-8, 0]),
        ("beyond", "data_offsets", [0, 10**15]),
        ("of text", "data_offsets", ["a", "b"]),
        ("of a negative shape", "shape", [-1, 48]),
        ("of a shape in fractions", "shape", [1.5, 48]),
        ("of a huge shape", "shape", [2**40, 2**40]),
        ("of an unknown dtype", "dtype", "F33"),
        ("of dtype null", "dtype", None),
    ):
        change = reheaded(lambda header, field=field, value=value: header[Q].update({field: value}))
        yield Case(f"a tensor {kind}", change, (WEIGHTS,))
    yield Case("a header of numbers", reheaded(lambda header: header.update({Q: 5})), (WEIGHTS,))
    yield Case("weights missing", lambda directory: (directory / WEIGHTS).unlink(), ("*.safetensors",))
    yield Case("weights a folder", then(lambda d: (d / WEIGHTS).unlink(), lambda d: (d / WEIGHTS).mkdir()), (WEIGHTS,))
    yield Case("weights a pipe", then(lambda d: (d / WEIGHTS).unlink(), lambda d: os.mkfifo(d / WEIGHTS)), (WEIGHTS,))
    twice = "copy.safetensors"
    yield Case("all twice", lambda d: (d / twice).write_bytes((d / WEIGHTS).read_bytes()), (WEIGHTS, twice))
    yield Case("one twice", lambda d: save_file({Q: torch.ones(96, 48)}, d / twice), (WEIGHTS, twice, Q))


def index_cases() -> Iterator[Case]:
    for kind, file in {
        "missing": "model-3.safetensors",
        "other": "model-2.safetensors",
        "outside": "../model-1.safetensors",
        "absolute": "/model.safetensors",
        "of another kind": "model.bin",
    }.items():
        first = "model.embed_tokens.weight"
        yield Case(f"index {kind}", lambda d, file=file, name=first: split(d, index={name: file}), (INDEX, first))
    unknown = {"model.layers.9.mlp.up_proj.weight": "model-1.safetensors"}
    yield Case("index with a tensor too many", lambda d: split(d, index=unknown), (INDEX, *unknown))
    yield Case("index of numbers", edited(INDEX, "weight_map", to={Q: 5}), (INDEX, "weight_map"))
    yield Case("index of a list", edited(INDEX, "weight_map", to=[Q]), (INDEX, "weight_map"))
    yield Case("index without a map", written(INDEX, "{}"), (INDEX, "weight_map"))
    yield Case(
        "a shard missing", then(split, lambda d: (d / "model-2.safetensors").unlink()), (INDEX, "model-2.safetensors")
    )
    for kind, content in NOT_JSON.items():
        yield Case(f"index {kind}", written(INDEX, content), (INDEX,))


def tokenizer_cases() -> Iterator[Case]:
    """For a directory with the tiny tokenizer. Damages that only its loading finds are reported on its first use."""
    file = "tokenizer.json"
    for kind, content in NOT_JSON.items():
        if kind != "twice":
            yield Case(f"tokenizer.json {kind}", written(file, content), (file,))
    for place, value in (
        (("model",), DELETED),
        (("model",), 5),
        (("model", "vocab"), DELETED),
        (("model", "vocab"), {}),
        (("model", "vocab"), 5),
        (("model", "vocab", "a"), -1),
        (("model", "vocab", "a"), "x"),
        (("model", "vocab", "a"), 1),
        (("model", "vocab", "a"), 2**40),
        (("added_tokens",), 5),
        (("added_tokens",), [5]),
        (("added_tokens",), [{"id": -1, "content": "x"}]),
    ):
        yield Case(f"tokenizer {place} {value!r}", edited(file, *place, to=value), (file, place[0]))
    for place, value in (
        (("model", "merges"), 5),
        (("model", "merges"), [["a", "nothing of the kind"]]),
        (("model", "type"), "Nope"),
        (("pre_tokenizer",), {"type": "Nope"}),
        (("decoder",), 5),
        (("normalizer",), "x"),
        (("post_processor",), [1]),
        (("padding",), 5),
        (("version",), 5),
    ):
        yield Case(f"tokenizer {place} {value!r}", edited(file, *place, to=value), (file,))
    yield Case(
        "another model's tokenizer", edited("tokenizer.json", "model", "vocab", "a", to=5000), ("tokenizer", "5000")
    )


def write_tiny_tokenizer(directory: Path) -> None:
    """Byte-level BPE of 80 characters and no merges, as transformers reads it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:80]
    tokenizer = Tokenizer(models.BPE(vocab={text: number for number, text in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
