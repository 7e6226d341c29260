"""vLLM pull request 47235, and its counterpart 47234: blocks that the tier evicts are not stored again.

vLLM's SimpleCPUOffloadConnector, in eager mode, stores a request's blocks as they are filled, and a cursor notes how
far. If the tier evicts one of them while the request goes on, the cursor has passed it. A chain without its head cannot
be hit, so the blocks that are stored behind it are useless. 47235 looks again in a step after an eviction. 47234
changes nothing: it argues that only speed is lost, and that looking at all blocks in every step would cost time.
labengine stores a block once as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.core.connector import BlockTransfer
from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external.host import HostStore
from labengine.events import BlocksSaved, ExternalHit, RequestScheduled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)


class LooksAgain(TokenBudgetScheduler):
    """Stores also the blocks of a running request that the tier has evicted meanwhile.

    It looks in every step, the case that 47234 argues against; 47235 looks after an eviction. Here both store the same.
    """

    def choose_saves(self, batch: Sequence[ScheduledRequest]) -> tuple[BlockTransfer, ...]:
        """Return the blocks before this step's that the tier lacks, then those that this step fills."""
        saves, connector = super().choose_saves(batch), self.external.connector
        if connector is None:
            return saves
        earlier = [
            transfer
            for part in batch
            for group in self.manager.groups
            for transfer in self.manager.transfers(
                self.requests[part.request_id], group, 0, part.start // group.block_size
            )
        ]
        missing = (transfer for transfer in earlier if not connector.has(*transfer.key))
        return tuple({transfer.key: transfer for transfer in (*missing, *saves)}.values())


def four_blocks() -> HostStore:
    """Return a host tier with room for four blocks."""
    return HostStore(max_blocks=4)


class StoredOnce(Scenario):
    """A conversation A, whose first blocks the tier evicts for B's; then the pool forgets, and A's next turn comes."""

    id = "vllm-47235"
    title = "What the tier evicts is not stored again"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="47235",
        title="[Bugfix][KVOffload] Restore evicted CPU blocks and fix cursor advancement",
        state="open",
        as_of="2026-07-01",
        seen_in="code of 0.19.0 to 0.33.0, which notes it as to be done",
        needs=(
            "SimpleCPUOffloadConnector (VLLM_USE_SIMPLE_KV_OFFLOAD=1) in eager mode, its default",
            "a CPU pool that evicts blocks of a request that goes on",
        ),
    )
    claim = (
        "Blocks whose tier entries are evicted while their request is active are never stored again, because the store "
        "cursor has passed them. Requests with the same prefix then miss the tier and prefill again."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "The scan for blocks to store begins at the cursor, and nothing sets the cursor back when the CPU pool "
            "evicts. What is lost is reuse: no request reads anything wrong."
        ),
        passages=(
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/simple_kv_offload/manager.py",
                line=851,
                text="FIXME (yifan): handle CPU cache eviction",
                says="The code says itself that the cursor omits evicted blocks in the middle of a request.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/simple_kv_offload/manager.py",
                line=865,
                text="start = state.num_stored_blocks[g]",
                says="Blocks before the cursor are not looked at again.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 47234",
                says=(
                    "Its counterpart, open as of 2026-07-01: a shorter match is recomputed, blocks used last are "
                    "evicted last, and looking at all blocks in every step would cost time."
                ),
            ),
        ),
    )
    kind = "external tier"
    breaks = "The tier keeps a chain's later blocks without its head, and no look-up can reach them."
    why_unseen = "A miss in the tier is no error: the tokens are computed again, and only the figures of hits tell."
    question = "A's first two blocks were evicted from the tier while A went on: how much of A is found later?"
    roles = ("stored once, as vLLM 0.32 in eager mode", "stored again, as 47235 proposes")
    columns = (
        Column(
            "stored once", "vllm", "Stores each block in the step that fills it, and never again.", tier=four_blocks
        ),
        Column(
            "looks again",
            Parts(name="vllm, stores again", scheduler=LooksAgain).overriding(VLLM),
            "Asks the tier for all blocks of the requests that run, and stores what is missing. 47235 asks after an "
            "eviction, this column in every step: here the copies are the same.",
            tier=four_blocks,
        ),
    )
    settings = settings(num_blocks=12, block_size=4)
    guide = (
        GuideStop(
            "A's prompt is computed, and its two full blocks are stored.",
            BlocksSaved,
            lambda event: event.request_id == 0,
        ),
        GuideStop(
            "B's four blocks are stored. The tier has room for four: A's are evicted, though A goes on.",
            BlocksSaved,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Right, A's next step finds its first blocks missing in the tier, and stores them again. Left, it stores "
            "nothing: no block was filled.",
            BlocksSaved,
            lambda event: event.request_id == 0,
        ),
        GuideStop(
            "The pool has forgotten everything, and A's next turn comes. Right, the tier has 12 tokens of it. Left, it "
            "has A's third block and not the first: nothing can be hit.",
            ExternalHit,
            lambda event: event.request_id == 2,
        ),
        GuideStop(
            "Left, the turn computes all its tokens.",
            RequestScheduled,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A with B in between; forget the pool's content; run A's next turn."""
        first = lab.add(token_ids=range(1, 10), max_tokens=5)
        lab.step()
        lab.add(token_ids=range(101, 118), max_tokens=1)
        for _ in range(4):
            lab.step()
        lab.reset_prefix_cache()
        lab.add(token_ids=[*lab.snapshot().requests[first].token_ids, 7], max_tokens=1)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the copies of A's first turn, and the tokens that the tier has of its next one."""
        return {
            "copies of A's blocks": sum(len(e.transfers) for e in events_of(lab, BlocksSaved) if e.request_id == 0),
            "tokens found in the tier": sum(event.num_tokens for event in events_of(lab, ExternalHit)),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if nothing of the conversation is found."""
        return measured["tokens found in the tier"] == 0

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the save for which A's blocks were evicted, if they are not stored again."""
        if events_of(lab, ExternalHit):
            return None
        moment = moment_of(lab, BlocksSaved, lambda event: event.request_id == 1)
        assert moment is not None
        return wrong_at(lab, moment, "The tier evicts A's blocks for B's, and they will not be stored again.")

    def answer(self, table: Table) -> str:
        """State what is found, what it costs, and that both sides are right."""
        once, again = (table[column.name] for column in self.columns)
        key = "copies of A's blocks"
        return (
            f"{once['tokens found in the tier']} tokens of A's next turn are found, and "
            f"{again['tokens found in the tier']} if blocks are stored again, for {again[key]} copies instead of "
            f"{once[key]}. As 47234 says, nothing wrong is read, and the tier keeps what was used last: here the "
            "blocks stored again evict B's. Our reading: a third block without the first is room wasted all the same."
        )


SCENARIO = StoredOnce()
