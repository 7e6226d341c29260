"""nano-vllm-71: the original is right, and the proposed fix breaks it."""

from __future__ import annotations

from random import Random

import pytest

import labengine
from labengine import events as ev
from labengine.lab import Lab
from labengine.scenarios import bug
from labengine.scenarios.nano_vllm_71_off_by_one import slots_by_position
from labengine.scenarios.scenario import symptom

SCENARIO = bug("nano-vllm-71")


def test_where_the_kv_goes() -> None:
    table = SCENARIO.table()
    assert dict(table["PR 71"]) == {"positions written": 12, "in a wrong slot": 3, "own slots never written": 1}
    assert dict(table["original"]) == {"positions written": 12, "in a wrong slot": 0, "own slots never written": 0}


def test_claim_1_position_3_goes_to_slot_7() -> None:
    table = SCENARIO.experiments["claim 1"].table()
    assert list(table["original"].values()) == [2, 3, 4, 6, 7, 8]
    assert list(table["PR 71"].values()) == [2, 7, 4, 6, 11, 8]


def test_claim_2_the_hashed_block_has_a_hole() -> None:
    experiment = SCENARIO.experiments["claim 2"]
    table = experiment.table()
    assert dict(table["PR 71"]) == {"tokens that B finds": 4, "of them never written": 1}
    assert dict(table["original"]) == {"tokens that B finds": 4, "of them never written": 0}
    with experiment.played("PR 71") as lab:
        assert {1} <= {i for v in lab.violations if v.rule == "read" for i in v.request_ids}
    with experiment.played("original") as lab:
        assert not lab.violations


def test_the_256_token_case() -> None:
    table = SCENARIO.experiments["256 tokens"].table()
    assert list(table["original"].values()) == [255, 256, 0]
    assert list(table["PR 71"].values()) == [511, 256, 1]


@pytest.mark.parametrize("num_blocks_filled", [1, 2, 3])
def test_a_prompt_that_fills_its_blocks_ends_with_an_assertion(num_blocks_filled: int) -> None:
    for column, ends in (("PR 71", True), ("original", False)):
        with SCENARIO.lab(column) as lab:
            lab.add(token_ids=range(4 * num_blocks_filled), max_tokens=4)
            lab.step()
            assert symptom(lab.step).startswith("AssertionError") is ends


def test_the_first_wrong_event_is_the_first_wrong_write() -> None:
    with SCENARIO.broken() as lab:
        first = SCENARIO.first_wrong(lab)
    assert first is not None and isinstance(first.event, ev.SlotsWritten)
    assert (first.event.start, first.event.runs) == (3, ((1, 3, 1),))
    assert "position 3 goes to slot 7" in first.sentence
    with SCENARIO.fixed() as lab:
        assert SCENARIO.first_wrong(lab) is None


def test_the_verdict() -> None:
    verdict = labengine.bug("nano-vllm-71").verdict()
    assert (verdict.reproduced, verdict.fixed, verdict.claim_holds) == (True, True, False)
    assert len(verdict.findings) == 3
    assert "position 3 goes to slot 7 instead of 3" in verdict.findings[0]


def test_random_requests_are_clean_with_the_original_and_with_the_pull_request_are_not() -> None:
    """Content-checked by the watch: 40 random pools each."""
    assert sum(_is_clean("original", seed) for seed in range(40)) == 40
    assert sum(_is_clean("PR 71", seed) for seed in range(40)) <= 4


def _is_clean(column: str, seed: int) -> bool:
    rng = Random(seed)
    with Lab("simulated", num_blocks=24, block_size=4, parts=SCENARIO.lab(column).parts) as lab:
        for _ in range(rng.randint(1, 4)):
            prompt = [rng.randrange(2) for _ in range(rng.randint(1, 12))]
            lab.add(token_ids=prompt, max_tokens=rng.randint(4, 12))
        return not symptom(lab.run) and not lab.violations


def test_every_position_is_in_its_own_slot_at_every_block_size() -> None:
    for block_size in range(2, 9):
        with Lab("simulated", num_blocks=16, block_size=block_size, edition="nano-vllm-2025-07") as lab:
            lab.add(token_ids=range(3), max_tokens=30)
            lab.run()
            assert slots_by_position(lab) == {position: position for position in range(32)}


def test_on_the_real_model_the_first_wrong_word_leads_back_to_the_slot() -> None:
    found = SCENARIO.corruption("smollm2")
    assert found is not None and found.cause is not None
    assert found.tokens[0] != found.tokens[1] and found.texts.num_differing == 1
    assert found.cause.rule == "read" and found.cause.block_ids == (0,)
    assert found.cause.first_event is not None and found.cause.first_event < found.moment
    assert found.sentence in str(found) and "position 3" in found.sentence
    assert SCENARIO.corruption("simulated") is None
    outputs = found.texts
    first_difference = outputs.first_difference(0)
    assert first_difference is not None and 0 < first_difference[0] < 10
    with Lab("smollm2", num_blocks=16, block_size=4) as lab:
        [right] = lab.generate(["Once upon a"], max_tokens=32, ignore_eos=True)
    assert outputs.texts[1] == (right.text,) != outputs.texts[0]


def test_outputs_are_the_texts_of_both_labs() -> None:
    """A simulated model's words do not depend on what it reads."""
    outputs = SCENARIO.outputs("simulated")
    with SCENARIO.fixed() as lab:
        lab.run()
        assert outputs.texts == ((lab.output(0).text,),) * 2 and outputs.num_differing == 0
