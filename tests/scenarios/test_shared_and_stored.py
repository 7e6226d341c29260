"""A tail that two requests write, and content that the external tier takes or gives at the wrong time."""

from __future__ import annotations

import pytest

from labengine import events as ev
from labengine.scenarios import bug
from labengine.scenarios.counts import events_of
from labengine.scenarios.scenario import moment_of, symptom

FIGURES = {
    "atlas-1193": (
        {"requests": 4, "of them misread": 3, "writers of one block": 4},
        {"of them misread": 0, "writers of one block": 1},
    ),
    "dingocache-377": (
        {"blocks said to be saved": 4, "blocks loaded": 2, "blocks misread": 2},
        {"blocks said to be saved": 4, "blocks loaded": 2, "blocks misread": 0},
    ),
    "lmcache-5095": ({"pins below zero": 4, "blocks misread": 1}, {"pins below zero": 0, "blocks misread": 0}),
    "rapid-mlx-196": ({"table entries": 6, "used blocks": 5, "blocks misread": 1}, {"blocks misread": 0}),
    "sglang-27444": (
        {"blocks loaded": 2, "blocks misread": 2, "blocks of B saved": 2},
        {"blocks loaded": 2, "blocks misread": 0, "blocks of B saved": 2},
    ),
    "transformers-46117": ({"steps that failed": 12, "answers": 0}, {"steps that failed": 0, "answers": 3}),
    "vllm-39702": (
        {"attempts that failed": 6, "requests finished": 1},
        {"attempts that failed": 0, "requests finished": 2},
    ),
    "vllm-47235": (
        {"copies of A's blocks": 3, "tokens found in the tier": 0},
        {"copies of A's blocks": 5, "tokens found in the tier": 12},
    ),
    "vllm-48481": ({"tokens": 7, "wrong tokens": 6}, {"tokens": 7, "wrong tokens": 0}),
}


@pytest.mark.parametrize("id", FIGURES)
def test_the_figures(id: str) -> None:
    verdict = bug(id).verdict()
    before, after = FIGURES[id]
    assert dict(verdict.before) == before
    assert after.items() <= verdict.after.items()


def test_a_hit_inside_a_block_is_six_tokens_long_and_touches_the_tail() -> None:
    with bug("atlas-1193").broken() as lab:
        hits = [event for event in events_of(lab, ev.PrefixHit) if event.request_id]
        assert [(hit.num_tokens, len(hit.block_ids[0])) for hit in hits] == [(6, 2)] * 3
        touched = [event.ref_count for event in events_of(lab, ev.BlockTouched) if event.index == 1]
        assert touched == [2, 3, 4]


def test_who_wrote_last_reads_right() -> None:
    with bug("atlas-1193").broken() as lab:
        assert {i for v in lab.violations if v.rule == "read" for i in v.request_ids} == {0, 1, 2}


def test_a_pin_saves_the_load_and_refuses_the_save() -> None:
    assert bug("sglang-27444").measured("pinned") == {"blocks loaded": 2, "blocks misread": 0, "blocks of B saved": 0}


def test_one_request_alone_loses_no_page() -> None:
    assert bug("lmcache-5095").experiments["alone"].table().to_dict() == {
        "unpinned twice": {"pins below zero": 2, "blocks misread": 0},
        "unpinned once": {"pins below zero": 0, "blocks misread": 0},
    }


@pytest.mark.parametrize(
    ("id", "kind"),
    [("dingocache-377", ev.BlocksSaved), ("lmcache-5095", ev.BlocksLoaded), ("sglang-27444", ev.BlocksLoaded)],
)
def test_the_first_wrong_event_is_the_tiers_and_comes_before_the_read(id: str, kind: type[ev.Event]) -> None:
    scenario = bug(id)
    with scenario.broken() as lab:
        first = scenario.first_wrong(lab)
        assert first is not None and isinstance(first.event, kind)
        found = moment_of(lab, ev.ViolationFound)
        assert found is not None and first.moment < found


def test_a_hit_that_is_gone_ends_every_step() -> None:
    scenario = bug("vllm-39702")
    with scenario.lab("counted once") as lab:
        scenario.opening(lab)
        for _ in range(2):
            assert symptom(lab.step).startswith("LoadError: 2 of 2 blocks could not be loaded")
            assert lab.snapshot().step == 3 and {violation.rule for violation in lab.check()} == {"tier"}
