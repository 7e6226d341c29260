"""Parts whose overrides would have no effect: misspelt seams, wrong signatures, unknown fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial, partialmethod, wraps
from typing import Any, Protocol
from unittest.mock import Mock

import pytest

from fake_tier import FakeTier
from labengine import ConfigError, Lab, Parts
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.connector import BlockTransfer
from labengine.core.editions import EDITIONS, LABENGINE, VLLM
from labengine.core.external_loads import ExternalLoads
from labengine.core.free_queue import FreeQueue
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.merge_policy import KeepDuplicates, LateMerge
from labengine.core.nano_vllm.scheduler import PrefillFirstScheduler
from labengine.core.prefix_lookup import PrefixLookup
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.block_pool import VllmBlockPool
from labengine.core.waiting_queue import WaitingQueue


def refusal(**fields: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        Parts(**fields)
    return str(refused.value)


def with_method(base: type, name: str, method: object) -> type:
    return type("Mine", (base,), {name: method})


def plain(self: Any, *arguments: Any) -> None:
    """Whatever it is asked."""


# -- names that override nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "base", "misspelt", "meant"),
    [
        ("merge_policy", LateMerge, "merge_taget", "merge_target"),
        ("merge_policy", LateMerge, "isAlive", "is_alive"),
        ("block_pool", BlockPool, "tuoch", "touch"),
        ("block_pool", BlockPool, "reuse_first", "reused_first"),
        ("full_attention_group", FullAttentionGroup, "_merge", "merge"),
        ("full_attention_group", FullAttentionGroup, "_register_block", "register_block"),
        ("scheduler", TokenBudgetScheduler, "choose_victm", "choose_victim"),
        ("scheduler", TokenBudgetScheduler, "_longest_chunk", "longest_chunk"),
        ("kv_cache_manager", KVCacheManager, "slot_run", "slot_runs"),
        ("free_queue", FreeQueue, "prependd", "prepend"),
        ("prefix_lookup", PrefixLookup, "longest_hits", "longest_hit"),
        ("external_loads", ExternalLoads, "mach", "match"),
        ("waiting_queue", WaitingQueue, "preprend_request", "prepend_request"),
    ],
)
def test_a_misspelt_seam_names_the_nearest(field: str, base: type, misspelt: str, meant: str) -> None:
    message = refusal(**{field: with_method(base, misspelt, plain)})
    kind = {"full_attention_group": "KVCacheGroup", "scheduler": "Scheduler"}.get(field, base.__name__)
    kind = "MergePolicy" if field == "merge_policy" else kind
    assert message.startswith(f"parts: Mine.{misspelt} ") and message.endswith(f"{kind}; did you mean {meant}?")


def test_a_misspelt_attribute_and_a_method_in_the_wrong_class() -> None:
    assert refusal(block_pool=with_method(BlockPool, "null_blok", 0)).endswith("did you mean null_block?")
    message = refusal(full_attention_group=with_method(FullAttentionGroup, "touch", plain))
    assert "Mine.touch" in message and message.endswith("BlockPool")


@pytest.mark.parametrize(
    ("field", "base", "name", "owner"),
    [
        ("merge_policy", KeepDuplicates, "is_alive", "LateMerge"),
        ("scheduler", PrefillFirstScheduler, "longest_chunk", "TokenBudgetScheduler"),
        ("full_attention_group", FullAttentionGroup, "register_tail", "PartialHits"),
    ],
)
def test_a_seam_of_another_class_for_the_same_part(field: str, base: type, name: str, owner: str) -> None:
    message = refusal(**{field: with_method(base, name, plain)})
    assert f"; {name} belongs to {owner}" in message


def test_it_is_refused_before_a_lab_is_made_and_in_a_class_between() -> None:
    class Between(LateMerge):
        def is_allive(self, other: Block) -> bool:
            return True

    class Mine(Between):
        """Inherits the slip."""

    with pytest.raises(ConfigError, match=r"parts: Between.is_allive .* MergePolicy; .* is_alive\?"):
        Lab("simulated", num_blocks=12, block_size=4, parts=Parts(merge_policy=Mine))


def test_a_mixin_behind_the_class_that_it_should_change_is_refused() -> None:
    class Oldest:
        def choose_victim(self, request: Request) -> Request:
            raise AssertionError("never called")

    class Behind(TokenBudgetScheduler, Oldest):
        """The wrong order."""

    class Before(Oldest, TokenBudgetScheduler):
        """The right one."""

    assert refusal(scheduler=Behind) == (
        "parts: Oldest.choose_victim is never called: TokenBudgetScheduler takes precedence in Behind: "
        "list Oldest first among its bases"
    )
    assert Parts(scheduler=Before).scheduler is Before


def test_protocols_and_abstract_classes_of_python_may_be_bases() -> None:
    class Takes(Protocol):
        def take(self) -> Block: ...

    class Queue(FreeQueue, Takes, Collection[Block]):
        """Says what it is."""

    assert Parts(free_queue=Queue).free_queue is Queue


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


class WithHelpers(BlockPool):
    """Its own names, near a seam's or not, and a seam with helpers beside it."""

    num_taken = 0
    touchd = 0

    def tail_first(self, block_ids: list[int]) -> list[int]:
        return block_ids[::-1]

    def _reused_firsts(self, block_ids: list[int]) -> list[int]:
        return block_ids

    def reused_first(self, block_ids: list[int]) -> list[int]:
        return self._reused_firsts(block_ids)

    def reused_first_of_all(self) -> None:
        """Near a seam that this class overrides."""

    def take(self, num_blocks: int) -> list[int]:
        self.num_taken += self.evict_(num_blocks)
        return super().take(num_blocks)

    def evict_(self, number: int) -> int:
        """Near a seam, and used by this class itself."""
        return number

    @counted
    def touch(self, block_ids: Sequence[int]) -> None:
        self.touch_all(block_ids)

    def touch_all(self, block_ids: Sequence[int]) -> None:
        """Near a seam, and used by a method behind a decorator."""
        super().touch(block_ids)


