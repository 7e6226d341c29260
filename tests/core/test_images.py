"""Images are keys of the blocks that they cover: from there on blocks are shared only with the same image."""

from __future__ import annotations

from typing import Any

import pytest

from labengine import ConfigError, GroupSpec, HashChain, Lab, Parts
from labengine.config import SamplingParams
from labengine.core.request import Image, Request
from labengine.core.vllm.hash_chain import VllmHashChain
from labengine.events import PrefixHit, RequestAdded

TOKENS = [*range(1, 7), *[0] * 6, *range(7, 12)]
"""Placeholders at positions 6 to 11: with blocks of four, in the second and in the third one."""


def found(lab: Lab, images: dict[int, tuple[str, int]] | None, tokens: list[int] = TOKENS) -> int:
    lab.add(token_ids=tokens, max_tokens=1, images=images)
    lab.run()
    assert lab.timeline is not None and lab.check() == []
    return lab.timeline.of_kind(PrefixHit)[-1].num_tokens


@pytest.mark.parametrize("edition", ["labengine", "vllm", "nano-vllm"])
def test_blocks_from_the_image_on_are_shared_with_the_same_image_alone(edition: str) -> None:
    with Lab("simulated", num_blocks=64, block_size=4, edition=edition) as lab:
        assert found(lab, {6: ("cat", 6)}) == 0
        assert found(lab, {6: ("cat", 6)}) == 16
        assert found(lab, {6: ("dog", 6)}) == 4
        assert found(lab, {7: ("cat", 5)}) == 4, "the same image in another place"
        assert found(lab, None) == 4
        assert found(lab, None) == 16


def test_a_later_image_does_not_change_the_blocks_before_it() -> None:
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        assert found(lab, {6: ("cat", 2), 8: ("dog", 4)}) == 0
        assert found(lab, {6: ("cat", 2), 8: ("cow", 4)}) == 8
        assert found(lab, {6: ("cat", 2)}) == 8


def test_in_two_groups_a_hit_ends_before_the_image() -> None:
    groups = [GroupSpec(4), GroupSpec(2, "sliding_window", 4)]
    with Lab("simulated", num_blocks=64, groups=groups) as lab:
        assert found(lab, {6: ("cat", 6)}) == 0
        assert found(lab, {6: ("dog", 6)}) == 4
        assert found(lab, {6: ("dog", 6)}) == 16


def test_the_keys_of_a_block_are_the_images_that_have_a_token_in_it() -> None:
    request = Request(0, list(range(20)), SamplingParams(), 0, 1, images=(Image(2, 5, "a"), Image(7, 1, "b")))
    assert request.block_keys(0, 4) == (("mm", "a", 2),)
    assert request.block_keys(4, 8) == (("mm", "a", -2), ("mm", "b", 3))
    assert request.block_keys(6, 10) == (("mm", "a", -4), ("mm", "b", 1)), "its last token counts too"
    assert request.block_keys(8, 12) == ()


def test_a_fork_has_the_images_of_its_parent_and_an_answer_too() -> None:
    with Lab("simulated", num_blocks=64, block_size=4) as lab:
        lab.add(token_ids=TOKENS, n=2, max_tokens=4, images={6: ("cat", 6)})
        lab.step()
        lab.branch("A")
        assert {request.images for request in lab.session.stepper.engine.requests.values()} == {(Image(6, 6, "cat"),)}
        with lab.fork() as other:
            assert other.snapshot() == lab.snapshot()
        names: dict[str, Any] = {}
        exec(lab.to_code(), names)
        assert names["lab"].snapshot() == lab.snapshot()
        assert "images={6: ('cat', 6)}" in lab.to_code().replace('"', "'")
        lab.run()
        assert lab.check() == []


class Blind(HashChain):
    """Leaves the images out."""

    def keyed(self, parent_hash: bytes, keys: object) -> bytes:
        return parent_hash


