"""The table of seams: every decision is a public method with a reason, and the decider of an event is named by it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from checkout import ROOT
from labengine import events as ev
from labengine.core.block_pool import BlockPool
from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS, LABENGINE, LABENGINE_RADIX, RECORDED_EDITIONS, edition
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.part_methods import definers, is_custom
from labengine.core.parts import Parts
from labengine.core.radix.full_attention import RadixGroup
from labengine.core.radix.kv_cache_manager import RadixKVCacheManager
from labengine.core.request import Request
from labengine.core.seams import DECIDED_BY, decider, overrides, owners, tier_class
from labengine.core.sglang.scheduler import SglangScheduler
from labengine.core.sliding_window import SlidingWindowGroup
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external import Delayed, HostStore
from labengine.scenarios.nano_vllm_219_duplicate_blocks import NoAliveCheck
from labengine.session.patch.seams import seams_in_use
from labengine.session.reasons import method_of, seams_of

SEAMS_PAGE = ROOT / "docs" / "seams.md"
BY_PRIORITY = (edition("labengine", "priority"), edition("vllm", "priority"))
ALL = (*EDITIONS.values(), *RECORDED_EDITIONS.values(), *BY_PRIORITY)
NOT_THE_CORES = ("Engine.", "Transfers.", "Watch.", "Parts.")


def reasons() -> dict[str, str]:
    """Each seam of the table in docs/seams.md, and why it is right."""
    found = {}
    for line in SEAMS_PAGE.read_text(encoding="utf-8").splitlines():
        row = re.fullmatch(r"\| (`\w+\.\w+`(?:, `\w+`)*) \| ([^|]+) \| ([^|]+) \|", line)
        if row:
            part = row[1].strip("`").partition(".")[0]
            found.update({f"{part}.{name}": row[3] for name in re.findall(r"(\w+)`", row[1])})
    return found


@cache
def part_classes() -> dict[str, tuple[type, str]]:
    """Each class of an edition's parts, and its base classes, by name; and the name of the part that it plays."""
    found: dict[str, tuple[type, str]] = {}
    for parts in ALL:
        for part, classes in owners(parts).items():
            for base in (base for cls in classes for base in cls.__mro__[:-1]):
                found.setdefault(base.__name__, (base, part))
    return found


def test_no_part_derives_from_more_than_four_of_our_classes() -> None:
    """What a scheduler can do beside scheduling is a collaborator (core/collaborator.py), and no base."""
    chains = {cls: len(cls.__mro__[:-1]) for parts in ALL for classes in owners(parts).values() for cls in classes}
    assert {cls.__name__ for cls, length in chains.items() if length > 5 and cls is not Connector} == set()


def seam_of(row: str) -> str:
    """The seam of a row: its part and its method, where the row names the subclass that adds the method."""
    name, method = row.split(".")
    return f"{part_classes()[name][1]}.{method}"


def test_the_table_has_every_deciding_method() -> None:
    deciding = {seam for seams in DECIDED_BY.values() for seam in seams if not seam.startswith(NOT_THE_CORES)}
    kinds = {seam for seam in deciding if seam.startswith(("SlidingWindowGroup.", "StateGroup."))}
    named = {f"KVCacheGroup.{seam.partition('.')[2]}" for seam in kinds} | (deciding - kinds)
    assert named <= set(map(seam_of, reasons())), named - set(map(seam_of, reasons()))


@pytest.mark.parametrize("seam", reasons())
def test_a_seam_is_public_and_says_what_it_does(seam: str) -> None:
    name, method = seam.split(".")
    cls, part = part_classes()[name]
    assert not method.startswith("_")
    assert hasattr(cls, method), f"{name} has no {method}"
    owner = next(cls for parts in ALL for cls in owners(parts)[part] if definers(cls, method))
    text = method_of(owner, method, part)
    assert text is not None and text.reason, f"{seam} has no docstring"
    assert len(reasons()[seam]) > 10


DECIDES_NO_EVENT = {
    "is_idle": "asked between steps",
    "refuse_what_it_lacks": "what it refuses is never made",
    "refuse_what_never_fits": "what it refuses is never added",
    "refuse_forks": "what it refuses is never added",
    "refuse_beams": "what it refuses is never added",
    "refuse_to_give": "what it refuses stays where it is",
    "refuse_too_many": "what it refuses is never added",
    "capabilities": "said before anything is decided",
    "fault": "asked by the checks alone",
    "finds_longest": "declares a policy to the checks",
    "bind": "names the tier's content",
    "keeps_states": "says what a kind of layer keeps",
    "describe": "words",
    "num_kept": "asked by the checks alone",
    "planned": "asked by the finder alone",
    "beside_table": "asked by the finder alone",
    "beside_queues": "asked by the finder alone",
    "serves_all": "asked by the checks alone",
    "num_pins": "asked by the checks alone",
    "changes_nothing": "declares a policy to the checks",
    "tree": "the part itself",
    "pool": "the part itself",
    "group": "the part itself",
    "drops_unregistered": "declares a policy to the checks",
    "block_size": "of its only group",
    "waits_for_modules": "asked by the checks alone",
    "cuts_prompts": "declares a policy to the page",
    "reserves_whole_prompts": "declares a policy to replay",
    "keeps_lookahead": "declares a policy to replay",
    "num_lookahead": "set by replay alone",
    "register_new": "asked only where no event is heard",
    "has_checkpoints": "declares a policy to the doctor",
    "plans_ahead": "declares a policy to the checks and to conformance",
    "restore_unbooked": "asked by conformance alone",
    "note": "words",
    "close": "after the last event",
}


