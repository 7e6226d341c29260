"""Scenarios of the prefix cache: their figures, derived by hand or as the report gives them."""

from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.scenarios import bug
from labengine.scenarios.vllm_12621_predictable_hash import (
    VOCABULARY,
    BuiltinHash,
    colliding_block,
    num_colliding_starts,
)

FIGURES = {
    # 3 + 3 tokens, then 1 + 1; or A's 1, and B's 4 once more. One token further: the step fails, or B computes 5 more.
    ("minivllm-75", ""): {"preemptions": (1, 0), "tokens computed": (11, 8), "requests finished": (2, 2)},
    ("minivllm-75", "one token further"): {
        "preemptions": (1, 1),
        "tokens computed": (11, 14),
        "steps ended by an error": (1, 0),
        "requests finished": (0, 2),
    },
    # 4 + 9 and 9, as upstream's scheduler at 812eb1c; pull request 210 gives 256 + 465 = 721.
    ("nano-vllm-207", ""): {"end of the computed positions": (13, 9), "steps ended by an error": (1, 0)},
    ("nano-vllm-207", "465 tokens"): {"end of the computed positions": (721, 465)},
    ("nano-vllm-114", ""): {"tokens found": (8, 4, 7), "tokens computed": (0, 4, 1), "rules broken": (1, 0, 1)},
    ("lmcache-3322", ""): {"tokens loaded": (8, 4), "tokens computed": (0, 4), "rules broken": (1, 0)},
    # As upstream's block manager at f64d821 and at 9fa256a.
    ("nano-vllm-f64d821", ""): {
        "tokens that X|Y|z finds": (4, 4, 4),
        "tokens that Y|z finds": (4, 0, 0),
        "requests that misread": (1, 0, 0),
    },
    # One block in common is four links of the chain, and so four blocks of the tier could be found; A has two.
    ("pegaflow-450", ""): {"tokens loaded": (16, 0), "requests that misread": (1, 0)},
    # nano-vLLM: 9 + 1 prompt tokens and a decode of both, as upstream at 44a51af; without sharing 9 + 9, and the same.
    ("nano-vllm-208", ""): {
        "tokens that B finds": (8, 4, 8, 0),
        "of them not yet computed": (8, 4, 8, 0),
        "requests that misread": (1, 0, 0, 0),
        "tokens computed": (11, 15, 12, 20),
    },
    # A's positions 6 and 7 are computed in the step in which B is admitted, as upstream at 44a51af.
    ("nano-vllm-208", "a prompt that is cut"): {
        "tokens that B finds": (8, 8),
        "of them not yet computed": (2, 0),
        "requests that misread": (0, 0),
    },
    # 20 tokens computed; of the two blocks of the next chunk B takes the last one.
    ("vllm-43569", ""): {
        "preemptions": (1, 1, 1, 1),
        "tokens that A finds when it comes back": (24, 20, 20, 0),
        "requests that misread": (1, 0, 0, 0),
    },
    # A's first block, of three prompt tokens and one of the answer.
    ("tokenspeed-976", ""): {"tokens that B finds": (4, 0), "requests that misread": (1, 0)},
    # The first block alone, as the scheduler of vLLM 0.30.0 finds it.
    ("vllm-44701", ""): {
        "tokens that B finds": (4, 0),
        "tokens that C finds": (8, 8),
        "requests that misread": (2, 0),
    },
    ("vllm-30931", ""): {"tokens that B finds": (8, 0, 0), "requests that misread": (1, 0, 0)},
    # Both engines have both adapters: two requests with one full block each.
    ("vllm-30931", "shared tier"): {
        "tokens found of the same adapter": (8, 8, 0),
        "tokens found of another adapter": (0, 0, 8),
    },
    ("vllm-9744", ""): {"resets done": (0, 0), "tokens that B finds": (8, 0), "requests that misread": (1, 0)},
    ("vllm-9744", "reset"): {"resets done": (1, 1), "tokens that B finds": (0, 0), "requests that misread": (0, 0)},
    ("vllm-9744", "reset while running"): {
        "resets done": (0, 0),
        "tokens that B finds": (8, 0),
        "requests that misread": (1, 0),
    },
    ("vllm-12621", ""): {"tokens that B finds": (24, 0, 24), "requests that misread": (1, 0, 1)},
    ("nano-vllm-243", ""): {"merged blocks": (1, 0), "wrong reads": (1, 0)},
    ("vllm-42656", ""): {"warm blocks evicted": (4, 0), "tokens found of 16": (0, 16)},
    ("vllm-42656", "at once"): {"warm blocks evicted": (4, 0), "tokens found of 16": (0, 16)},
    # The report: without block 1 a look-up finds 0 blocks, without block 3 it finds 2.
    ("inference-sim-704", ""): {"blocks found": (0, 2), "cached and out of reach": (2, 0)},
    # Two groups of six cached blocks lose four: 6 - 4 of one and 6 of the other. A hit ends where both have blocks.
    ("inference-sim-704", "order of groups"): {
        "blocks left in the full group": (6, 2),
        "blocks left in the window group": (2, 6),
        "tokens found": (8, 8),
    },
    ("mini-sglang-142", ""): {"rules broken": (3, 0), "requests that misread": (1, 0)},
    ("mini-sglang-52", ""): {"rules broken": (3, 0), "requests that misread": (1, 0)},
    # 13, 9 and 17 tokens; of 8 one block is found; E computes 5 of 9, or 1.
    ("mini-sglang-124", ""): {"tokens found": (4, 8), "tokens computed": (48, 44)},
    ("mini-sglang-5e52ef3", ""): {"steps ended by an error": (1, 0), "requests finished": (1, 3)},
    ("bytedance-sglang-508", ""): {"blocks locked": (3, 2), "tokens generated for C": (0, 1)},
    # 12, 8, 1 and 16 tokens; of E's nine all, or one.
    ("sglang-24892", ""): {"tokens found": (0, 8), "tokens computed": (46, 38)},
    # Five blocks of nodes of two, or two blocks; 8, 8, 8 and 16 tokens, and of E's nine all, or one.
    ("sglang-32016", ""): {
        "blocks evicted for D": (6, 2),
        "tokens found": (0, 8),
        "tokens computed": (49, 41),
    },
    # 8 and 12 tokens, and of C's nine all, or one.
    ("sglang-34958", ""): {"tokens found": (0, 8), "tokens computed": (29, 21)},
    ("sglang-6690", ""): {"steps ended by an error": (1, 0), "requests finished": (1, 3)},
    # 16 in the first turn; of the second turn's 20, 12 or 4.
    ("sglang-16521", ""): {"tokens found in the second turn": (8, 16), "tokens computed": (28, 20)},
    ("sglang-jax-1618", ""): {"rules broken": (3, 0), "requests that misread": (1, 0)},
}


