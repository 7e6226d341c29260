"""nano-vLLM issue 219 and pull request 243: equal prompts in one step leave two copies of every full block.

Two requests hash the same content at the end of a step, and the later one takes over the map's entry. The pull request
merges the blocks instead. An older version hashed at allocation, so it never made the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from labengine.core.block import Block
from labengine.core.merge_policy import LateMerge
from labengine.events import (
    BlockCached,
    PrefixHit,
)
from labengine.lab import Lab
from labengine.record.wording import listed
from labengine.scenarios.counts import events_of, num_computed_tokens, num_misread_requests, num_rules
from labengine.scenarios.nano_vllm_243_own_tokens import Collision
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    Scenario,
    Table,
    wrong_at,
)

TEXT = "This is a concurrent cache test prompt. " * 200


def _add_c(lab: Lab) -> None:
    """Add C: 30 unshared tokens, so that it takes 8 blocks."""
    lab.add(token_ids=range(1000, 1030), max_tokens=1)


def _add_d(lab: Lab) -> None:
    """Add D, with A's prompt."""
    prompt = lab.snapshot().requests[0]
    lab.add(token_ids=prompt.token_ids[: prompt.num_prompt_tokens], max_tokens=2)


FOLLOW_UP: tuple[Callable[[Lab], Any], ...] = (Lab.step, _add_c, Lab.step, _add_d, Lab.step)
"""B ends; C takes all free blocks and ends; D asks for content that A still holds."""


class SameStep(Experiment):
    """Two equal prompts in one step."""

    columns: ClassVar[tuple[Column, ...]] = (
        Column("nano-vllm"),
        Column("nano-vllm+243"),
        Column("nano-vllm-2025-07"),
        Column("labengine"),
    )
    num_prompt_tokens = 14

    def play(self, lab: Lab) -> None:
        """Run A and B for one step. A has more tokens to write than B, so that the later cost shows."""
        for max_tokens in (8, 2):
            lab.add(token_ids=self.prompt(lab), temperature=1.0, max_tokens=max_tokens, ignore_eos=True)
        lab.step()

    def prompt(self, lab: Lab) -> list[int]:
        """Return the pull request's sentence, repeated up to num_prompt_tokens."""
        return lab.encode(TEXT)[: self.num_prompt_tokens]

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count blocks, hashes, and blocks that no look-up can find."""
        snapshot = lab.snapshot()
        hashes = {block.block_hashes for block in snapshot.blocks if block.ref_count and block.block_hashes}
        return {
            "used blocks": snapshot.num_used_blocks,
            "unique hashes": len(hashes),
            "lost blocks": len(snapshot.lost_blocks),
            "peak while computing": lab.stats().peak_used_blocks,
        }


class Script(SameStep):
    """The pull request's sentence, block size and number of blocks; the length of 801 tokens is ours."""

    columns = (Column("nano-vllm"), Column("nano-vllm+243"))
    num_prompt_tokens = 801


class LostReuse(SameStep):
    """A continues; B ends, C takes all free blocks, and D asks for content that A still holds."""

    def play(self, lab: Lab) -> None:
        """Play the step and the follow-up."""
        super().play(lab)
        for act in FOLLOW_UP:
            act(lab)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the full blocks of D's prompt that A holds, and those that D's look-up finds."""
        [hit] = [event for event in events_of(lab, PrefixHit) if event.request_id == 3]
        snapshot = lab.snapshot()
        table = snapshot.requests[0].block_tables[0][: self.num_prompt_tokens // 4]
        held = sum(bool(snapshot.blocks[block_id].block_hashes) for block_id in table)
        return {"full blocks that A holds": held, "full blocks that D finds": len(hit.block_ids[0])}

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        found = [f"{column['full blocks that D finds']} with {name}" for name, column in table.columns.items()]
        return {"found": listed(found)}


class TradeOff(Experiment):
    """Eight equal requests: the effect of merging on memory and on compute."""

    columns = (Column("nano-vllm-2025-07"), Column("nano-vllm"), Column("nano-vllm+243"), Column("labengine"))

    def play(self, lab: Lab) -> None:
        """Run one step."""
        for _ in range(8):
            lab.add(token_ids=range(1, 66), max_tokens=4)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the peak, the blocks after the step, and the computed and saved tokens."""
        computed = num_computed_tokens(lab)
        return {
            "peak while computing": lab.stats().peak_used_blocks,
            "blocks after the step": lab.snapshot().num_used_blocks,
            "tokens computed": computed,
            "tokens saved": 8 * 65 - computed,
        }


class NoAliveCheck(LateMerge):
    """Merges into any block in the map."""

    def is_alive(self, other: Block) -> bool:
        """Accept a freed block that is still in the map: it gets a reference and stays in the free queue."""
        return True


class DanglingEntry(Experiment):
    """A ends in the step in which the equal request B is hashed: the map leads B to a free block."""

    columns = (Column("nano-vllm+243"), Column("nano-vllm+243", NoAliveCheck))
    figures = {
        "rules broken": num_rules,
        "wrong reads": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A and B, then C with blocks from the queue, then a step in which B reads the block it merged into."""
        prompt = list(range(1, 10))
        lab.add(token_ids=prompt, max_tokens=1)
        lab.add(token_ids=prompt, max_tokens=6)
        lab.step()
        lab.add(token_ids=range(101, 118), max_tokens=6)
        lab.step(2)


class DuplicateBlocks(SameStep, Scenario):
    """Issue 219, with the pull request's fix and two engines without the defect."""

    experiments = {
        "script": Script(),
        "lost reuse": LostReuse(),
        "trade-off": TradeOff(),
        "dangling entry": DanglingEntry(),
        "collision": Collision(),
    }

    follow_ups = FOLLOW_UP

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first hash that takes a live block's map entry: this breaks no rule, but a block is lost."""
        timeline = lab.timeline
        assert timeline is not None
        for moment, event in enumerate(timeline.events(), timeline.num_dropped):
            if isinstance(event, BlockCached) and timeline.state(moment + 1).snapshot().lost_blocks:
                [lost] = timeline.state(moment + 1).snapshot().lost_blocks
                new, old = "AB"[event.request_id], "BA"[event.request_id]
                return wrong_at(
                    lab,
                    moment,
                    f"{new}'s block {event.block_id} takes the map's entry from {old}'s equal block {lost}: "
                    f"block {lost} is alive, and no look-up can find it any more.",
                )
        return None
