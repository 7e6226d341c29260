"""Keys and hashes of blocks, as vLLM 0.32 computes them: recorded, and live.

LABENGINE_VLLM_PYTHON=vllm/bin/python pytest tests/differential/test_block_keys.py
LABENGINE_VLLM_PYTHON=vllm/bin/python python tests/record_block_keys.py
"""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from differential.vllm_process import VARIABLE, VERSION, named_interpreter
from image_cases import NUM_CASES, image_case
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import VLLM
from labengine.core.journal import Journal
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.request import ExtraKeys, Image, Request
from labengine.record.hooks import Hooks

GOLDEN = Path(__file__).parent.parent / "golden" / "vllm-block-keys.json.gz"

Row = dict[str, Any]


def asked(python: str, num_cases: int) -> Row:
    """Return the release and its answers."""
    script = Path(__file__).with_name("vllm_block_keys.py")
    cases = json.dumps([image_case(seed) for seed in range(num_cases)])
    said = subprocess.run([python, script], input=cases, capture_output=True, text=True, check=True).stdout
    answers: Row = json.loads(said.splitlines()[-1])
    return answers


def answer(case: Row) -> list[list[list[Any]]]:
    """Return what edition vllm makes of a case, in the same rows."""
    config = EngineConfig(64, (GroupSpec(case["size"]),))
    manager = VLLM.assemble(config, Hooks(), Journal()).manager
    numbers: dict[bytes, int] = {}
    return [_blocks(manager, case["size"], wanted, numbers) for wanted in case["requests"]]


def _blocks(manager: KVCacheManager, size: int, wanted: Row, numbers: dict[bytes, int]) -> list[list[Any]]:
    keys: ExtraKeys = (("lora", wanted["lora"][0]), ("lora_path", wanted["lora"][1])) if wanted["lora"] else ()
    keys += (("cache_salt", wanted["salt"]),) if wanted["salt"] else ()
    images = tuple(Image(*image) for image in wanted["images"])
    request = Request(0, list(wanted["tokens"]), SamplingParams(), 0, 1, keys, images=images)
    manager.extend_hashes(request, request.num_tokens)
    return [
        [[*map(list, request.block_keys(index * size, (index + 1) * size))], numbers.setdefault(one, len(numbers))]
        for index, one in enumerate(request.block_hashes)
    ]


def differences(answers: list[Any]) -> list[int]:
    return [seed for seed, theirs in enumerate(answers) if answer(image_case(seed)) != theirs]


def test_recorded_keys_and_equal_hashes_are_the_same() -> None:
    """A hash is equal to another one exactly where vLLM's are: adapters, salts and images are all in them."""
    recorded = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    assert recorded["version"].startswith(VERSION + ".") and len(recorded["answers"]) == NUM_CASES
    assert differences(recorded["answers"]) == []


def test_the_cases_meet_what_they_are_for() -> None:
    """Blocks with two images, images that begin before their block, and hashes that several requests share."""
    recorded = json.loads(gzip.decompress(GOLDEN.read_bytes()))["answers"]
    blocks = [block for case in recorded for request in case for block in request]
    assert sum(len(keys) > 1 for keys, _ in blocks) > 50
    assert sum(any(offset < 0 for _, _, offset in keys) for keys, _ in blocks) > 50
    assert (
        sum(len({number for request in case for _, number in request}) < sum(map(len, case)) for case in recorded) > 50
    )


@pytest.mark.parametrize("lost", ["place", "images"])
def test_keys_that_lack_something_are_found_out(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Request.block_keys

    def lacking(self: Request, start: int, end: int) -> Any:
        return tuple((mm, name, 0) for mm, name, _ in whole(self, start, end)) if lost == "place" else ()

    recorded = json.loads(gzip.decompress(GOLDEN.read_bytes()))["answers"]
    monkeypatch.setattr(Request, "block_keys", lacking)
    assert len(differences(recorded)) > 50


def test_live_keys_and_equal_hashes_are_the_same() -> None:
    python = named_interpreter()
    if python is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}; its recorded outputs were compared")
    assert differences(asked(python, 4 * NUM_CASES)["answers"]) == []