def test_what_never_ends_is_looked_through_and_ends() -> None:
    """A function that says it wraps itself, and an object that has every attribute."""

    def wraps_itself(self: Any, block_ids: Sequence[int]) -> None:
        """Takes nothing."""

    wraps_itself.__wrapped__ = wraps_itself  # type: ignore[attr-defined]
    mine = type("Mine", (BlockPool,), {"touch_all_of_them": Mock(), "count": wraps_itself})
    assert Parts(block_pool=mine).block_pool is mine


def test_helpers_keep_their_names() -> None:
    parts = Parts(block_pool=WithHelpers)
    with Lab("simulated", num_blocks=12, block_size=4, parts=parts) as lab:
        lab.add(token_ids=range(9), max_tokens=3)
        lab.run()


@pytest.mark.parametrize("parts", EDITIONS.values(), ids=EDITIONS)
def test_the_editions_pass(parts: Parts) -> None:
    assert replace(parts) == parts


# -- overrides that cannot be called -----------------------------------------------------------------------------------


def too_few(self: Any, mapped: Sequence[Block], block: Block) -> None: ...
def too_many(self: Any, mapped: Any, block: Any, request: Any, link: int, more: int) -> None: ...
def asks_for_a_keyword(self: Any, mapped: Any, block: Any, request: Any, link: int, *, strict: bool) -> None: ...
def without_self() -> None: ...
async def asynchronous(self: Any, mapped: Any, block: Any, request: Any, link: int) -> None: ...
def yields(self: Any, mapped: Any, block: Any, request: Any, link: int) -> Iterator[None]:
    yield None


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        (too_few, "(self, mapped, block) cannot be called that way: too many positional arguments"),
        (
            too_many,
            "(self, mapped, block, request, link, more) cannot be called that way: missing a required argument",
        ),
        (
            asks_for_a_keyword,
            "(self, mapped, block, request, link, *, strict) cannot be called that way: missing a required",
        ),
        (staticmethod(too_many), "missing a required argument: 'link'"),
        (without_self, "() does not take self"),
        (asynchronous, "is async"),
        (yields, "contains yield"),
        (None, "Mine.merge_target is None"),
        (property(lambda self: None), "Mine.merge_target is a property"),
        (cached_property(lambda self: None), "is a property"),
        (partial(too_many, more=0), "is a functools.partial"),
    ],
)
def test_an_override_that_cannot_be_called_is_refused_with_both_signatures(override: object, reason: str) -> None:
    message = refusal(merge_policy=with_method(LateMerge, "merge_target", override))
    assert message.startswith("parts: Mine.merge_target") and reason in message
    assert message.endswith("; it overrides LateMerge.merge_target(self, mapped, block, request, link)")


def any_way(self: Any, *arguments: Any, **settings: Any) -> None: ...
def other_names(self: Any, these: Any, this: Any, by: Any, at: int = 0, *more: Any) -> None: ...
def of_no_object(mapped: Any, block: Any, request: Any, link: int) -> None: ...


def with_one_more(self: Any, mapped: Any, block: Any, request: Any, link: int, *, more: int) -> None: ...


@pytest.mark.parametrize(
    "override",
    [any_way, other_names, staticmethod(of_no_object), classmethod(other_names), partialmethod(with_one_more, more=1)],
)
def test_an_override_that_can_be_called_is_taken(override: object) -> None:
    parts = Parts(merge_policy=with_method(LateMerge, "merge_target", override)).overriding(EDITIONS["vllm"])
    with Lab("simulated", num_blocks=12, block_size=4, parts=parts, check=False) as lab:
        for _ in range(2):
            lab.add(token_ids=range(9), max_tokens=3)
        lab.run()
        assert lab.snapshot().requests[1].status == "finished"


