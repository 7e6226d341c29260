"""The drawn wrong overrides are the same in every process, can be made, and cover every seam; see overrides.py."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from checkout import child_environment
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS
from labengine.core.overrides import refuse_wrong_overrides
from labengine.core.parts import base_classes
from labengine.session.patch.cell import cell_text
from labengine.session.patch.seams import seams_in_use
from mutants.changes import changes_of
from mutants.drawn import ROUNDS, Override, all_seams, digest, overrides
from mutants.overrides import sight_of, table


@pytest.fixture(scope="module")
def drawn() -> list[Override]:
    return overrides()


def test_the_draw_is_the_same_in_every_process_and_another_seed_gives_another(drawn: list[Override]) -> None:
    code = "from mutants.drawn import digest, overrides; print(digest(overrides()))"
    environment = child_environment() | {"PYTHONHASHSEED": "3"}
    again = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert again.stdout.strip() == digest(drawn)
    assert digest(overrides(seed=41)) != digest(drawn)


def test_they_differ_from_the_original_and_from_each_other_and_each_seam_has_several(drawn: list[Override]) -> None:
    assert len(drawn) == len({(one.seam, one.change.text) for one in drawn})
    for seam, _, _ in all_seams():
        texts = [one.change.text for one in drawn if one.seam == seam]
        possible = changes_of(cell_text(seam))
        assert len(texts) == min(ROUNDS, len(possible)), seam
        assert {*texts} <= {change.text for change in possible}


def test_every_method_that_an_edition_uses_is_among_the_seams(drawn: list[Override]) -> None:
    """But for those that do nothing, in which nothing can be changed."""
    covered = {str(one.seam) for one in drawn}
    methods = [
        seam
        for parts in EDITIONS.values()
        for seam in seams_in_use(parts, ("full", "sliding_window"))
        if callable(vars(seam.owner)[seam.name])
    ]
    without_a_change = {"KVCacheGroup.begin_step", "MergePolicy.merge_target", "Scheduler.restore_unbooked"}
    without_a_change |= {"KVCacheGroup.beside_table", "PartialHits.beside_table", "Scheduler.beside_queues"}
    without_a_change |= {"PrefixTree.held_by", "RadixScheduler.make_room_for"}
    without_a_change |= {"VllmScheduler.refuse_forks", "VllmScheduler.refuse_beams", "BeamSearches.policy"}
    assert {str(seam) for seam in methods} - covered == without_a_change
    assert {"PrefixLookup.longest_hit", "ExternalLoads.match", "HostStore.has", "KVStore.save_kv"} <= covered


def test_all_are_accepted_as_overrides_and_have_their_source(drawn: list[Override]) -> None:
    for one in drawn:
        edition = one.editions[-1]
        parts = one.parts(edition)
        owners = [getattr(parts, field) for field in base_classes()]
        assert one.is_of_the_tier or parts != EDITIONS[edition]
        if one.family not in {base.__name__ for base in base_classes().values()}:
            refuse_wrong_overrides("a class", one.cls, Connector if one.is_of_the_tier else one.seam.owner)
            owners = [one.cls]
        made = next(owner for owner in owners if one.seam.name in vars(owner) and owner.__name__.startswith("Patched"))
        lines = [line.strip() for line in inspect.getsource(made).splitlines()]
        assert all(line.strip() in lines for line in one.change.text.splitlines()), one.words


@pytest.mark.parametrize(
    ("seam", "words", "seen_by", "rule"),
    [
        ("BlockPool.touch", "for block_id in block_ids: ...", "rule", "said"),
        ("KVCacheManager.allocate", "never: missing > self.pool.num_free", "rule", "granted"),
        (
            "PrefillFirstScheduler.refuse_what_it_lacks",
            "getattr(config, setting.name) != setting.default becomes getattr(config, setting.name) == setting.default",
            "raises",
            "ConfigError",
        ),
        ("KVCacheGroup.drop_skipped", "first -= 1", "no return", "EndlessOperationError"),
        ("WaitingQueue.least_urgent", "-1 becomes -2", "shadow", ""),
        ("KVCacheManager.allocate_computed", "always: num_external", "equivalent", ""),
    ],
)
def test_what_sees_one(seam: str, words: str, seen_by: str, rule: str) -> None:
    sight = sight_of(_override(seam, words))
    assert (sight.seen_by, sight.rule) == (seen_by, rule), sight


@pytest.mark.usefixtures("memory_ends_first")
def test_what_fills_the_memory_does_not_return() -> None:
    sight = sight_of(_override("KVCacheGroup.slots", "start += length"))
    assert (sight.seen_by, sight.rule) == ("no return", "MemoryError"), sight


def _override(seam: str, words: str) -> Override:
    [(found, family, editions)] = [one for one in all_seams() if str(one[0]) == seam]
    change = next(change for change in changes_of(cell_text(found)) if change.words == words)
    return Override(0, family, found, editions, change)


def test_the_table_counts_by_part() -> None:
    results = [{"family": "BlockPool", "seen_by": "rule"}, {"family": "FreeQueue", "seen_by": "unseen"}]
    assert "| all | 1 | 1 |" in table(results)
