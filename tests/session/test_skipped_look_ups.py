"""Requests that do not read the prefix cache: they look nothing up, but their blocks are cached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine import Lab
from labengine.config import ConfigError
from labengine.core.editions import EDITIONS
from labengine.events import BlockCached, ExternalHit, PrefixHit, RequestPreempted
from labengine.record.fold import fold

PROMPT = list(range(1, 14))


def small(**settings: Any) -> Lab:
    return Lab(**{"model": "simulated", "num_blocks": 32, "block_size": 4} | settings)  # type: ignore[arg-type]


def hits(lab: Lab) -> list[tuple[int, bool]]:
    assert lab.timeline is not None
    return [(event.num_tokens, event.is_skipped) for event in lab.timeline.of_kind(PrefixHit)]


BROKEN = {"mini-sglang": {"ref_count", "held"}}
"""Rules that an edition's own bug breaks here: it frees the third request's copies, which the table still names."""


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.filterwarnings("ignore::labengine.session.violation_warnings.ViolationWarning")
def test_it_finds_nothing_and_others_find_what_it_has_computed(edition: str) -> None:
    with small(edition=edition) as lab:
        for skips in (True, False, True, False):
            lab.add(token_ids=PROMPT, max_tokens=2, skip_reading_prefix_cache=skips)
            lab.run()
        assert hits(lab) == [(0, True), (12, False), (0, True), (12, False)]
        assert fold(lab.timeline.events()) == lab.snapshot()  # type: ignore[union-attr]
        assert {violation.rule for violation in lab.check()} == BROKEN.get(edition, set())
        assert lab.stats().hit_rate == pytest.approx(12 / 13)  # those that looked nothing up do not count


def test_it_computes_all_again_after_a_preemption() -> None:
    with small(num_blocks=9) as lab:
        for first in (0, 50):
            lab.add(token_ids=range(first, first + 12), max_tokens=16, skip_reading_prefix_cache=True)
        lab.run()
        assert lab.timeline.of_kind(RequestPreempted) and {*hits(lab)} == {(0, True)}  # type: ignore[union-attr]
        assert [event for event in lab.timeline.of_kind(BlockCached) if event.request_id == 1]  # type: ignore[union-attr]


def test_the_external_tier_is_not_asked_either() -> None:
    with small(external="host") as lab:
        lab.fill_external(token_ids=PROMPT)
        for skips in (True, False):
            lab.reset_prefix_cache()
            lab.add(token_ids=PROMPT, max_tokens=1, skip_reading_prefix_cache=skips)
            lab.run()
        assert [event.request_id for event in lab.timeline.of_kind(ExternalHit)] == [1]  # type: ignore[union-attr]


def test_why_it_hit_nothing() -> None:
    with small() as lab:
        for skips in (False, True):
            lab.add(token_ids=PROMPT, max_tokens=1, skip_reading_prefix_cache=skips)
            lab.run()
        answer = lab.why(request=1, about="hit").answer
        assert answer.startswith("B was added with skip_reading_prefix_cache")


def test_it_is_repeated_and_saved(tmp_path: Path) -> None:
    with small() as lab:
        for skips in (False, True):
            lab.add(token_ids=PROMPT, max_tokens=3, skip_reading_prefix_cache=skips)
            lab.run()
        assert "skip_reading_prefix_cache=True" in lab.to_code()
        with lab.fork() as fork:
            assert fork.timeline.events() == lab.timeline.events()  # type: ignore[union-attr]
        lab.save(tmp_path / "run.lab")
        with labengine.open(tmp_path / "run.lab") as opened:
            assert opened.snapshot() == lab.snapshot() and "skip_reading_prefix_cache=True" in opened.to_code()


def test_what_is_no_yes_or_no_is_refused() -> None:
    with small() as lab, pytest.raises(ConfigError, match="skip_reading_prefix_cache"):
        lab.add(token_ids=PROMPT, skip_reading_prefix_cache="yes")
