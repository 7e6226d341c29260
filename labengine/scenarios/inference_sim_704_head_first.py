"""llm-d-inference-sim issue 704: a chain's head is evicted before its tail, and no look-up reaches the tail again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.core.editions import VLLM
from labengine.core.full_attention import PromptTailGroup
from labengine.core.parts import Parts
from labengine.events import BlockEvicted, BlockFreed, PrefixHit, RequestAdded
from labengine.lab import Lab
from labengine.scenarios.figures import num_hit_tokens
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)
from labengine.snapshot import Snapshot


class HeadFirst(PromptTailGroup):
    """Frees a table from its first entry on."""

    def freeing_order(self, num_entries: int) -> Sequence[int]:
        """Return the entries in the order of the table."""
        return range(num_entries)


BROKEN = Column(
    "head first",
    Parts(name="vllm, head first", full_attention_group=HeadFirst).overriding(VLLM),
    "Frees a table from its head on: the block that all others need is evicted first.",
)
FIXED = Column("tail first", "vllm", "Frees a table from its tail on: what is left is always a prefix.")


class OneMore(Experiment):
    """A prompt of three full blocks fills the pool; other prompts need a block each."""

    question = "Three cached blocks fill the pool, and another request needs one: what is left of them?"
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=5, block_size=4)
    num_blocks = 3
    num_others = 1

    def play(self, lab: Lab) -> None:
        """Run the prompt, the others (a full block each), and the prompt again."""
        prompt = range(1, 4 * self.num_blocks + 2)
        lab.generate([prompt], max_tokens=1)
        for number in range(self.num_others):
            lab.generate([[100 + number] * 8], max_tokens=1)
        lab.generate([prompt], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the prompt's blocks that the second look-up finds, and those that are cached and out of reach."""
        assert lab.timeline is not None
        moment = moment_of(lab, PrefixHit, lambda event: event.request_id == self.num_others + 1)
        cached = cached_links(lab.timeline.state(moment or 0).snapshot())
        found = num_hit_tokens(lab, self.num_others + 1) // 4
        return {"blocks found": found, "cached and out of reach": len(cached) - found}

    def answer(self, table: Table) -> str:
        """State what is found."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"Head first: {wrong['blocks found']} of {self.num_blocks} blocks found, and "
            f"{wrong['cached and out of reach']} cached in vain; tail first: {right['blocks found']}. (The report's "
            f"200 runs evicted block 1 in 144, block 2 in 33 and block 3 in 23: 0.4 blocks found on average.)"
        )


class EvictedHeadFirst(OneMore, Scenario):
    """The report's example."""

    id = "inference-sim-704"
    title = "A chain's head is evicted before its tail"
    url = "https://github.com/llm-d/llm-d-inference-sim/issues/704"
    claim = (
        "Blocks of one request are evicted in any order. If the first block goes, the others stay cached and can never "
        "be hit again; vLLM evicts the last one first."
    )
    kind = "LRU"
    breaks = "Cached blocks stay in memory that no look-up can reach: it stops at the first block that is missing."
    why_unseen = "Each eviction is legal, and the map leads to blocks of the right content; only the hit rate tells."
    roles = ("the bug: head first", "right: tail first")
    guide = (
        GuideStop(
            "A's three full blocks are freed. Left, from the head of the chain on; right, from its tail.",
            BlockFreed,
            lambda event: event.request_id == 0 and event.index in (0, 2),
        ),
        GuideStop("B needs blocks, and the pool is full of A's.", RequestAdded, lambda event: event.request_id == 1),
        GuideStop("Left, A's first block is evicted; right, its last one.", BlockEvicted),
        GuideStop(
            "A's prompt comes again. Left, the first block is missing, and the look-up stops there. Right, it finds "
            "what is left.",
            PrefixHit,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if cached blocks are out of reach."""
        return measured["cached and out of reach"] > 0

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first eviction after which blocks of the chain are cached without the blocks before them."""
        timeline = lab.timeline
        assert timeline is not None
        for moment, event in enumerate(timeline.events(), timeline.num_dropped):
            if isinstance(event, BlockEvicted):
                links = cached_links(timeline.state(moment + 1).snapshot())
                if links != set(range(len(links))):
                    missing = min(set(range(self.num_blocks)) - links)
                    text = (
                        f"Block {missing + 1} of the chain is evicted, and {len(links) - missing} behind it stay "
                        f"cached."
                    )
                    return wrong_at(lab, moment, text)
        return None


def cached_links(snapshot: Snapshot) -> set[int]:
    """Return which full blocks of A's prompt (tokens 1, 2, 3 ...) are cached, counted from 0."""
    prompt = range(1, 100)
    first_tokens = (block.token_ids[0] for block in snapshot.blocks if block.token_ids)
    return {(token - 1) // 4 for token in first_tokens if token in prompt}


SCENARIO = EvictedHeadFirst()