def test_a_chain_that_forgets_them_is_found_out() -> None:
    said_in_scope = "image 'cat' at position 6, but request 1 has image 'dog'"

    def rules(edition: str) -> set[str]:
        with Lab("simulated", num_blocks=64, block_size=4, edition=edition, parts=Parts(hash_chain=Blind)) as lab:
            lab.session.violation_warnings.is_silent = True
            for name in ("cat", "dog"):
                lab.add(token_ids=TOKENS, max_tokens=1, images={6: (name, 6)})
                lab.run()
            said = {violation.rule: violation.message for violation in lab.violations}
            assert "with different images" in said.get("read", "with different images")
            assert said_in_scope in said.get("scope", said_in_scope)
            return {violation.rule for violation in lab.violations}

    assert rules("vllm") == {"scope", "read"}, "it trusts the hash"
    assert rules("labengine") == set(), "it compares the prefix, images too"


@pytest.mark.parametrize(
    ("position", "chain", "rules"), [(7, VllmHashChain, set()), (5, Blind, {"scope", "named", "read"})]
)
def test_an_image_counts_as_far_as_a_hit_reaches_into_a_block(
    position: int, chain: type[HashChain], rules: set[str]
) -> None:
    """The hit is of 6 tokens, and its last state in the block of tokens 4 to 7."""
    groups, parts = [GroupSpec(4, "state"), GroupSpec(2)], Parts(hash_chain=chain)
    with Lab("simulated", num_blocks=16, groups=groups, edition="vllm", parts=parts) as lab:
        lab.session.violation_warnings.is_silent = True
        for images in (None, {position: ("dog", 1)}):
            lab.add(token_ids=TOKENS[:8], max_tokens=1, images=images)
            lab.run()
        assert lab.timeline is not None and lab.timeline.of_kind(PrefixHit)[-1].num_tokens == 6
        assert {violation.rule for violation in lab.check()} == rules
        assert all("registered with no image" in one.message for one in lab.violations if one.rule == "scope")


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([6], "images must be a mapping"),
        ({6: "cat"}, r"images\[6\] must be \(identifier, length\)"),
        ({-1: ("cat", 2)}, "a position in images must be at least 0"),
        ({6: ("cat", 0)}, r"the length of images\[6\] must be at least 1"),
        ({6: (5, 1)}, r"the identifier of images\[6\] must be a string"),
        ({16: ("cat", 2)}, "'cat' ends at token 18, but the prompt has 17"),
        ({6: ("cat", 3), 8: ("dog", 1)}, "'cat' at position 6 overlaps the one at 8"),
    ],
)
def test_images_that_cannot_be_placed_change_nothing(images: Any, words: str) -> None:
    with Lab("simulated", num_blocks=64, block_size=4) as lab, pytest.raises(ConfigError, match=words):
        lab.add(token_ids=TOKENS, images=images)
    assert not lab.snapshot().requests


def test_why_names_the_images_that_keep_blocks_apart() -> None:
    cat, dog = {6: ("<cat>", 6)}, {6: ("dog", 6)}
    for first, second, words in (
        (cat, dog, "A has the image “<cat>” at position 6, and B has “dog” there"),
        (cat, None, "A has the image “<cat>” at position 6, and B has none there"),
        (None, dog, "B has the image “dog” at position 6, and A has none there"),
    ):
        with Lab("simulated", num_blocks=64, block_size=4) as lab:
            found(lab, first), found(lab, second)
            assert words in lab.why(request=1, about="hit").answer
            assert not lab.timeline or [event.images for event in lab.timeline.of_kind(RequestAdded)] == [
                tuple((start, length, name) for start, (name, length) in (images or {}).items())
                for images in (first, second)
            ]


def test_a_part_of_an_image_in_a_block_is_what_counts_there() -> None:
    """The same identifier in the same place: a block inside both is shared, whatever the lengths are said to be."""
    with Lab("simulated", num_blocks=64, block_size=4, edition="vllm") as lab:
        assert found(lab, {6: ("cat", 6)}) == 0
        assert found(lab, {6: ("cat", 2)}) == 8
        assert lab.violations == []
