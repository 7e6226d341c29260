"""The hybrid model in the engine: Gemma-3-270M in fp32 gives transformers' logits, whatever the cache does.

Prompts go beyond the window of 512 tokens, so that blocks leave it in the middle of a prefill; KV comes from the prefix
cache, from the external tier after eviction, from a disk after a restart, and anew after preemption.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from checkout import child_environment
from engine.reference import transformers_rows
from labengine import model_path
from labengine.check.invariants import check_invariants
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.connector import Connector
from labengine.core.editions import edition
from labengine.engine.engine import Engine
from labengine.engine.external import Delayed, DiskStore, HostStore
from labengine.engine.loaded_model import LoadedModel, ModelOptions, load_model
from labengine.engine.tokenizer import HuggingFaceTokenizer
from labengine.events import BlockEvicted, BlockFreed, BlocksLoaded, BlocksSaved, ExternalHit, PrefixHit
from labengine.hooks import Hooks
from teacher_forcing import Rows, Spy, num_ties

MODEL = "gemma3-270m"
TOLERANCE = 2e-3
BLOCK_SIZE = 16
NUM_NEW = 4
LIBRARY = "The library had nine floors, and on each of them somebody was looking for the same book. " * 34
HARBOUR = "Every ship that came into the harbour that winter carried a letter for somebody who had moved away. " * 32


@pytest.fixture(scope="module")
def reference() -> Rows:
    """Each sequence is computed once."""
    rows, known = transformers_rows(model_path(MODEL)), {}

    def logits(token_ids: list[int], positions: list[int]) -> Any:
        key = (tuple(token_ids), tuple(positions))
        if key not in known:
            known[key] = rows(token_ids, positions)
        return known[key]

    return logits


@pytest.fixture(scope="module")
def encode() -> Any:
    return HuggingFaceTokenizer(model_path(MODEL)).encode


@cache
def loaded() -> LoadedModel:
    """The weights of all engines here; each has a pool of its own."""
    return load_model(MODEL, EngineConfig(1, (GroupSpec(BLOCK_SIZE),), 4, 256), ModelOptions(1, "float32", "cpu"))


@pytest.fixture(scope="module", autouse=True)
def weights_are_dropped() -> Iterator[None]:
    """No test after these keeps a gigabyte of weights."""
    yield
    loaded.cache_clear()
    gc.collect()


class Run:
    """One engine on Gemma, with its events."""

    def __init__(self, num_blocks: int, edition_name: str = "labengine", connector: Connector | None = None) -> None:
        config = EngineConfig(num_blocks, (GroupSpec(BLOCK_SIZE),), 4, 256)
        model = loaded().sibling(config, ModelOptions(config.num_blocks, "float32", "cpu"))
        if connector is not None:
            connector.bind(model.fingerprint)
        self.spy = Spy(model.runner)
        self.events: list[Any] = []
        hooks = Hooks(strict=True)
        hooks.subscribe(self.events.append)
        self.engine = Engine(model.config, self.spy, edition(edition_name), hooks, connector)

    def add(self, token_ids: list[int]) -> None:
        self.engine.add(token_ids, SamplingParams(max_tokens=NUM_NEW, ignore_eos=True))

    def finish(self) -> None:
        while self.engine.step():
            assert check_invariants(self.engine.snapshot()) == []
        assert self.engine.num_used_blocks == 0

    def of_kind(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def num_freed(self, reason: str) -> int:
        return sum(event.reason == reason for event in self.of_kind(BlockFreed))


@pytest.mark.parametrize("edition_name", ["labengine", "vllm"])
def test_prefix_hits_longer_than_the_window(edition_name: str, reference: Rows, encode: Any) -> None:
    run = Run(900, edition_name)
    run.add(encode(LIBRARY))
    run.finish()
    for tail in ("She", "He took the stairs, because"):
        run.add(encode(LIBRARY + tail))
    run.add(encode("The capital of France is"))
    run.finish()
    first, *others = run.of_kind(PrefixHit)
    assert len(encode(LIBRARY)) > 600 and first.num_tokens == 0
    assert sum(hit.num_tokens > 512 for hit in others) == 2
    assert run.num_freed("window") > 0
    assert num_ties(run.engine, run.spy, reference, TOLERANCE) == 0


def test_preemption(reference: Rows, encode: Any) -> None:
    """A pool for little more than one request: the second is admitted, and both cannot grow."""
    run = Run(350)
    run.add(encode(LIBRARY)[:623])
    run.engine.step()
    run.add(encode(HARBOUR)[:400])
    run.finish()
    assert run.num_freed("preempted") > 0
    assert num_ties(run.engine, run.spy, reference, TOLERANCE) == 0


@pytest.mark.parametrize("is_late", [False, True], ids=["loads at once", "loads a step late"])
def test_external_hits_after_eviction(is_late: bool, reference: Rows, encode: Any) -> None:
    store = HostStore()
    run = Run(300, connector=Delayed(store, 1) if is_late else store)
    prompt = encode(LIBRARY)
    run.add(prompt)
    run.finish()
    kept = kv_by_hash(run, BlocksSaved)
    run.add(encode(HARBOUR))
    run.finish()
    assert len(run.of_kind(BlockEvicted)) > 100
    run.add(prompt)
    run.finish()
    (hit,) = run.of_kind(ExternalHit)
    assert hit.num_tokens > 600 and hit.is_loading == is_late
    assert num_ties(run.engine, run.spy, reference, TOLERANCE) == 0
    loaded = kv_by_hash(run, BlocksLoaded)
    assert {group for group, _ in loaded} == set(range(6))
    for key in loaded.keys() & kept.keys():
        assert loaded[key].keys() == kept[key].keys()
        assert all(torch.equal(loaded[key][name], kept[key][name]) for name in kept[key]), "not bit for bit"
    assert len(loaded.keys() & kept.keys()) > 100


def kv_by_hash(run: Run, kind: type) -> dict[tuple[int, bytes], dict[str, torch.Tensor]]:
    """K and V of the blocks that these events name, as they are in the pool now."""
    pool = run.engine.scheduler.manager.pool
    blocks = {key: ids[0] for key, ids in pool.prefix_map.items()}
    wanted = [(group, block_hash) for event in run.of_kind(kind) for group, _, _, block_hash in event.transfers]
    return {key: dict(run.spy.read_block(key[0], blocks[key])) for key in wanted if key in blocks}


def test_external_hits_after_a_restart(tmp_path: Path, reference: Rows, encode: Any) -> None:
    """Another process computes and saves; this one has never seen the prompt."""
    code = f"from engine.test_gemma_in_the_engine import save_in; save_in({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env=child_environment())
    run = Run(300, connector=DiskStore(tmp_path))
    run.add(encode(LIBRARY))
    run.finish()
    (hit,) = run.of_kind(ExternalHit)
    assert hit.num_tokens > 600
    assert num_ties(run.engine, run.spy, reference, TOLERANCE) == 0


def save_in(folder: str) -> None:
    """What the other process does."""
    run = Run(300, connector=DiskStore(Path(folder)))
    run.add(HuggingFaceTokenizer(model_path(MODEL)).encode(LIBRARY))
    run.finish()


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
