"""A hybrid model in the engine gives transformers' logits in fp32, whatever the cache does.

Gemma-3-270M in the sweep. At every change a random model with the same plan of layers, in which blocks and window are
shorter by a factor of four: there are as many blocks and groups. Prompts go beyond the window, so that blocks leave it
in the middle of a prefill; KV comes from the prefix cache, from the external tier after eviction, from a disk after a
restart, and anew after preemption.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
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
from labengine.record.hooks import Hooks
from teacher_forcing import Rows, Spy, num_ties

NUM_NEW = 4
WINDOW = 32
"""In blocks."""
LIBRARY = "The library had nine floors, and on each of them somebody was looking for the same book. " * 34
HARBOUR = "Every ship that came into the harbour that winter carried a letter for somebody who had moved away. " * 32


@dataclass(frozen=True)
class Hybrid:
    """A model of six groups, five of them with a window, and prompts of more blocks than it has."""

    directory: str
    block_size: int
    tolerance: float
    library: list[int]
    harbour: list[int]
    tails: tuple[list[int], ...]
    short: list[int]

    @classmethod
    def real(cls) -> Hybrid:
        encode = HuggingFaceTokenizer(model_path("gemma3-270m")).encode
        tails = tuple(encode(LIBRARY + tail) for tail in ("She", "He took the stairs, because"))
        short = encode("The capital of France is")
        return cls("gemma3-270m", 16, 2e-3, encode(LIBRARY), encode(HARBOUR), tails, short)

    @classmethod
    def tiny(cls, directory: Path) -> Hybrid:
        random = Random(0)
        library, harbour, short = (random.choices(range(3, 101), k=num_tokens) for num_tokens in (162, 161, 6))
        return cls(str(directory), 4, 1e-4, library, harbour, ([*library, 7], [*library, 8, 9, 10, 11, 12]), short)


@pytest.fixture(scope="module", params=["tiny", pytest.param("gemma3-270m", marks=pytest.mark.sweep)])
def hybrid(request: pytest.FixtureRequest, tiny_model: Callable[..., Path]) -> Hybrid:
    if request.param != "tiny":
        return Hybrid.real()
    return Hybrid.tiny(tiny_model("gemma3", num_hidden_layers=18, sliding_window=4 * WINDOW, query_pre_attn_scalar=24))


@pytest.fixture(scope="module")
def reference(hybrid: Hybrid) -> Rows:
    """Each sequence is computed once."""
    rows, known = transformers_rows(Path(model_path(hybrid.directory))), {}

    def logits(token_ids: list[int], positions: list[int]) -> Any:
        key = (tuple(token_ids), tuple(positions))
        if key not in known:
            known[key] = rows(token_ids, positions)
        return known[key]

    return logits


@cache
def loaded(directory: str, block_size: int) -> LoadedModel:
    """The weights of all engines here; each has a separate pool."""
    return load_model(directory, config_of(1, block_size), ModelOptions(1, "float32", "cpu"))


def config_of(num_blocks: int, block_size: int) -> EngineConfig:
    return EngineConfig(num_blocks, (GroupSpec(block_size),), 4, 16 * block_size)


@pytest.fixture(scope="module", autouse=True)
def weights_are_dropped() -> Iterator[None]:
    """No test after these keeps a gigabyte of weights."""
    yield
    loaded.cache_clear()
    gc.collect()


class Run:
    """One engine on a hybrid model, with its events."""

    def __init__(
        self, hybrid: Hybrid, num_blocks: int, edition_name: str = "labengine", connector: Connector | None = None
    ) -> None:
        config = config_of(num_blocks, hybrid.block_size)
        model = loaded(hybrid.directory, hybrid.block_size).sibling(config, ModelOptions(num_blocks, "float32", "cpu"))
        if connector is not None:
            connector.bind(model.fingerprint)
        self.spy = Spy(model.runner)
        self.events: list[Any] = []
        hooks = Hooks(strict=True)
        hooks.subscribe(self.events.append)
        self.engine = Engine(model.config, self.spy, edition(edition_name), hooks, connector)
        assert [spec.window for spec in model.config.groups] == [WINDOW * hybrid.block_size] * 5 + [None]

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
def test_prefix_hits_longer_than_the_window(edition_name: str, hybrid: Hybrid, reference: Rows) -> None:
    run = Run(hybrid, 900, edition_name)
    run.add(hybrid.library)
    run.finish()
    for prompt in (*hybrid.tails, hybrid.short):
        run.add(prompt)
    run.finish()
    first, *others = run.of_kind(PrefixHit)
    assert len(hybrid.library) > 40 * hybrid.block_size and first.num_tokens == 0
    assert sum(hit.num_tokens > WINDOW * hybrid.block_size for hit in others) == 2
    assert run.num_freed("window") > 0
    assert num_ties(run.engine, run.spy, reference, hybrid.tolerance) == 0


def test_preemption(hybrid: Hybrid, reference: Rows) -> None:
    """A pool for little more than one request: the second is admitted, and both cannot grow."""
    run = Run(hybrid, 350)
    run.add(hybrid.library[: 39 * hybrid.block_size - 1])
    run.engine.step()
    run.add(hybrid.harbour[: 25 * hybrid.block_size])
    run.finish()
    assert run.num_freed("preempted") > 0
    assert num_ties(run.engine, run.spy, reference, hybrid.tolerance) == 0


@pytest.mark.parametrize("is_late", [False, True], ids=["loads at once", "loads a step late"])
def test_external_hits_after_eviction(is_late: bool, hybrid: Hybrid, reference: Rows) -> None:
    store = HostStore()
    run = Run(hybrid, 300, connector=Delayed(store, 1) if is_late else store)
    run.add(hybrid.library)
    run.finish()
    kept = kv_by_hash(run, BlocksSaved)
    run.add(hybrid.harbour)
    run.finish()
    assert len(run.of_kind(BlockEvicted)) > 100
    run.add(hybrid.library)
    run.finish()
    (hit,) = run.of_kind(ExternalHit)
    assert hit.num_tokens > 37 * hybrid.block_size and hit.is_loading == is_late
    assert num_ties(run.engine, run.spy, reference, hybrid.tolerance) == 0
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


def test_external_hits_after_a_restart(tmp_path: Path, hybrid: Hybrid, reference: Rows) -> None:
    """Another process computes and saves; this one has never seen the prompt."""
    code = "from engine.test_gemma_in_the_engine import save_in; import sys; save_in(*sys.argv[1:])"
    arguments = [str(tmp_path), json.dumps(asdict(hybrid))]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, env=child_environment())
    run = Run(hybrid, 300, connector=DiskStore(tmp_path))
    run.add(hybrid.library)
    run.finish()
    (hit,) = run.of_kind(ExternalHit)
    assert hit.num_tokens > 37 * hybrid.block_size
    assert num_ties(run.engine, run.spy, reference, hybrid.tolerance) == 0


def save_in(folder: str, hybrid_json: str) -> None:
    """What the other process does."""
    hybrid = Hybrid(**json.loads(hybrid_json))
    run = Run(hybrid, 300, connector=DiskStore(Path(folder)))
    run.add(hybrid.library)
    run.finish()


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
