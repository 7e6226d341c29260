"""What vLLM hashes of requests with images, adapters and salts. Runs where vLLM is installed; answers in JSON.

    PYTHON vllm_block_keys.py < CASES      one answer per case, and the release

A case is {"size", "requests": [{"tokens", "images": [[start, length, identifier], ...], "lora": [name, path] or null,
"salt"}]}; its answer, per request and block: the keys of images, and the number of the hash in order of first use.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import vllm
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.request import Request

Row = dict[str, Any]


def images_of(images: Iterable[Sequence[Any]]) -> list[MultiModalFeatureSpec]:
    """Return images for vLLM's Request, each given as [start, length, identifier]."""
    return [
        MultiModalFeatureSpec(
            data=None,
            modality="image",
            identifier=identifier,
            mm_position=PlaceholderRange(offset=start, length=length),
        )
        for start, length, identifier in images
    ]


def answer(case: Row) -> list[list[list[Any]]]:
    """Return [[keys of images, number of the hash], ...] per request."""
    numbers: dict[bytes, int] = {}
    return [_blocks(case["size"], str(i), wanted, numbers) for i, wanted in enumerate(case["requests"])]


def _blocks(size: int, name: str, wanted: Row, numbers: dict[bytes, int]) -> list[list[Any]]:
    request = Request(
        request_id=name,
        prompt_token_ids=wanted["tokens"],
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        mm_features=images_of(wanted["images"]),
        lora_request=LoRARequest(wanted["lora"][0], 1, wanted["lora"][1]) if wanted["lora"] else None,
        cache_salt=wanted["salt"],
        block_hasher=kv_cache_utils.get_request_block_hasher(size, sha256),
    )
    rows: list[list[Any]] = []
    next_image = 0
    for index, block_hash in enumerate(request.block_hashes):
        span = (index * size, (index + 1) * size)
        keys, next_image = kv_cache_utils.generate_block_hash_extra_keys(request, *span, next_image)
        of_images = [list(key) for key in keys or () if key[0] == "mm"]
        rows.append([of_images, numbers.setdefault(bytes(block_hash), len(numbers))])
    return rows


if __name__ == "__main__":
    kv_cache_utils.init_none_hash(sha256)
    cases = json.load(sys.stdin)
    print(json.dumps({"version": vllm.__version__, "answers": [answer(case) for case in cases]}))
