"""Scenarios of the runner on the tiny model: which tokens and which slots go wrong, and which do not."""

from __future__ import annotations

import torch

from labengine import Lab
from labengine.events import BlocksLoaded, SlotsWritten, TokenSampled
from labengine.scenarios import bug
from labengine.scenarios.scenario import Scenario
from labengine.scenarios.tiny_model import tiny_model, tokens_alone

MODEL = str(tiny_model())


def generated(scenario: Scenario, column: str) -> list[list[int]]:
    """Return the generated tokens of each request."""
    with scenario.played(column) as lab:
        return [list(r.token_ids[r.num_prompt_tokens :]) for r in lab.snapshot().requests.values()]


def wrong_requests(id: str, column: str) -> set[int]:
    """Return the requests whose tokens are not those of the fixed column."""
    scenario = bug(id)
    pairs = zip(generated(scenario, column), generated(scenario, scenario.columns[1].name), strict=True)
    return {number for number, (tokens, right) in enumerate(pairs) if tokens != right}


def changed_slots(id: str, num_steps: int) -> list[int]:
    """Return the slots whose keys differ between the broken and the fixed column, in any layer, after num_steps."""
    scenario = bug(id)
    keys = []
    for column in scenario.columns[:2]:
        with scenario.played(column.name) as lab:
            lab.rewind(num_steps)
            blocks = [lab.kv(block_id, 0)[0] for block_id in range(lab.config.num_blocks)]
            keys.append(torch.cat(blocks).flatten(1))
    return (~torch.isclose(*keys)).any(1).nonzero().flatten().tolist()


def test_the_tiny_model_says_different_things_and_the_same_each_time() -> None:
    first = tokens_alone(MODEL, (5, 9, 14), 12)
    with Lab(MODEL, num_blocks=16, block_size=4, device="cpu") as lab:
        assert tuple(lab.generate([[5, 9, 14]], max_tokens=12, ignore_eos=True)[0].token_ids) == first
    assert tokens_alone(MODEL, (9, 5, 14), 12) != first and len(set(first)) > 6


def test_padding_slot_changes_the_last_slot_alone() -> None:
    """Step 3 is the first decode: block 11, offset 3 of 4."""
    assert changed_slots("vllm-43810", 2) == []
    assert changed_slots("vllm-43810", 3) == [47]
    assert wrong_requests("vllm-43810", "from the end") == {3, 4}, "D, and E which hits D's block"
    assert bug("vllm-43810").measured("unpadded")["wrong tokens"] == 0


def test_reserved_page_makes_every_decode_say_token_0() -> None:
    scenario = bug("sglang-32477")
    tokens, right = generated(scenario, "writes"), generated(scenario, "skips")
    assert [request[1:] for request in tokens] == [[0] * 5] * 3
    assert [request[0] for request in tokens] == [request[0] for request in right], "prompts are not padded"
    assert scenario.measured("labengine")["wrong tokens"] == 0


def test_a_stale_slot_is_that_of_the_request_that_left() -> None:
    """D's last written position is 8, in slot 0 of its third block; step 5 computes E's prompt, step 6 decodes."""
    scenario = bug("diffulex-44")
    assert wrong_requests("diffulex-44", "stale") == {4}
    with scenario.fixed() as lab:
        assert lab.timeline is not None
        writes = lab.timeline.of_kind(SlotsWritten)
        ((block_id, offset, _),) = next(e.runs for e in writes if (e.request_id, e.start) == (3, 8))
    stale = 4 * block_id + offset
    assert stale not in changed_slots("diffulex-44", 5), "E's prompt has just been written, without a graph"
    assert stale in changed_slots("diffulex-44", 6)


def test_a_missing_column_is_read_in_the_next_rows_table() -> None:
    """A and B need column 4 from position 16 on; the third request, of 5 tokens and 9 more, needs four columns."""
    scenario = bug("nano-vllm-190")
    assert wrong_requests("nano-vllm-190", "for prompts") == {0, 1}
    assert generated(scenario, "cleared") == generated(scenario, "for contexts")
    first = scenario.first_wrong(scenario.broken())
    assert first is not None and isinstance(first.event, TokenSampled) and first.event.position == 17


def test_tables_of_zeros_hurt_misses_and_no_table_hurts_hits_too() -> None:
    assert wrong_requests("vllm-7018", "zeros") == {2}
    assert wrong_requests("vllm-7018", "no table") == {1, 2}


def test_a_store_that_does_not_wait_keeps_what_the_blocks_held_before() -> None:
    """The pool of a new lab is zeros; B, which loads them, is wrong from its first token on, and A is not."""
    scenario = bug("vllm-45704")
    assert wrong_requests("vllm-45704", "own stream") == {1}
    with scenario.broken() as lab, scenario.fixed() as fixed:
        (loaded,) = fixed.timeline.of_kind(BlocksLoaded) if fixed.timeline is not None else ()
        for _, _, block_id, _ in loaded.transfers:
            assert not lab.kv(block_id, 0)[0].any() and fixed.kv(block_id, 0)[0].any()
    first = scenario.first_wrong(scenario.broken())
    assert first is not None and isinstance(first.event, TokenSampled) and first.event.position == 11