@pytest.mark.parametrize(("id", "name"), FIGURES, ids="/".join)
def test_the_figures(id: str, name: str) -> None:
    scenario = bug(id)
    experiment = scenario.experiments[name] if name else scenario
    table = experiment.table()
    for row, figures in FIGURES[id, name].items():
        assert tuple(table[column.name][row] for column in experiment.columns) == figures, row


@pytest.mark.parametrize(
    ("id", "column", "rules"),
    [
        ("nano-vllm-114", "PR 199", {"write"}),
        ("nano-vllm-f64d821", "labengine, f64d821", set()),
        ("nano-vllm-208", "nano-vllm, April 2026", set()),
        ("nano-vllm-208", "nano-vllm", set()),
        ("vllm-43569", "PR 43569", set()),
        ("vllm-43569", "first come, first served", set()),
        ("vllm-30931", "id", set()),
        ("vllm-12621", "random start", {"read"}),
    ],
)
def test_the_rules_that_the_alternatives_break(id: str, column: str, rules: set[str]) -> None:
    with bug(id).played(column) as lab:
        assert {violation.rule for violation in lab.violations} == rules


@pytest.mark.parametrize(
    ("id", "kind"),
    [
        ("minivllm-75", ev.RequestPreempted),
        ("nano-vllm-207", ev.RequestScheduled),
        ("nano-vllm-114", ev.RequestScheduled),
        ("nano-vllm-f64d821", ev.BlockTouched),
        ("vllm-42656", ev.BlockEvicted),
        ("inference-sim-704", ev.BlockEvicted),
        ("mini-sglang-142", ev.BlockFreed),
        ("mini-sglang-52", ev.NodeEvicted),
        ("mini-sglang-124", ev.NodeEvicted),
        ("mini-sglang-5e52ef3", ev.PrefixHit),
        ("bytedance-sglang-508", ev.NodeLocked),
        ("sglang-16521", ev.BlockFreed),
        ("sglang-24892", ev.NodeEvicted),
        ("sglang-32016", ev.NodeEvicted),
        ("sglang-34958", ev.NodeEvicted),
        ("sglang-6690", ev.PrefixHit),
        ("sglang-jax-1618", ev.BlockFreed),
    ],
)
def test_the_first_wrong_event(id: str, kind: type[ev.Event]) -> None:
    scenario = bug(id)
    with scenario.broken() as lab:
        first = scenario.first_wrong(lab)
        assert first is not None and isinstance(first.event, kind)


@pytest.mark.parametrize("id", ["nano-vllm-208", "nano-vllm-243", "sglang-6690", "vllm-12621"])
def test_claims_that_do_not_hold(id: str) -> None:
    assert not bug(id).verdict().claim_holds


def test_the_first_eviction_of_head_first_leaves_two_blocks_out_of_reach() -> None:
    scenario = bug("inference-sim-704")
    with scenario.broken() as lab:
        first = scenario.first_wrong(lab)
    assert first is not None and "Block 1 of the chain is evicted, and 2 behind it" in first.sentence


def test_a_colliding_block_of_real_token_ids_has_the_hash_of_the_known_one_behind_most_parents() -> None:
    known = tuple(range(5, 13))
    other = colliding_block(known)
    assert other != known and all(0 <= token < VOCABULARY < 2**17 for token in other)
    chain = BuiltinHash()
    assert chain.link(b"", other) == chain.link(b"", known)
    assert 700 < num_colliding_starts(known, 1000) < 850


def test_random_prompts_collide_unless_complete_prefixes_are_compared() -> None:
    table = bug("nano-vllm-243").experiments["random prompts"].table()
    assert table["nano-vllm+243"]["wrong reads"] > 0 == table["labengine"]["wrong reads"]
