"""Edition vllm also registers where a prompt ends inside a block that is larger than a link of the hash chain."""

from __future__ import annotations

from driving import recorded
from labengine.core.request import Request
from labengine.events import BlockCached, BlockEvicted
from workbench import Workbench, full

PROMPT = list(range(100, 108))


def core_of(edition: str = "vllm") -> Workbench:
    """One group with blocks of four, hashed in links of two."""
    return Workbench([full(4)], num_blocks=8, edition=edition, hash_block_size=2)


def keys_of(core: Workbench, request: Request) -> list[int]:
    """Keys per block of the request's table."""
    return [len(core.pool.blocks[block_id].keys) for block_id in request.block_tables[0]]


def test_the_tail_is_the_last_complete_link_before_the_last_token() -> None:
    for num_tokens, keys in ((4, [2]), (5, [1, 0]), (6, [1, 0]), (7, [1, 1]), (8, [1, 2])):
        core = core_of()
        assert keys_of(core, core.run(PROMPT[:num_tokens])) == keys, f"a prompt of {num_tokens}"


def test_no_other_edition_has_such_keys() -> None:
    core = core_of("labengine")
    assert keys_of(core, core.run(PROMPT[:7])) == [1, 0]


def test_nor_has_a_chain_of_links_as_large_as_the_blocks() -> None:
    core = Workbench([full(4)], num_blocks=8, edition="vllm")
    assert keys_of(core, core.run(PROMPT[:7])) == [1, 0]


def test_the_key_is_reported_as_that_of_no_full_block() -> None:
    core = core_of()
    events = recorded(core.hooks)
    request = core.run(PROMPT[:7])
    cached = [event for event in events if isinstance(event, BlockCached)]
    assert [(event.index, event.is_full) for event in cached] == [(0, True), (1, False)]
    assert core.pool.blocks[request.block_tables[0][1]].token_ids == ()


def test_it_makes_no_hit_longer() -> None:
    core = core_of()
    core.cache(PROMPT[:7])
    assert core.hit(PROMPT[:7]).num_tokens == 4


def test_it_decides_where_the_block_goes_when_it_is_freed() -> None:
    """A block with a key counts as cached, and outlives those without."""
    for edition, queue in (("vllm", [3, 4, 5, 6, 7, 8, 2, 1]), ("labengine", [1, 2, 3, 4, 5, 6, 7, 0])):
        core = core_of(edition)
        core.cache(PROMPT[:7])
        assert core.queue == queue


def test_a_block_that_fills_up_is_known_by_its_full_content_first() -> None:
    core = core_of()
    events = recorded(core.hooks)
    request = core.run(PROMPT[:7])
    core.decode(request, 107)
    block = core.pool.blocks[request.block_tables[0][1]]
    assert block.prefix is not None
    assert (block.prefix.num_links, block.token_ids) == (4, (104, 105, 106, 107))
    assert [event.reason for event in events if isinstance(event, BlockEvicted)] == ["replaced"]
    assert core.hit([*PROMPT, 0]).num_tokens == 8


def test_each_of_two_equal_prompts_registers_its_own_tail() -> None:
    core = core_of()
    one, two = core.run(PROMPT[:7]), core.run(PROMPT[:7])
    assert one.block_tables[0][0] == two.block_tables[0][0]
    tails = (one.block_tables[0][1], two.block_tables[0][1])
    assert tails in core.pool.prefix_map.values()
