"""A tier filled by hand: an input, which fork, rewind, rerun and scripts repeat; other writes are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO

import pytest

import labengine
from labengine.config import ConfigError, GroupSpec
from labengine.core.block_pool import BlockPool
from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, ExternalHit, TierChanged
from labengine.lab import Lab
from labengine.session.elsewhere import Outbox, computed_elsewhere
from sessions import story

PROMPT = range(1, 10)


@pytest.fixture
def filled() -> Iterator[Lab]:
    """A lab that has found two blocks in a filled tier, and has filled it again."""
    with Lab("simulated", num_blocks=12, block_size=4, external="host", seed=3) as lab:
        assert lab.fill_external(token_ids=PROMPT) == 2
        lab.add(token_ids=PROMPT, max_tokens=4)
        lab.step()
        assert lab.fill_external("a second prompt of many words that fill a block") == 2
        lab.step()
        assert lab.timeline is not None and len(lab.timeline.of_kind(BlocksLoaded)) == 1
        yield lab


def test_a_fork_finds_what_was_filled(filled: Lab) -> None:
    with filled.fork() as fork:
        assert story(fork) == story(filled) and fork.inputs == filled.inputs


def test_a_rewind_takes_the_filling_back_and_repeats_it(filled: Lab) -> None:
    events = story(filled)
    filled.rewind(0)
    assert filled.timeline is not None and [type(i).__name__ for i in filled.inputs] == ["FillInput", "AddInput"]
    filled.rewind(2)
    assert story(filled) == events


def test_a_fork_on_another_hash_or_with_other_blocks_is_filled_for_itself(filled: Lab) -> None:
    with filled.fork(block_size=2) as fork:
        assert fork.timeline is not None
        (hit,) = fork.timeline.of_kind(ExternalHit)
        assert hit.num_tokens == 8 and len(fork.timeline.of_kind(TierChanged)[0].added) == 4


def test_a_rerun_and_a_script_repeat_it(filled: Lab) -> None:
    class Same(BlockPool):
        """Changes nothing."""

    with filled.rerun(Same) as comparison:
        assert comparison.first_difference() is None
        assert filled.timeline is not None and comparison.timelines[0].events() == filled.timeline.events()
    namespace: dict[str, Lab] = {}
    with redirect_stdout(StringIO()):
        exec(filled.to_code(), namespace)
    with namespace["lab"] as again:
        assert again.timeline is not None and filled.timeline is not None
        assert again.timeline.events()[1:] == filled.timeline.events()[1:]


def test_every_group_is_filled() -> None:
    groups = (GroupSpec(4), GroupSpec(4, "sliding_window", 8))
    with Lab("simulated", num_blocks=20, groups=groups, external="host") as lab:
        assert lab.fill_external(token_ids=range(1, 18)) == 8
        lab.add(token_ids=range(1, 18), max_tokens=1)
        lab.run()
        assert lab.timeline is not None and lab.timeline.of_kind(ExternalHit)[0].num_tokens == 16
        assert lab.violations == []


def test_what_is_no_prompt_or_has_no_tier_is_refused_and_changes_nothing(filled: Lab) -> None:
    before = story(filled), filled.inputs
    for wrong in ({}, {"prompt": "a", "token_ids": [1]}, {"token_ids": []}, {"token_ids": [-1]}):
        with pytest.raises(ConfigError):
            filled.fill_external(**wrong)
    assert (story(filled), filled.inputs) == before
    with Lab("simulated", num_blocks=4) as lab, pytest.raises(ConfigError, match="external='host'"):
        lab.fill_external("a prompt")


def test_a_tier_that_was_written_to_by_another_way_is_no_input() -> None:
    with Lab("simulated", num_blocks=12, block_size=4, external="host") as lab:
        settings = lab.session.settings
        outbox = computed_elsewhere(
            lab.session.model, settings.engine_config(), settings.model_options(), lab.parts, [*PROMPT]
        )
        assert isinstance(outbox, Outbox) and isinstance(lab.external, HostStore)
        lab.external.save_kv(outbox.sent, outbox)
        lab.add(token_ids=PROMPT, max_tokens=2)
        lab.step()
        for act in (lambda: lab.fork(), lambda: lab.rewind(0), lambda: lab.rerun(BlockPool)):
            with pytest.raises(ConfigError, match=r"lab\.fill_external\(prompt\)"):
                act()
        assert lab.snapshot().step == 1
        with lab.fork(external=None) as fork:
            assert fork.snapshot().step == 1


def test_a_scenario_that_fills_its_tier_can_be_forked_with_a_tier() -> None:
    with labengine.bug("vllm-57841").broken() as lab, lab.fork(external="host") as fork:
        assert fork.timeline is not None
        assert fork.timeline.of_kind(TierChanged)[0].added and fork.timeline.of_kind(ExternalHit)
