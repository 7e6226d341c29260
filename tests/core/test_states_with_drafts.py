"""States beside speculation: scratch blocks for the states that drafts lead to, and none of a rejected one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from check.watched import Watched, watched
from labengine import events as ev
from labengine.config import ConfigError, GroupSpec
from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.proposer import FixedDrafts
from labengine.core.request import Request
from labengine.core.state_group import StateGroup

GROUPS = (GroupSpec(4), GroupSpec(4, "state"))
PROMPT = (1, 2, 3, 4, 5, 6)


def token(request_id: int, position: int) -> int:
    return 100 + position


def guessing(*wrong: int, num_drafts: int = 2, **settings: object) -> Watched:
    """An engine whose proposer is right, but for some positions."""
    right = [*PROMPT, *(token(0, position) for position in range(len(PROMPT), 64))]
    text = tuple(50 if position in wrong else right[position] for position in range(64))
    proposer = FixedDrafts(text, num_drafts)
    return watched(32, GROUPS, next_token=token, proposer=proposer, **settings)  # type: ignore[arg-type]


class Fewer(FixedDrafts):
    """Guesses wrong, many tokens and none in turn."""

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        return super().propose(token_ids, num_tokens) if len(token_ids) % 2 else ()


def table(setup: Watched) -> list[int]:
    return list(setup.engine.requests[0].block_tables[1])


def runs(setup: Watched) -> list[list[tuple[int, int]]]:
    """Per step (block, tokens that its state has seen after it)."""
    steps: list[list[tuple[int, int]]] = []
    for event in setup.timeline.events():
        if isinstance(event, ev.StepStarted):
            steps.append([])
        elif isinstance(event, ev.StateAdvanced):
            steps[-1].append((event.block_id, event.end))
    return steps


def test_each_token_of_a_step_leaves_its_state_in_a_block_of_its_own() -> None:
    setup = guessing(9)
    setup.add(*PROMPT, max_tokens=12)
    setup.steps(2)
    (at_4, running, one, other), scratch = table(setup), table(setup)[2:]
    assert runs(setup) == [[(at_4, 4)], [(running, 6)]]
    setup.engine.step()
    assert setup.engine.requests[0].num_computed_tokens == 9, "one token, and two accepted drafts"
    moved = setup.timeline.of_kind(ev.BlockMoved)
    assert [event.block_id for event in moved] == []
    assert table(setup)[:4] == [-1, running, one, other], "the running state is in the first scratch block"
    states = runs(setup)[-1]
    assert [end for _, end in states] == [7, 8, 9]
    assert states[1] == (running, 8), "the state at a block's end is in that entry, where it can be hit"
    assert len({block_id for block_id, _ in states}) == 3
    assert set(scratch) <= set(table(setup))
    setup.assert_clean()


@pytest.mark.parametrize("edition", ["labengine", "vllm"])
def test_a_request_whose_drafts_led_two_blocks_ahead_goes_back_to_one_that_is_there(edition: str) -> None:
    """More drafts than a block has tokens, all of them rejected, and fewer in the step after."""
    groups = (GroupSpec(2), GroupSpec(2, "state"))
    proposer = Fewer((50,) * 64, 4)
    setup = watched(32, groups, edition, next_token=token, proposer=proposer)
    setup.add(1, 2, max_tokens=12)
    while setup.engine.step():
        assert setup.watch.violations == []
    setup.assert_clean()


def test_a_request_goes_on_from_the_state_of_the_last_accepted_draft() -> None:
    setup = guessing(8)
    setup.add(*PROMPT, max_tokens=12)
    setup.steps(3)
    assert setup.engine.requests[0].num_computed_tokens == 8, "one of two drafts is accepted"
    accepted = runs(setup)[-1][1]
    setup.engine.step()
    copied = setup.timeline.of_kind(ev.StateCopied)[-1]
    assert (copied.block_id, copied.num_tokens) == accepted
    setup.assert_clean()
    setup.run()
    setup.assert_clean()


def test_a_state_that_drafts_complete_can_be_hit() -> None:
    setup = guessing()
    setup.add(*PROMPT, max_tokens=8)
    setup.run()
    text = setup.engine.requests[0].token_ids
    setup.add(*text, max_tokens=1)
    setup.engine.step()
    assert setup.timeline.of_kind(ev.PrefixHit)[-1].num_tokens == 12
    setup.assert_clean()


class KeepsTheLast(StateGroup):
    """Goes on from the state behind the last draft, accepted or not."""

    def state_entry(self, request: Request) -> int:
        planned = self._planned.get(request.request_id)
        return super().state_entry(request) if planned is None else planned.entries[-1]


class OneBlockForAll(StateGroup):
    """Overwrites one block with every draft."""

    def entries_of_states(self, request: Request, end: int) -> tuple[int, ...]:
        entries = super().entries_of_states(request, end)
        return (entries[0],) * len(entries)


@pytest.mark.parametrize(("group", "rule"), [(KeepsTheLast, "read"), (OneBlockForAll, "slot")])
def test_a_state_that_has_seen_a_rejected_draft_is_found_out(group: type[StateGroup], rule: str) -> None:
    setup = guessing(8, edition=Parts(state_group=group).overriding(LABENGINE))
    setup.add(*PROMPT, max_tokens=12)
    setup.run()
    assert rule in setup.broken_rules()


def test_a_budget_of_a_block_is_refused_where_vllm_waits_for_ever() -> None:
    """Its chunks end where blocks do as far as the budget reaches, and the draft model takes one token of that."""
    proposer = FixedDrafts((50,) * 64, 1, "draft_model")
    with pytest.raises(ConfigError, match="waits forever"):
        watched(32, GROUPS, "vllm", budget=4, proposer=proposer)
    for edition, budget in (("vllm", 5), ("labengine", 4)):
        setup = watched(32, GROUPS, edition, budget=budget, next_token=token, proposer=proposer)
        setup.add(*PROMPT, max_tokens=6)
        setup.run()
        setup.assert_clean()
