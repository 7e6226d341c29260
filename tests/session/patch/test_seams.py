"""Seams by name: the list, the meaning of names, and refusals of wrong ones."""

from __future__ import annotations

import pytest

from labengine.config import ConfigError
from labengine.core.block_pool import BlockPool
from labengine.core.editions import EDITIONS, LABENGINE, NANO_VLLM_2025_07, VLLM
from labengine.core.part_methods import definers
from labengine.core.parts import Parts
from labengine.core.seams import DECIDED_BY, owners
from labengine.session.patch.seams import find_seam, seams_in_use

FULL = ("full",)
BOTH = ("full", "sliding_window")


def found(text: str, parts: Parts = LABENGINE, kinds: tuple[str, ...] = FULL) -> tuple[str, tuple[str, ...]]:
    """The seam's full name, and the fields whose classes have it."""
    seam = find_seam(text, parts, kinds)
    return str(seam), seam.fields


def test_a_method_is_found_by_its_name_and_behind_every_class_that_has_it() -> None:
    expected = ("LateMerge.merge_target", ("merge_policy",))
    for text in ("merge_target", "LateMerge.merge_target", "MergePolicy.merge_target"):
        assert found(text) == expected
    assert found("LateMergeComparingPrefixes.merge_target") == expected, "the class in use, which inherits it"


def test_properties_and_class_attributes_are_seams_too_and_private_names_are_not() -> None:
    names = {str(seam) for seam in seams_in_use(LABENGINE, BOTH)}
    assert {"BlockPool.num_free", "BlockPool.null_block", "SlidingWindowGroup.window", "HashChain.link"} <= names
    assert not any(name.rpartition(".")[2].startswith("_") for name in names)


@pytest.mark.parametrize("parts", EDITIONS.values(), ids=str)
def test_every_deciding_method_of_a_part_is_a_seam(parts: Parts) -> None:
    """The decider's name in Why? can be patched by that name, if the parts have it."""
    known = {seam.name for seam in seams_in_use(parts, (*BOTH, "state"))}
    of_parts = {"Connector", "Parts", "Engine", "Transfers", "Watch"} ^ owners(parts).keys()
    for names in DECIDED_BY.values():
        for part, _, name in (text.partition(".") for text in names):
            if part in of_parts and part in owners(parts) and any(definers(cls, name) for cls in owners(parts)[part]):
                assert name in known, f"{part}.{name}"


def test_an_editions_own_definition_is_the_one_to_edit() -> None:
    assert found("null_block", VLLM)[0] == "VllmBlockPool.null_block"
    assert found("BlockPool.touch", VLLM)[0] == "BlockPool.touch"
    assert found("add_hit", NANO_VLLM_2025_07)[0] == "OwnTokensGroup.add_hit"


def test_a_method_of_both_kinds_of_group_is_one_seam_and_two_definitions_are_two() -> None:
    assert found("cached_block", kinds=BOTH) == (
        "KVCacheGroup.cached_block",
        ("full_attention_group", "sliding_window_group"),
    )
    assert found("cached_block") == ("KVCacheGroup.cached_block", ("full_attention_group",))
    assert found("find_hit") == ("FullAttentionGroup.find_hit", ("full_attention_group",)), "no window group here"
    with pytest.raises(
        ConfigError, match=r"several parts: .*FullAttentionGroup.find_hit or SlidingWindowGroup.find_hit\?"
    ):
        found("find_hit", kinds=BOTH)
    assert found("SlidingWindowGroup.find_hit", kinds=BOTH)[1] == ("sliding_window_group",)


def test_a_name_that_several_parts_have_is_refused_with_the_candidates() -> None:
    with pytest.raises(ConfigError, match=r"TokenBudgetScheduler.admit or KVCacheManager.admit\?"):
        found("admit")
    assert found("Scheduler.admit")[0] == "TokenBudgetScheduler.admit"
    assert found("KVCacheManager.admit")[0] == "KVCacheManager.admit"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("merge_traget", r"did you mean LateMerge.merge_target\?"),
        ("BlockPool.tuch", r"did you mean BlockPool.touch\?"),
        ("FreeQueue.touch", r"did you mean BlockPool.touch\?"),
        ("frobnicate", "%lab seams lists them all"),
        ("_put_back", "no seam"),
        ("__init__", "no seam"),
        ("", "no seam"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        found(text)


def test_a_seam_has_source_place_and_reason() -> None:
    method = find_seam("touch", LABENGINE, FULL).method
    assert method.owner is BlockPool and method.source.startswith("def touch(self, block_ids")
    assert method.line > 1 and method.reason.startswith("Add one reference")


def test_every_seam_of_every_edition_has_a_text() -> None:
    for parts in EDITIONS.values():
        for seam in seams_in_use(parts, BOTH):
            assert not seam.method.source.startswith("# Python has no source"), str(seam)