def public_seams() -> Iterator[tuple[str, str]]:
    """Each public seam of all editions' parts and of the connector, with its name alone."""
    for parts in ALL:
        yield from ((str(seam), seam.name) for seam in seams_in_use(parts, ("full", "sliding_window", "state")))
    yield from ((f"Connector.{name}", name) for name in vars(Connector) if not name.startswith("_"))


def test_every_public_seam_decides_some_event_or_is_said_to_decide_none() -> None:
    """The blame table is derived from no list: a new seam of a part is missed here until it is in `decided_by`."""
    known = {name.partition(".")[2] for names in DECIDED_BY.values() for name in names}
    seams = set(public_seams())
    assert sorted(seam for seam, name in seams if name not in known | DECIDES_NO_EVENT.keys()) == []
    assert not known & DECIDES_NO_EVENT.keys() and DECIDES_NO_EVENT.keys() <= {name for _, name in seams}


@pytest.mark.parametrize("names", DECIDED_BY.values(), ids=DECIDED_BY)
def test_what_the_table_names_is_there(names: tuple[str, ...]) -> None:
    for part, method in (name.split(".") for name in names if not name.startswith(NOT_THE_CORES)):
        assert any(hasattr(cls, method) for parts in ALL for cls in owners(parts)[part]), f"{part}.{method}"


class OwnTier(HostStore):
    """A tier that says it has everything."""

    def has(self, group: int, block_hash: bytes) -> bool:
        return True


def test_a_tier_of_ones_own_is_the_decider_also_behind_another_one() -> None:
    for tier in (OwnTier(8), Delayed(OwnTier(8))):
        found = decider(LABENGINE, "ExternalHit", tier_class(tier))
        assert str(found) == "OwnTier.has"
        assert [str(one) for one in overrides(LABENGINE, tier_class(tier))] == ["OwnTier.has"]
    assert tier_class(None) is Connector and overrides(LABENGINE) == []


class Deep(TokenBudgetScheduler):
    """A private method, a public one, and a helper that replaces nothing."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)

    def _schedule_running(self, chunk: int, preempted: list[int]) -> list[ScheduledRequest]:
        return super()._schedule_running(chunk, preempted)

    def skips(self, request: Request, skipped: Sequence[Request]) -> bool:
        return self._never()

    def _never(self) -> bool:
        return False


def test_overrides_are_all_that_replaces_something_of_ours() -> None:
    parts = Parts(scheduler=Deep).overriding(LABENGINE)
    assert [str(one) for one in overrides(parts)] == ["Deep._schedule_running", "Deep.skips"]


@pytest.mark.parametrize("event", ["BlockMerged", "BlockFreed:merged"])
def test_a_tree_decides_what_is_merged(event: str) -> None:
    assert str(decider(LABENGINE_RADIX, event)) == "PrefixTree.insert"
    assert str(decider(LABENGINE, event)) == "LateMerge.merge_target"


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
    assert str(decider(EDITIONS["vllm"], tail)) == "PartialHits.register_tail"


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


class Reluctant(RadixKVCacheManager):
    """Forks without inserting."""

    def fork(self, request: Request, parent: Request) -> None:
        KVCacheManager.fork(self, request, parent)


class Unlocked(RadixGroup):
    """Forks without a lock."""

    def add_shared(self, request: Request, parent: Request, num_tokens: int) -> None:
        FullAttentionGroup.add_shared(self, request, parent, num_tokens)


@pytest.mark.parametrize("kind", ["NodeInserted", "NodeSplit", "NodesTouched", "NodeLocked"])
def test_a_fork_decides_what_its_parent_inserts(kind: str) -> None:
    parts = Parts(kv_cache_manager=Reluctant).overriding(LABENGINE_RADIX)
    assert str(decider(parts, kind)) == "Reluctant.fork"


def test_a_fork_and_a_retraction_are_decided_where_an_edition_decides_them() -> None:
    parts = Parts(full_attention_group=Unlocked).overriding(LABENGINE_RADIX)
    assert str(decider(parts, "NodeLocked")) == "Unlocked.add_shared"
    assert str(decider(parts, "BlockTouched:fork")) == "Unlocked.add_shared"
    assert str(decider(EDITIONS["sglang"], "RequestPreempted")) == "SglangScheduler.choose_victim"
    assert str(decider(LABENGINE_RADIX, "BlockCached")) == "PrefixTree.insert"


class Forward(SglangScheduler):
    """Queues a retracted request at the front."""

    def requeue(self, request: Request) -> None:
        self._queue_first(request)


def test_a_retraction_names_an_override_of_its_place_in_the_queue() -> None:
    parts = Parts(scheduler=Forward).overriding(EDITIONS["sglang"])
    assert str(decider(parts, "RequestPreempted")) == "Forward.requeue"
