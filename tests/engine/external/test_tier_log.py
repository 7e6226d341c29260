"""What a tier evicts and pins is found, in the order in which it happens."""

from __future__ import annotations

from pathlib import Path

import labengine
from labengine.engine.external.disk import DiskStore
from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed
from labengine.events import BlocksLoaded, BlocksSaved, LoadFailed, TierChanged
from labengine.lab import Lab
from labengine_widgets.words.tier import kept_contents


def saved_and_evicted(external: HostStore | DiskStore | Delayed) -> Lab:
    """Three prompts of two full blocks each."""
    lab = Lab("simulated", num_blocks=20, block_size=4, external=external)
    for first in (0, 100, 200):
        lab.generate([range(first, first + 9)], max_tokens=1)
    return lab


def test_an_eviction_is_reported_before_the_save_that_needs_the_room(tmp_path: Path) -> None:
    with saved_and_evicted(HostStore(max_blocks=4)) as lab:
        assert lab.timeline is not None and lab.external is not None
        found = lab.timeline.of_kind((BlocksSaved, TierChanged))
        assert [type(event).__name__ for event in found] == ["BlocksSaved"] * 2 + ["TierChanged", "BlocksSaved"]
        first, _, change, _ = found
        assert isinstance(first, BlocksSaved) and isinstance(change, TierChanged)
        assert set(change.dropped) == {(group, key) for group, _, _, key in first.transfers}
        held = kept_contents(lab.timeline)
        assert len(held) == 4 and all(lab.external.has(*key) for key in held)


def test_a_folder_and_a_late_tier_report_it_too(tmp_path: Path) -> None:
    all_kept = DiskStore(tmp_path / "one")
    with saved_and_evicted(all_kept):
        size = all_kept.num_bytes // 6
    for store in (DiskStore(tmp_path / "two", max_bytes=4 * size + size // 2), Delayed(HostStore(max_blocks=4))):
        with saved_and_evicted(store) as lab:
            assert lab.timeline is not None
            assert sum(len(event.dropped) for event in lab.timeline.of_kind(TierChanged)) == 2
            assert all(store.has(*key) for key in kept_contents(lab.timeline))


def test_a_load_does_not_bring_back_what_was_evicted_under_it() -> None:
    with labengine.bug("sglang-27444").broken() as lab:
        assert lab.timeline is not None and lab.external is not None
        (load,) = lab.timeline.of_kind(BlocksLoaded)
        held = kept_contents(lab.timeline)
        assert held and not {(group, key) for group, _, _, key in load.transfers} & set(held)
        assert all(lab.external.has(*key) for key in held)


def test_pins_are_reported_when_they_are_taken_and_returned() -> None:
    with labengine.bug("sglang-27444").played("pinned") as lab:
        assert lab.timeline is not None
        counts = [count for event in lab.timeline.of_kind(TierChanged) for _, _, count in event.pinned]
        assert counts == [1, 1, 0, 0]


def test_what_could_not_be_read_is_gone() -> None:
    with Lab("simulated", num_blocks=20, block_size=4, external="host", edition="vllm") as lab:
        lab.fill_external(token_ids=range(1, 10))
        assert isinstance(lab.external, HostStore)
        lab.external._contents.clear()
        lab.generate([range(1, 10)], max_tokens=1)
        assert lab.timeline is not None and lab.timeline.of_kind(LoadFailed)
        assert sum(len(event.dropped) for event in lab.timeline.of_kind(TierChanged)) == 2
