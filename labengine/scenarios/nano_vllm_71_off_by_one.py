"""nano-vLLM pull request 71: an off-by-one error that was not one. Judging a fix: claim, experiment, verdict.

When a step is scheduled, the length already includes the newest token, whose KV that step writes at position
length - 1. So a block is missing when length % block_size == 1. The pull request takes 0 to be right.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.nano_vllm.full_attention import OwnTokensGroup
from labengine.core.request import Request, RequestStatus
from labengine.events import (
    PrefixHit,
    SlotsWritten,
    StepRolledBack,
)
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, try_step
from labengine.scenarios.scenario import Column, Experiment, Scenario, Table


class AppendsWhenFull(OwnTokensGroup):
    """The pull request's rule for a decoding request."""

    def num_missing_blocks(self, request: Request, num_tokens: int) -> int:
        """Return one block as soon as the length fills the last one; prompts get their blocks as before."""
        if request.status is not RequestStatus.RUNNING:
            return super().num_missing_blocks(request, num_tokens)
        if num_tokens % self.block_size == 0:
            return 1
        last = self._pool.blocks[request.block_tables[self.index][-1]]
        assert not last.keys, f"block {last.block_id} is full, and position {num_tokens - 1} has no block"
        return 0


class Grows(Experiment):
    """One request in an empty pool: its blocks are 0, 1, 2 ..., so that position p belongs in slot p."""

    columns = (Column("nano-vllm-2025-07", AppendsWhenFull), Column("nano-vllm-2025-07"))
    prompt = "Once upon a"
    num_steps = 10
    """Steps: one for the prompt, then decodes."""

    def play(self, lab: Lab) -> None:
        """Run three prompt tokens, then decode past three block boundaries."""
        self._grow(lab, self.num_steps)

    def _grow(self, lab: Lab, num_steps: int) -> None:
        lab.add(token_ids=lab.encode(self.prompt)[:3], max_tokens=32, ignore_eos=True)
        lab.step(num_steps)


class LateBlock(Grows):
    """The first claim: the block comes too late."""

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the slots of positions on both sides of a boundary."""
        slots = slots_by_position(lab)
        return {f"position {position}": slots[position] for position in (2, 3, 4, 6, 7, 8)}

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        wrong, right = (table[column.name] for column in self.columns)
        position = next(row for row in table.rows if wrong[row] != right[row])
        return {"position": position, "wrong": wrong[position], "right": right[position]}


class Fragmented(Grows):
    """The second claim: hash and allocation belong together."""

    def play(self, lab: Lab) -> None:
        """Let A fill and hash its first block; B begins with the same four tokens, hits the block and reads it."""
        super().play(lab)
        add_sharer(lab)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B hits, and those among them that were never written."""
        hit = events_of(lab, PrefixHit)[-1]
        written = set(slots_by_position(lab).values())
        found = [block_id * 4 + offset for block_id in hit.block_ids[0] for offset in range(4)]
        return {"tokens that B finds": len(found), "of them never written": sum(slot not in written for slot in found)}


class At256(Grows):
    """The pull request's critical case (255 tokens) and the next one (256)."""

    def play(self, lab: Lab) -> None:
        """Run two requests one after the other; an assertion may end the second one's first decode."""
        lab.add(token_ids=range(255), max_tokens=4)
        lab.run()
        lab.add(token_ids=range(1000, 1256), max_tokens=2)
        lab.step()
        try_step(lab)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the slots of positions 255 and 256, and the failures of the second request's step."""
        slots = slots_by_position(lab)
        failed = sum(event.reason == "AssertionError" for event in events_of(lab, StepRolledBack))
        return {"position 255": slots[255], "position 256": slots[256], "steps ended by an assertion": failed}

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return dict(zip(("broken", "fixed"), map(_outcome, table.columns.values()), strict=True))


class OffByOne(Grows, Scenario):
    """The proposed rule is the broken column, the original the fixed one."""

    experiments = {
        "claim 1": LateBlock(),
        "claim 2": Fragmented(),
        "256 tokens": At256(),
    }
    follow_ups = (lambda lab: add_sharer(lab), Lab.step)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the request's positions in the right slot and in a wrong one."""
        slots = slots_by_position(lab)
        wrong = sum(slot != position for position, slot in slots.items())
        holes = sum(position not in slots.values() for position in slots)
        return {"positions written": len(slots), "in a wrong slot": wrong, "own slots never written": holes}

    def opening(self, lab: Lab) -> None:
        """Run the prompt's step and the first decode."""
        self._grow(lab, 2)


def _outcome(measured: Mapping[str, int]) -> str:
    return "is ended by an assertion" if measured["steps ended by an assertion"] else "goes well"


def add_sharer(lab: Lab) -> None:
    """Add B, which begins with A's first four tokens."""
    shared = lab.snapshot().requests[0].token_ids[:4]
    lab.add(token_ids=[*shared, shared[0]], max_tokens=4, ignore_eos=True)


def slots_by_position(lab: Lab) -> dict[int, int]:
    """Return the slot of each position of the first request."""
    size = lab.config.groups[0].block_size
    slots: dict[int, int] = {}
    for event in events_of(lab, SlotsWritten):
        if event.request_id == 0:
            written = [block_id * size + offset + i for block_id, offset, length in event.runs for i in range(length)]
            slots.update(enumerate(written, event.start))
    return slots
