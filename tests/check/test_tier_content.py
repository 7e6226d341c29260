"""The oracle follows content through the external tier: what was read is what counts, not the key it is filed under."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from labengine.core.connector import BlockTransfer, Connector, KVAccess
from labengine.engine.external import Delayed, DiskStore, HostStore
from labengine.events import BlocksLoaded
from labengine.lab import Lab
from labengine.scenarios import bug

PROMPT = range(1, 10)


class Swaps(HostStore):
    """Files the two blocks of a save under each other's keys."""

    def save_kv(self, saves: Sequence[BlockTransfer], kv: KVAccess) -> tuple[BlockTransfer, ...]:
        """Save the blocks, each under the hash of another one."""
        hashes = [transfer.block_hash for transfer in reversed(saves)]
        swapped = [replace(transfer, block_hash=h) for transfer, h in zip(saves, hashes, strict=True)]
        super().save_kv(swapped, kv)
        return tuple(saves)


class LoadsNothing(HostStore):
    """Says that it has loaded, and has not."""

    def start_load_kv(self, loads: Sequence[BlockTransfer], kv: KVAccess) -> None:
        """Write no block."""


def misread(external: Connector) -> list[str]:
    """What the checks say when a prompt is computed, forgotten by the pool, and loaded; the load is to blame."""
    with Lab("simulated", num_blocks=8, block_size=4, external=external) as lab:
        lab.session.violation_warnings.is_silent = True
        lab.generate([PROMPT], max_tokens=1)
        lab.reset_prefix_cache()
        lab.generate([PROMPT], max_tokens=1)
        assert lab.timeline is not None
        blamed = {v.first_event for v in lab.violations}
        assert all(n is not None and isinstance(lab.timeline.events(n, n + 1)[0], BlocksLoaded) for n in blamed)
        return [violation.message for violation in lab.violations]


@pytest.mark.parametrize("is_late", [False, True])
def test_blocks_under_each_others_keys_are_misread(is_late: bool) -> None:
    found = misread(Delayed(Swaps()) if is_late else Swaps())
    assert len(found) == 4, "each block is misread, and named after the load"
    assert all("KV of position" in m and "for request 1" in m for m in found)


@pytest.mark.parametrize("is_late", [False, True])
def test_blocks_under_their_own_keys_are_not(is_late: bool) -> None:
    assert misread(Delayed(HostStore()) if is_late else HostStore()) == []


def test_a_tier_that_writes_no_block_leaves_what_was_there() -> None:
    with Lab("simulated", num_blocks=6, block_size=4, external=LoadsNothing()) as lab:
        lab.session.violation_warnings.is_silent = True
        for prompt in (PROMPT, range(50, 59), PROMPT):
            lab.generate([prompt], max_tokens=1)
            lab.reset_prefix_cache()
        read = [v.message for v in lab.violations if v.rule == "read"]
    assert len(read) == 2 and all(m.endswith("(overridden: LoadsNothing.start_load_kv)") for m in read)
    assert "KV of other tokens" in read[0] and "for request 1" in read[0]


def test_a_tier_that_keeps_bytes_is_judged_by_its_keys(tmp_path: Path) -> None:
    assert misread(DiskStore(tmp_path)) == []


def test_an_aborted_load_that_lands_anyway_is_named_as_one() -> None:
    with bug("vllm-32255").broken() as lab:
        assert all("by a load that no request waits for" in v.message for v in lab.violations)