def test_what_is_read_is_no_method_and_may_be_a_property() -> None:
    message = refusal(block_pool=with_method(BlockPool, "null_block", plain))
    assert "Mine.null_block(self, *arguments) is a method" in message
    Parts(block_pool=with_method(BlockPool, "null_block", property(lambda self: -1)))


def test_a_keyword_that_the_core_passes_and_an_optional_argument_count() -> None:
    class OwnOrder(TokenBudgetScheduler):
        def admit(self, request: Request, limit: int) -> int | None:  # type: ignore[override]
            return None

    class Evicts(BlockPool):
        def evict(self, block: Block) -> None:  # type: ignore[override]
            """Takes no reason."""

    assert "got an unexpected keyword argument 'is_first'" in refusal(scheduler=OwnOrder)
    assert "it overrides BlockPool.evict(self, block, reason='reused')" in refusal(block_pool=Evicts)


def test_a_part_that_cannot_be_made_is_refused() -> None:
    class OldPool(BlockPool):
        def __init__(self, num_blocks: int, hooks: Any, journal: Any) -> None:
            """As it was before the queue was a part."""

    class AsksForMore(LateMerge):
        def __init__(self, threshold: int) -> None:
            self.threshold = threshold

    assert "it overrides BlockPool.__init__(self, num_blocks, free_queue, hooks, journal)" in refusal(
        block_pool=OldPool
    )
    assert "missing a required argument: 'threshold'" in refusal(merge_policy=AsksForMore)


def test_a_queue_from_anywhere_needs_a_queues_methods() -> None:
    class Shelf:
        take = append = prepend = put_back = remove = insert_after = fault = plain

    message = refusal(free_queue=Shelf)
    assert message.endswith("Shelf is missing __len__, __contains__, __iter__")


def test_a_connector_is_held_against_its_contract() -> None:
    class Misspelt(FakeTier):
        def get_finnished(self, kv: object) -> tuple[set[int], set[int]]:
            return set(), set()

    class OtherWay(FakeTier):
        def start_load_kv(self, loads: Sequence[BlockTransfer]) -> None:  # type: ignore[override]
            """Where is the pool?"""

    with pytest.raises(
        ConfigError, match=r"external: Misspelt.get_finnished .* Connector; did you mean get_finished\?"
    ):
        Lab("simulated", num_blocks=12, block_size=4, external=Misspelt())
    with pytest.raises(ConfigError, match=r"external: OtherWay.start_load_kv\(self, loads\) cannot be called that way"):
        Lab("simulated", num_blocks=12, block_size=4, external=OtherWay())


# -- fields of Parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda **fields: Parts(**fields), lambda **fields: replace(LABENGINE, **fields)],
    ids=["Parts", "replace"],
)
def test_an_unknown_field_names_the_nearest(make: Callable[..., Parts]) -> None:
    with pytest.raises(ConfigError, match=r"^Parts has no field 'merge_polcy'; did you mean 'merge_policy'\?$"):
        make(merge_polcy=LateMerge)
    with pytest.raises(ConfigError, match=r"no field 'xyz'; it has name, scheduler, .*free_queue.*prefix_tree$"):
        make(xyz=LateMerge)


class OneGroup(VLLM.full_attention_group):  # type: ignore[misc, name-defined]
    """Changes nothing."""


@pytest.mark.parametrize(
    ("cls", "field"), [(LateMerge, "merge_policy"), (OneGroup, "full_attention_group"), (VllmBlockPool, "block_pool")]
)
def test_one_class_replaces_the_part_that_it_derives_from(cls: type, field: str) -> None:
    assert Parts(cls) == Parts(**{field: cls})
    with Lab("simulated", num_blocks=4, parts=cls) as lab, lab.fork(parts=cls) as fork:
        assert getattr(lab.parts, field) is getattr(fork.parts, field) is cls


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (("mine",), "by name, as in merge_policy=MyPolicy; got 'mine'"),
        ((LateMerge, VllmBlockPool), "by name"),
        ((int,), r"int must be .* \(Scheduler, .*labengine.Parts\(block_pool="),
        ((KVCacheGroup,), "could replace FullAttentionGroup or SlidingWindowGroup or StateGroup"),
    ],
)
def test_what_names_no_field_is_refused(classes: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Parts(*classes)
    if len(classes) == 1 and isinstance(classes[0], type):
        with pytest.raises(ConfigError, match=said):
            Lab("simulated", parts=classes[0])


def test_a_class_and_its_field_are_refused() -> None:
    with pytest.raises(ConfigError, match="merge_policy is given twice, as LateMerge"):
        Parts(LateMerge, merge_policy=LateMerge)
