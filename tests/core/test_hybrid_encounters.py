"""The random workloads on hybrid groups run into what they are for: else the tests on them would show little."""

from __future__ import annotations

from collections import Counter

import pytest

from driving import Drive, as_parts
from grounds import HYBRID, TIERED, Ground
from labengine import events as ev
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.record.hooks import Hooks
from seeds import selected

NUM_WORKLOADS = 60

EVERYWHERE = (
    "preemption",
    "eviction",
    "chunked prefill",
    "block left a window",
    "hit on a live block",
    "hit on a free block",
    "hit that starts with null entries",
    "hit shortened because groups disagree",
    "different block sizes",
    "links smaller than all blocks",
    "retention interval",
    "watermark",
    "threshold",
)
OF_THE_DEFAULT = ("merge in full attention", "merge in a window")
OF_VLLM = ("key of a prompt's tail",)
OF_A_TIER = ("external hit", "external hit behind a local one", "save")


def wanted(ground: Ground) -> tuple[str, ...]:
    """What a ground's workloads have to meet."""
    of_edition = OF_THE_DEFAULT if ground.edition == "labengine" else OF_VLLM
    return (*EVERYWHERE, *of_edition, *(OF_A_TIER if ground.tier != "none" else ()))


@pytest.mark.parametrize("ground", [*HYBRID, *TIERED], ids=str)
def test_each_thing_is_met_in_at_least_one_of_twenty(ground: Ground) -> None:
    met: Counter[str] = Counter()
    seeds = selected(str(ground), NUM_WORKLOADS)
    for seed in seeds:
        met.update(encounters(ground, seed))
    assert {name: met[name] for name in wanted(ground) if met[name] < len(seeds) / 20} == {}


def encounters(ground: Ground, seed: int) -> set[str]:
    """What one workload meets."""
    hooks = Hooks(strict=True)
    listener = _Listener(hooks)
    drive = ground.drive(seed, hooks, parts=_counting(ground.edition, listener.met))
    drive.run()
    return listener.met | _settings_of(drive)


def _settings_of(drive: Drive) -> set[str]:
    config = drive.engine.config
    found = {
        "different block sizes": len({group.block_size for group in config.groups}) > 1,
        "links smaller than all blocks": config.hash_block_size < min(g.block_size for g in config.groups),
        "retention interval": config.retention_interval is not None,
        "watermark": config.watermark > 0,
        "threshold": config.long_prefill_token_threshold > 0,
    }
    return {name for name, is_met in found.items() if is_met}


def _counting(edition: str, met: set[str]) -> Parts:
    parts = as_parts(edition)

    class CountingManager(parts.kv_cache_manager):  # type: ignore[name-defined, misc]
        def find_prefix(self, request: Request) -> Hit:
            hit: Hit = super().find_prefix(request)
            if hit.shared_prefix_boundary:
                met.add("hit shortened because groups disagree")
            return hit

    return Parts(kv_cache_manager=CountingManager).overriding(parts)


class _Listener:
    """Counts encounters from the events."""

    def __init__(self, hooks: Hooks) -> None:
        self.met: set[str] = set()
        self._null_block = -1
        self._groups: tuple[tuple[str, int, int | None], ...] = ()
        self._num_tokens: Counter[int] = Counter()
        self._num_local: Counter[int] = Counter()
        hooks.subscribe(self.hear)

    def hear(self, event: ev.Event) -> None:
        match event:
            case ev.EngineStarted():
                self._null_block, self._groups = event.null_block, event.groups
            case ev.RequestAdded():
                self._num_tokens[event.request_id] = len(event.token_ids)
            case ev.TokenSampled():
                self._num_tokens[event.request_id] += 1
            case ev.RequestScheduled():
                self._note("chunked prefill", event.start + event.num_tokens < self._num_tokens[event.request_id])
            case ev.RequestPreempted():
                self._note("preemption")
            case ev.BlockEvicted():
                self._note("eviction", event.reason == "reused")
            case ev.BlockFreed():
                self._note("block left a window", event.reason == "window")
            case ev.BlockTouched():
                self._note("hit on a free block" if event.ref_count == 1 else "hit on a live block")
            case ev.PrefixHit():
                self._num_local[event.request_id] = event.num_tokens
                self._note("hit that starts with null entries", any(self._null_block in i for i in event.block_ids))
            case ev.BlockMerged():
                is_full = self._groups[event.group][0] == "full"
                self._note("merge in full attention" if is_full else "merge in a window")
            case ev.BlockCached():
                self._note("key of a prompt's tail", not event.is_full)
            case ev.ExternalHit():
                self._note("external hit")
                self._note("external hit behind a local one", self._num_local[event.request_id] > 0)
            case ev.BlocksSaved():
                self._note("save")

    def _note(self, name: str, is_met: bool = True) -> None:
        if is_met:
            self.met.add(name)
