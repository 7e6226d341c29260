"""The table of seams: every decision is a public method with a reason, and the decider of an event is named by it."""

from __future__ import annotations

import re
from functools import cache

import pytest

from checkout import ROOT
from labengine import events as ev
from labengine.core.block_pool import BlockPool
from labengine.core.editions import EDITIONS, LABENGINE
from labengine.core.part_methods import definers, is_custom
from labengine.core.parts import Parts
from labengine.core.seams import DECIDED_BY, decider, owners
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.scenarios.nano_vllm_219_duplicate_blocks import NoAliveCheck
from labengine.session.reasons import method_of, seams_of

CORE_PAGE = ROOT / "docs" / "core.md"
NOT_THE_CORES = ("Engine.", "Transfers.", "Watch.", "Parts.")


def reasons() -> dict[str, str]:
    """Each seam of the table in docs/core.md, and why it is right."""
    found = {}
    for line in CORE_PAGE.read_text(encoding="utf-8").splitlines():
        row = re.fullmatch(r"\| (`\w+\.\w+`(?:, `\w+`)*) \| ([^|]+) \| ([^|]+) \|", line)
        if row:
            part = row[1].strip("`").partition(".")[0]
            found.update({f"{part}.{name}": row[3] for name in re.findall(r"(\w+)`", row[1])})
    return found


@cache
def part_classes() -> dict[str, tuple[type, str]]:
    """Each class of an edition's parts, and its base classes, by name; and the name of the part that it plays."""
    found: dict[str, tuple[type, str]] = {}
    for parts in EDITIONS.values():
        for part, classes in owners(parts).items():
            for base in (base for cls in classes for base in cls.__mro__[:-1]):
                found.setdefault(base.__name__, (base, part))
    return found


def seam_of(row: str) -> str:
    """The seam of a row: its part and its method, where the row names the subclass that adds the method."""
    name, method = row.split(".")
    return f"{part_classes()[name][1]}.{method}"


def test_the_table_of_the_core_page_has_every_deciding_method() -> None:
    deciding = {seam for seams in DECIDED_BY.values() for seam in seams if not seam.startswith(NOT_THE_CORES)}
    windowed = {seam for seam in deciding if seam.startswith("SlidingWindowGroup.")}
    named = {seam.replace("SlidingWindowGroup", "KVCacheGroup") for seam in windowed} | (deciding - windowed)
    assert named <= set(map(seam_of, reasons())), named - set(map(seam_of, reasons()))


@pytest.mark.parametrize("seam", reasons())
def test_a_seam_is_public_and_says_what_it_does(seam: str) -> None:
    name, method = seam.split(".")
    cls, part = part_classes()[name]
    assert not method.startswith("_")
    assert hasattr(cls, method), f"{name} has no {method}"
    owner = next(cls for parts in EDITIONS.values() for cls in owners(parts)[part] if definers(cls, method))
    text = method_of(owner, method, part)
    assert text is not None and text.reason, f"{seam} has no docstring"
    assert len(reasons()[seam]) > 10


def test_a_part_of_ones_own_is_the_decider() -> None:
    class WrongTouch(BlockPool):
        def touch(self, block_ids: object) -> None:
            """Counts, and leaves the block in the queue."""

    parts = Parts(block_pool=WrongTouch).overriding(LABENGINE)
    touched = ev.BlockTouched(0, 0, 0, 0, 1)
    found = decider(parts, touched)
    assert found is not None and found.owner is WrongTouch and str(found).endswith("WrongTouch.touch")
    assert str(decider(LABENGINE, touched)) == "KVCacheManager.allocate_computed"
    assert is_custom(WrongTouch) and not is_custom(BlockPool)


def test_an_override_of_late_loads_is_the_decider_of_what_it_emits() -> None:
    class Forgetful(TokenBudgetScheduler):
        def take_arrived(self) -> None:
            """Leaves the requests waiting."""

    parts = Parts(scheduler=Forgetful).overriding(LABENGINE)
    for event in (ev.BlocksLoaded(0, ()), ev.LoadFailed(0, "")):
        assert str(decider(parts, event)).endswith("Forgetful.take_arrived")
    assert str(decider(LABENGINE, ev.BlocksLoaded(0, ()))) == "KVCacheManager.external_blocks"


def test_what_is_forgotten_and_what_is_sampled_are_decided_before_the_event() -> None:
    class NeverForgets(BlockPool):
        def evict(self, block: object, reason: str = "reused") -> None:
            """Leaves the block in the map."""

    class SamplesEveryChunk(TokenBudgetScheduler):
        def plan(self, *args: object) -> None:
            """Has each chunk of a prompt sample."""

    parts = Parts(block_pool=NeverForgets, scheduler=SamplesEveryChunk).overriding(LABENGINE)
    assert str(decider(parts, "BlockAllocated")).endswith("NeverForgets.evict")
    assert str(decider(parts, "TokenSampled")).endswith("SamplesEveryChunk.plan")


def test_a_reason_narrows_the_decider() -> None:
    parts = Parts(merge_policy=NoAliveCheck).overriding(LABENGINE)
    freed = ev.BlockFreed(3, 1, 0, 0, 0, "head", "merged")
    assert str(decider(LABENGINE, freed)) == str(decider(LABENGINE, "BlockFreed:merged")) != "BlockPool.reused_first"
    assert str(decider(LABENGINE, "BlockFreed")) == "BlockPool.reused_first"
    assert str(decider(LABENGINE, "BlockFreed:finished")) == "BlockPool.reused_first"
    assert str(decider(parts, "BlockMerged")) == "NoAliveCheck.is_alive"
    tail = ev.BlockCached(3, 1, 0, 0, b"", (3,), is_full=False)
    assert str(decider(EDITIONS["vllm"], tail)) == "PromptTailGroup.register_tail"


def test_a_window_group_of_ones_own_is_found_beside_the_full_one() -> None:
    class Forgets(SlidingWindowGroup):
        def merge(self, request: object, index: int, block_id: int, into_block_id: int) -> None:
            """Does nothing."""

    parts = Parts(sliding_window_group=Forgets).overriding(LABENGINE)
    assert str(decider(parts, "BlockMerged")).endswith("Forgets.merge")
    seam = seams_of(parts)["BlockMerged"]
    assert seam["seam"] == "KVCacheGroup.merge" and seam["class"].endswith("Forgets") and seam["is_custom"]


def test_what_no_part_decides_has_no_decider() -> None:
    assert decider(LABENGINE, ev.StepStarted(1)) is None
    with pytest.raises(KeyError):
        decider(LABENGINE, "NoSuchEvent")


def test_every_kind_that_the_core_decides_has_a_decider() -> None:
    for kind, seams in DECIDED_BY.items():
        found = [one for parts in EDITIONS.values() if (one := decider(parts, kind)) is not None]
        of_the_core = {seam.split(".")[1] for seam in seams if not seam.startswith(("Engine.", "Transfers.", "Watch."))}
        assert bool(found) == bool(of_the_core), kind
        assert {one.method for one in found} <= of_the_core
