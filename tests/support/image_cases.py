"""Random requests with images, adapters and salts, of few contents: so that many blocks are equal, or nearly so."""

from __future__ import annotations

from random import Random
from typing import Any

NUM_CASES = 400
PLACEHOLDER = 0


def image_case(seed: int) -> dict[str, Any]:
    """Return block size and requests; see differential/vllm_block_keys.py."""
    rng = Random(f"images {seed}")
    size = rng.choice((2, 4, 8))
    return {"size": size, "requests": [_request(rng, size) for _ in range(rng.randint(3, 7))]}


def _request(rng: Random, size: int) -> dict[str, Any]:
    tokens: list[int] = []
    images: list[list[Any]] = []
    for _ in range(rng.randint(1, 3)):
        tokens += [rng.randint(1, 2)] * rng.choice((0, 1, size, size + 1))
        if rng.random() < 0.8:
            length = rng.choice((1, size - 1, size, 2 * size + 1))
            images.append([len(tokens), length, rng.choice("ab")])
            tokens += [PLACEHOLDER] * length
    tokens += [1] * rng.choice((1, size))
    lora = rng.choice((None, None, ["sql", "/one"], ["sql", "/two"]))
    return {"tokens": tokens, "images": images, "lora": lora, "salt": rng.choice((None, None, "sql", "b"))}
