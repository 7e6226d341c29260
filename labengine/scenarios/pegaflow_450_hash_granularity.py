"""pegaflow pull request 450: the external tier files a block under the hash of a shorter prefix.

The engine hashes every 128 tokens, its blocks have 1536. The connector took hash number i for block number i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.config import GroupSpec
from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.vllm_partial_hits import PromptTailGroup
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, PrefixHit, RequestAdded, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_requests
from labengine.scenarios.report import Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class OneHashPerBlock(PromptTailGroup):
    """The connector's reading of the hash list."""

    def tier_hashes(self, request: Request, first: int, end: int) -> Sequence[bytes]:
        """Return the hashes of these numbers: those that close a link of the chain, not a block."""
        return request.block_hashes[first:end]


BROKEN = Column(
    "hash i for block i",
    Parts(name="vllm, hash i for block i", full_attention_group=OneHashPerBlock).overriding(VLLM),
    "Files block i under the hash of the first i + 1 links: other prompts with that beginning get it.",
)
FIXED = Column("closing hash", "vllm", "Files a block under the hash at its end, which stands for all of its tokens.")


class HashGranularity(Scenario):
    """Two prompts of 17 tokens, of which the first four are equal; hashes every 2 tokens, blocks of 8."""

    id = "pegaflow-450"
    title = "A block is filed under the hash of the prompt's beginning"
    report = Report(
        repository="novitalabs/pegaflow",
        kind="pull request",
        number="450",
        title=("fix(connector): key blocks by the hash that closes them (prefix-match-unit / hybrid hash_block_size)"),
        state="merged",
        as_of="2026-09-09",
        seen_in="version 0.24.2",
        mended_in="the pull request itself, in version 0.24.3",
        needs=("vLLM with hashes finer than its blocks: a hybrid model, or --prefix-match-unit",),
    )
    claim = (
        "With hashes finer than blocks, block i was stored under the hash of the first i + 1 hash units: two sessions "
        "that share a beginning were served each other's conversation."
    )
    conclusion = Conclusion(
        answer="holds",
        reason="The list of hashes was taken for one hash a block. The thread has a log from production.",
        passages=(
            ThreadPassage(
                source="novitalabs/pegaflow 450",
                says=(
                    "With 128 tokens a hash and 1,536 a block, block i lay under the hash of the first 128 (i + "
                    "1) tokens."
                ),
            ),
            ThreadPassage(
                source="novitalabs/pegaflow 452", says="A later pull request says that 450 came with version 0.24.3."
            ),
        ),
    )
    kind = "chain"
    breaks = "A request loads another session's KV from the external tier: fluent answers to another question."
    seen_by = ("read", "named")
    question = "Two prompts share their first 4 of 17 tokens: how much of A's KV does B load?"
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=8, groups=(GroupSpec(8),), hash_block_size=2, external="host")
    roles = ("the bug: hash i for block i", "the fix: the hash that closes the block")
    guide = (
        GuideStop("A's prompt: four tokens that every session begins with, and thirteen of its own.", RequestAdded),
        GuideStop(
            "A's two full blocks are saved in the external tier. Right, each under the hash at its end. Left, under "
            "the hashes of the first 2 and of the first 4 tokens.",
            BlocksSaved,
        ),
        GuideStop(
            "B begins with the same four tokens. Nothing of it is in the pool.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, the tier has both hashes: 16 tokens of A count as B's. Right, it has nothing of B's.", ExternalHit
        ),
        GuideStop("Left, A's conversation is loaded into B's blocks.", BlocksLoaded),
        GuideStop("Left, B has answered A's question. Hit rates look healthy, and nothing raises.", StepEnded),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A, which fills the tier; forget what the pool has cached; run B."""
        for first in (100, 200):
            lab.add(token_ids=[1, 2, 3, 4, *range(first, first + 13)], max_tokens=1)
            lab.step()
            lab.reset_prefix_cache()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B has in common with A, those that it loads, and misreads."""
        loaded = sum(event.num_tokens for event in events_of(lab, ExternalHit) if event.request_id == 1)
        return {"tokens in common": 4, "tokens loaded": loaded, "requests that misread": num_misread_requests(lab)}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if more was loaded than the prompts have in common."""
        return measured["tokens loaded"] > measured["tokens in common"]

    def answer(self, table: Table) -> str:
        """State how far a short beginning reaches."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"4 tokens in common bring B {wrong['tokens loaded']} tokens of A ({right['tokens loaded']} with the "
            f"closing hash): a beginning reaches as many blocks as it has hash units. In production, hash units of 128 "
            f"tokens in blocks of 1,536, a system prompt of about 6k tokens covered 48 blocks, and a log shows 87 "
            f"blocks hit, 133,632 of 159,364 tokens."
        )


SCENARIO = HashGranularity()
