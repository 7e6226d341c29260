"""KV events held against what vLLM had cached, and hit, when it published each batch; and the recorded ones."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any, cast

import labengine
from differential import vllm_streams
from differential.vllm_golden import FOLDER
from differential.vllm_process import VllmProcess
from labengine.record.files.file_access import Limits
from labengine.vllm.cache_events.cache import EventCache
from labengine.vllm.cache_events.chains import Chains
from labengine.vllm.cache_events.holdings import Presence
from labengine.vllm.cache_events.kv_files import RecordedEvents
from labengine.vllm.cache_events.live import LivePrefixes
from labengine.vllm.cache_events.reuse import FULL
from labengine.vllm.cache_events.schema import BlockHash
from labengine.vllm.cache_events.stream import EventStream
from waiting import wait_until

RECORDED_SEEDS = (5, 0, 9)
TRUTHS = FOLDER / "vllm-kv-events.json.gz"

Truth = dict[str, Any]
"""`cached`: number of blocks by "group:hash". `hits`: how often each was hit since the start."""


def recording(seed: int) -> Path:
    """Return the golden file of a workload: what labengine attach recorded of vLLM's publisher."""
    return FOLDER / f"vllm-kv-events-{seed}.kvevents"


def record(vllm: VllmProcess, seed: int, path: Path, folder: Path) -> list[Truth]:
    """Follow vLLM's own publisher while a workload runs, record it, and return vLLM's own state at each batch."""
    endpoints = {"endpoint": f"ipc://{folder}/events", "replay_endpoint": f"ipc://{folder}/replay"}
    place = f"kv:{endpoints['endpoint']}"
    with cast(LivePrefixes, labengine.kv_events(place, replay=endpoints["replay_endpoint"], record=path)) as prefixes:
        truths = vllm.run_kv_events(vllm_streams.tapped_workload(seed) | {"kv_events": endpoints})
        wait_until(lambda: prefixes.stream.num_batches == len(truths))
        assert prefixes.notes == []
    return truths


class Comparison:
    """Folds a recording, and compares after each batch. Counts what it met."""

    def __init__(self) -> None:
        self.num_batches = 0
        self.presences = Counter[Presence]()
        self.num_hits_proved = 0
        self.num_hits = 0

    def take(self, path: Path, truths: list[Truth]) -> None:
        """Raise AssertionError where the fold says what was not so."""
        recorded = RecordedEvents(path, Limits(path))
        stream = EventStream(recorded.sources)
        for message, truth in zip(recorded.messages(), truths, strict=True):
            stream.take(message)
            self._compare_presence(stream.cache, truth["cached"])
            self._compare_hits(stream.cache, truth["hits"])
            self.num_batches += 1
        assert not stream.cache.contradictions and not stream.notes

    def _compare_presence(self, cache: EventCache, cached: dict[str, int]) -> None:
        found = {}
        for block_hash, held in cache.holdings.items():
            for place, holding in held.items():
                name = _name(place.group, block_hash)
                found[name] = holding.presence
                num_copies = cached.get(name, 0)
                assert holding.least <= num_copies <= holding.most, (name, holding, num_copies)
        assert cached.keys() <= found.keys()
        self.presences.update(found.values())

    def _compare_hits(self, cache: EventCache, hits: dict[str, int]) -> None:
        chains = Chains(cache)
        for content in chains.tree.order:
            proved = chains.reuse.of(content).num_hits
            if proved is not None:
                groups = {place.group for place in cache.held(content) if cache.group_kinds[place] in FULL}
                actual = max((hits.get(_name(group, content.hash), 0) for group in groups), default=0)
                assert proved <= actual, (content, proved, actual)
                self.num_hits_proved += proved
                self.num_hits += actual


def _name(group: int | None, block_hash: BlockHash) -> str:
    return f"{group}:{block_hash!s}"


def write_truths(header: dict[str, str], truths: dict[int, list[Truth]]) -> None:
    """Record what vLLM had cached beside the recordings; the same make the same bytes."""
    text = json.dumps({**header, "truths": truths}, separators=(",", ":"))
    TRUTHS.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_truths() -> dict[int, list[Truth]]:
    """Return vLLM's own state at each batch, by the workload's seed."""
    document = json.loads(gzip.decompress(TRUTHS.read_bytes()))
    return {int(seed): truths for seed, truths in document["truths"].items()}
