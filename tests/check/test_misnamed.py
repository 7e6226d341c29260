"""A wrong read says what the hash of the block stands for, and what its KV is, where that is known."""

from __future__ import annotations

import pytest

import labengine
from labengine import Drafts, FixedDrafts, Parts
from labengine.events import BlockCached, ViolationFound
from labengine.lab import Lab
from labengine.session.violation_warnings import ViolationWarning
from labengine_widgets.pictures.ascii import block_map
from labengine_widgets.pictures.svg import OTHER, block_map_svg


def reads(lab: Lab) -> list[ViolationFound]:
    """The wrong reads that were found."""
    assert lab.timeline is not None
    return [found for found in lab.timeline.of_kind(ViolationFound) if found.rule == "read"]


def hashes(lab: Lab, request_id: int) -> list[bytes]:
    """The hashes of a request's full blocks, in order."""
    assert lab.timeline is not None
    found = {e.index: e.block_hash for e in lab.timeline.of_kind(BlockCached) if e.request_id == request_id}
    return [found[index] for index in sorted(found)]


def test_a_load_that_brings_other_kv_is_named_by_both_contents() -> None:
    with labengine.bug("sglang-27444").broken() as lab:
        one, other = hashes(lab, 0)[:2], hashes(lab, 1)[:2]
        assert [found.misnamed for found in reads(lab)] == [((1, 0, one[0], other[0]),), ((2, 0, one[1], other[1]),)]
        assert {violation.misnamed for violation in lab.violations} == {found.misnamed for found in reads(lab)}
        struck = '<tspan text-decoration="line-through">r</tspan> p'
        saved, plain = block_map_svg(lab.snapshot(), timeline=lab.timeline), block_map_svg(lab.snapshot())
        assert struck in saved and f">{len(lab.violations)} violations<" in saved
        assert struck not in plain
        assert f" lost · {len(lab.violations)} violations" in block_map(lab.snapshot(), lab.timeline)


def test_a_saved_picture_shows_no_token_that_a_wrongly_accepted_guess_has_not_computed() -> None:
    class AcceptsAll(Drafts):
        def num_accepted(self, drafts: tuple[int, ...], sampled: tuple[int, ...]) -> int:
            return len(drafts)

    drafts = FixedDrafts([*range(6), 28122, 32809, 37496, 99, 46870, 1536], 4)
    with Lab("simulated", num_blocks=16, block_size=4, speculation=drafts, parts=Parts(drafts=AcceptsAll)) as lab:
        lab.add(token_ids=[11, 12, 13, 14, 15, 16], max_tokens=12)
        with pytest.warns(ViolationWarning):
            lab.step(3)
        assert lab.snapshot().blocks[2].token_ids[1] == 42183
        assert OTHER in block_map_svg(lab.snapshot(), timeline=lab.timeline), "its keys and values are those of 99"
        assert OTHER not in block_map_svg(lab.snapshot())


def test_kv_of_two_writers_is_that_of_no_content() -> None:
    with labengine.bug("atlas-1193").broken() as lab:
        assert {held for found in reads(lab) for _, _, _, held in found.misnamed} == {b""}


def test_kv_of_another_session_that_a_tier_brings_is_found_by_what_was_saved() -> None:
    with labengine.bug("pegaflow-450").broken() as lab:
        names = [name for found in reads(lab) for name in found.misnamed]
        assert len(names) == 2 and all(held and held != claimed for _, _, claimed, held in names)
        assert [held for _, _, _, held in names] == hashes(lab, 0)[:2]


@pytest.mark.parametrize("id", ["vllm-44701", "vllm-30931", "nano-vllm-243", "vllm-12621"])
def test_a_hash_of_two_contents_claims_nothing(id: str) -> None:
    with labengine.bug(id).broken() as lab:
        assert reads(lab) and not any(found.misnamed for found in reads(lab))


@pytest.mark.parametrize("id", ["mini-sglang-142", "sglang-jax-994", "vllm-47728"])
def test_a_block_that_another_request_got_holds_what_it_says(id: str) -> None:
    with labengine.bug(id).broken() as lab:
        assert reads(lab) and not any(found.misnamed for found in reads(lab))
