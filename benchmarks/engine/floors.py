"""The minimum time of a step on this machine, from the bytes it must read and the numbers it must multiply."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cases import Settings


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The amounts that a Llama-like model reads and multiplies."""

    layer_weights: int
    """Elements of all layers' matrices."""
    head_weights: int
    """Elements of the output head."""
    kv_elements: int
    """Elements of one token's K and V in all layers together."""
    attention_width: int
    """Query heads times head_dim, all layers together."""

    @classmethod
    def of(cls, model_dir: Path) -> ModelShape:
        """Read the shape from config.json."""
        config = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
        hidden, layers = config["hidden_size"], config["num_hidden_layers"]
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or hidden // heads
        queries, keys = heads * head_dim, config.get("num_key_value_heads", heads) * head_dim
        each = hidden * (2 * queries + 2 * keys) + 3 * hidden * config["intermediate_size"]
        return cls(layers * each, config["vocab_size"] * hidden, layers * 2 * keys, layers * queries)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine's limits, measured in the same run."""

    bytes_per_second: float
    flops_per_second: float
    bytes_per_element: int


def machine_of(measured: dict[str, float], dtype: str) -> Machine:
    """Return those limits of Limits.measure() that apply to a dtype."""
    rate, size = ("fp32", 4) if dtype == "float32" else ("bf16", 2)
    return Machine(measured["read"] * 1e9, measured[rate] * 1e9, size)


def step_seconds(shape: ModelShape, machine: Machine, requests: Iterable[tuple[int, int]]) -> float:
    """Return the seconds of a step. requests: (new tokens, context after them); each samples one token.

    It is the longer of two times: reading every weight and the whole context once, or multiplying at the highest rate.
    """
    requests = list(requests)
    contexts = sum(context for _, context in requests)
    elements = shape.layer_weights + shape.head_weights + shape.kv_elements * contexts
    reads = sum(new * (context - (new - 1) / 2) for new, context in requests)
    tokens = sum(new for new, _ in requests)
    linear = 2 * (shape.layer_weights * tokens + shape.head_weights * len(requests))
    flops = linear + 4 * shape.attention_width * reads
    return max(elements * machine.bytes_per_element / machine.bytes_per_second, flops / machine.flops_per_second)


def limits(shape: ModelShape, machine: Machine, settings: Settings) -> dict[str, float]:
    """Return the limit of each of cases.figures, which no engine can beat with these weights."""

    def prefill(batch: int) -> float:
        return step_seconds(shape, machine, [(settings.prompt, settings.prompt)] * batch)

    def decode(batch: int) -> float:
        contexts = range(settings.prompt + 1, settings.prompt + settings.new)
        return sum(step_seconds(shape, machine, [(1, context)] * batch) for context in contexts)

    many, new = settings.batch, settings.new
    length = settings.cached + settings.fresh
    return {
        "prefill_many": many * settings.prompt / prefill(many),
        "decode_many": many * (new - 1) / decode(many),
        "whole_many": many * new / (prefill(many) + decode(many)),
        "decode_one": (new - 1) / decode(1),
        "whole_one": new / (prefill(1) + decode(1)),
        "first_token": prefill(1) * 1e3,
        "first_token_cached": step_seconds(shape, machine, [(settings.fresh, length)]) * 1e3,
    }
