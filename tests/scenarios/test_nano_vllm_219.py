"""nano-vllm-219: the numbers that are known of the report, the fix, and the engine before both."""

from __future__ import annotations

import labengine
from labengine import events as ev
from labengine.lab import Lab
from labengine.scenarios import bug
from labengine.scenarios.nano_vllm_243_own_tokens import colliding_prompts

SCENARIO = bug("nano-vllm-219")

ALL = ("nano-vllm", "nano-vllm+243", "nano-vllm-2025-07", "labengine")


def test_two_equal_prompts_of_14() -> None:
    table = SCENARIO.table()
    assert [table[name]["used blocks"] for name in ALL] == [8, 5, 5, 5]
    assert [table[name]["peak while computing"] for name in ALL] == [8, 8, 5, 8]
    assert [table[name]["lost blocks"] for name in ALL] == [3, 0, 0, 0]
    assert [table[name]["unique hashes"] for name in ALL] == [3, 3, 3, 3]


def test_the_script() -> None:
    table = SCENARIO.experiments["script"].table()
    assert [table[name]["used blocks"] for name in ALL[:2]] == [8, 5]
    assert [table[name]["unique hashes"] for name in ALL[:2]] == [3, 3]
    assert [table[name]["peak while computing"] for name in ALL[:2]] == [8, 8]


def test_reuse_is_lost_while_the_blocks_are_alive() -> None:
    table = SCENARIO.experiments["lost reuse"].table()
    assert [table[name]["full blocks that D finds"] for name in ALL] == [0, 3, 3, 3]
    assert [table[name]["full blocks that A holds"] for name in ALL] == [3, 3, 3, 3]


def test_merging_lowers_neither_the_peak_nor_the_compute() -> None:
    table = SCENARIO.experiments["trade-off"].table()
    assert [table[name]["peak while computing"] for name in ALL] == [40, 40, 12, 40]
    assert [table[name]["blocks after the step"] for name in ALL] == [40, 12, 12, 12]
    assert [table[name]["tokens saved"] for name in ALL] == [0, 0, 448, 0]


def test_a_dangling_entry_is_not_to_be_merged_into() -> None:
    experiment = SCENARIO.experiments["dangling entry"]
    table = experiment.table()
    assert dict(table["nano-vllm+243"]) == {"rules broken": 0, "wrong reads": 0}
    assert table["no alive check"]["wrong reads"] == 1
    with experiment.played("no alive check") as lab:
        assert {v.rule for v in lab.violations} == {"partition", "held", "ref_count", "read"}
        shared = set(lab.snapshot().requests[1].block_tables[0]) & set(lab.snapshot().requests[2].block_tables[0])
        assert shared == {0, 1}


def test_at_six_bits_only_comparing_prefixes_separates_them() -> None:
    table = SCENARIO.experiments["collision"].table()
    assert dict(table["nano-vllm+243"]) == {"merged blocks": 1, "wrong reads": 1}
    assert dict(table["labengine"]) == {"merged blocks": 0, "wrong reads": 0}
    one, other = colliding_prompts()
    assert one[:4] != other[:4] and one[4:] == other[4:]


def test_the_first_wrong_event_is_the_first_overwrite() -> None:
    with SCENARIO.broken() as lab:
        first = SCENARIO.first_wrong(lab)
        assert first is not None and isinstance(first.event, ev.BlockCached)
        assert (first.event.request_id, first.event.block_id, first.event.mapped) == (1, 4, (4,))
        assert lab.timeline is not None
        lost = [lab.timeline.state(first.moment + i).snapshot().lost_blocks for i in (0, 1)]
        assert lost == [(), (0,)]
        assert not lab.violations
    with SCENARIO.fixed() as lab:
        assert SCENARIO.first_wrong(lab) is None


def test_the_verdict() -> None:
    verdict = labengine.bug("nano-vllm-219").verdict()
    assert (verdict.reproduced, verdict.fixed, verdict.claim_holds) == (True, True, True)
    assert (verdict.before["used blocks"], verdict.after["used blocks"]) == (8, 5)
    assert len(verdict.findings) == 5
    assert "from 40 to 12" in verdict.findings[2] and "520 tokens computed instead of 72" in verdict.findings[2]


def test_on_the_real_model_equal_prompts_share_in_the_step_that_computes_them() -> None:
    """The older engine reads, in one forward pass, KV that the same pass has just written: the text is right."""
    prompt = "Two people ask the very same question at the very same moment. The"
    with Lab("smollm2", num_blocks=16, block_size=4, edition="nano-vllm-2025-07") as lab:
        shared = lab.generate([prompt, prompt], max_tokens=6, ignore_eos=True)
        assert lab.stats().hit_rate > 0 and lab.stats().num_steps == 6
        lab.reset()
        [alone] = lab.generate([prompt], max_tokens=6, ignore_eos=True)
        assert [output.token_ids for output in shared] == [alone.token_ids] * 2
        assert not lab.violations
