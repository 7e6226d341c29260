"""vLLM pull request 44151: a prompt is sent to another engine with the block that is kept for guesses.

A prefill engine computes a prompt and names its blocks; a decode engine reads them. With EAGLE or MTP the prefill
engine keeps slots behind the prompt, in which the drafter writes. If the prompt ends at a block's end they are a block
of their own: one more than the decode engine has. It takes the last ones, as if it had the first cached already. So
each block is read into the place of the one before. (Here both are one lab: a tier between them, and a cache that is
forgotten.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from labengine.core.connector import BlockTransfer
from labengine.core.editions import LABENGINE
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.engine.external.host import HostStore
from labengine.events import BlockAllocated, BlocksLoaded, BlocksSaved, ForwardRan, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, Experiment, GuideStop, Scenario, Table, sentences, settings


class KeepsASlot(KVCacheManager):
    """Keeps one slot behind a request's tokens, for the KV of a drafter that guesses one token."""

    def num_slots(self, request: Request, num_tokens: int) -> int:
        """Return one more than the tokens."""
        return num_tokens + 1


class SendsTheLastBlocks(TokenBudgetScheduler):
    """Sends as many blocks as the prompt fills, counted from the end of the table."""

    def choose_saves(self, batch: Sequence[ScheduledRequest]) -> tuple[BlockTransfer, ...]:
        """Return the blocks that are sent, each in place of the one that is as far from the prompt's end."""
        ends = {part.request_id: part.end for part in batch}
        return tuple(self._from_the_end(save, ends[save.request_id]) for save in super().choose_saves(batch))

    def _from_the_end(self, save: BlockTransfer, end: int) -> BlockTransfer:
        table = self.requests[save.request_id].block_tables[save.group]
        num_filled = -(-end // self.config.groups[save.group].block_size)
        return replace(save, block_id=table[save.index + len(table) - num_filled])


CLIPPED = Parts(name="labengine, keeps a slot", kv_cache_manager=KeepsASlot).overriding(LABENGINE)


class HandedOver(Experiment):
    """Prompts that are computed, forgotten by the cache, and read back from the tier with the token behind them."""

    columns = (
        Column(
            "whole table",
            Parts(name="labengine, keeps a slot, sends the last blocks", scheduler=SendsTheLastBlocks).overriding(
                CLIPPED
            ),
            "Names all blocks of the table, of which the reader takes the last, as vLLM 0.24.0.",
            tier=HostStore,
        ),
        Column(
            "clipped",
            CLIPPED,
            "Names only the blocks that the computed tokens fill, as vLLM since 0.25.0.",
            tier=HostStore,
        ),
        Column(
            "no slots",
            "labengine",
            "Keeps no slots for a drafter, whose KV has a pool of its own. Blocks are sent by what they hold.",
            tier=HostStore,
        ),
    )
    settings = settings(num_blocks=16, block_size=4)
    lengths: tuple[int, ...] = (8,)

    def play(self, lab: Lab) -> None:
        """Run each prompt to its first token; forget what the pool has cached; go on behind that token."""
        for length in self.lengths:
            prompt = range(100 * length, 101 * length)
            [output] = lab.generate([prompt], max_tokens=1)
            lab.reset_prefix_cache()
            lab.generate([[*prompt, *output.token_ids]], max_tokens=2)

    def misread(self, lab: Lab) -> dict[int, int]:
        """Return per prompt length how many blocks are misread behind it."""
        found = [request_id for one in lab.violations if one.rule == "read" for request_id in one.request_ids]
        return {length: found.count(2 * number + 1) for number, length in enumerate(self.lengths)}


class OtherLengths(HandedOver):
    """Prompts that end before, at and behind a block's end."""

    question = "Blocks of four: how many are misread behind prompts of 6 to 9 tokens?"
    settings = settings(num_blocks=32, block_size=4)
    lengths = (6, 7, 8, 9)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return the misread blocks per length."""
        return {f"{length} tokens": number for length, number in self.misread(lab).items()}

    def answer(self, table: Table) -> str:
        """State which lengths go wrong."""
        wrong = [row for row, number in table["whole table"].items() if number]
        return f"Of prompts with 6 to 9 tokens only that with {', '.join(wrong)} goes wrong: it ends at a block's end."


class LookaheadSent(HandedOver, Scenario):
    """A prompt of exactly two blocks."""

    id = "vllm-44151"
    title = "The block that is kept for guesses is sent with the prompt"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="44151",
        title="[Bugfix] PD: Don't transfer spec-decode lookahead blocks",
        state="closed",
        as_of="2026-06-01",
        seen_in="0.23.0 and 0.24.0, and 0.22.1 with prompts of several chunks, as their code reads",
        mended_in="0.25.0 (KVCacheManager.get_block_ids_for_computed_tokens)",
        needs=(
            "prefill and decode on two engines, with the NIXL connector",
            "speculative decoding with EAGLE or MTP on the prefill engine",
            "a prompt that ends at a block's end, or less than the guesses before it",
        ),
    )
    kind = "speculation"
    breaks = "The decode engine reads each block into the place of the one before, and one that was never written."
    wrong_figure = "blocks misread"
    seen_by = ("read", "named")
    claim = (
        "A prefill engine sends all its blocks, those kept for guesses included. The decode engine has one block less, "
        "keeps the last ones, and so drops the real first block and attends to KV that was never written."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "Read in the code of 0.24.0: blocks are allocated for the tokens and the guesses, all of them "
            "are named at the request's end, the decode engine allocates none for guesses while it loads, and of more "
            "blocks than it has it reads the last. 0.25.0 names those that computed tokens fill."
        ),
        passages=(
            CodePassage(
                version="vllm 0.24.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=2323,
                text="block_ids = self.kv_cache_manager.get_block_ids(request.request_id)",
                says="The connector is told all blocks of a finished request.",
            ),
            CodePassage(
                version="vllm 0.24.0",
                file="vllm/v1/core/kv_cache_manager.py",
                line=0,
                text="get_block_ids_for_computed_tokens",
                says="Nothing leaves out those behind the computed tokens.",
            ),
            CodePassage(
                version="vllm 0.24.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=849,
                text="limit_lookahead_tokens = load_kv_async and self.use_eagle",
                says="Where EAGLE or MTP guesses, a request that loads is given no blocks for guesses.",
            ),
            CodePassage(
                version="vllm 0.24.0",
                file="vllm/distributed/kv_transfer/kv_connector/v1/nixl/base_worker.py",
                line=2165,
                text="remote_block_ids[i] = remote_group[-num_local_blocks:]",
                says="Of more blocks than it has itself the reader takes the last.",
            ),
            CodePassage(
                version="vllm 0.25.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=2372,
                text="block_ids = self.kv_cache_manager.get_block_ids_for_computed_tokens(",
                says="The connector is told the blocks of the computed tokens.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 55053",
                says=(
                    "A pull request of September 2026 on another connector, MoRI-IO: there the same surplus block ends "
                    "the transfer with an error."
                ),
            ),
        ),
    )
    question = "A prompt of eight tokens fills two blocks, and a third is kept for a guess: what does the reader get?"
    roles = ("the bug: all blocks are named", "the fix: those of computed tokens")
    guide = (
        GuideStop(
            "The prompt fills blocks 0 and 1. Behind it a slot is kept for the drafter: that takes block 2.",
            BlockAllocated,
            lambda event: event.index == 2,
        ),
        GuideStop(
            "Two blocks are sent. Right, 0 and 1. Left, the last two of the table, 1 and 2: where the hash of the "
            "first block goes, there goes the second one's KV; and block 2 was never written.",
            BlocksSaved,
        ),
        GuideStop(
            "The prompt's first token. Here it goes on with the prompt, because labengine's tier never brings the last "
            "token of a prompt; vLLM's decode engine computes that one again.",
            TokenSampled,
        ),
        GuideStop(
            "The decode engine has nothing in its pool, and reads both blocks.",
            BlocksLoaded,
        ),
        GuideStop(
            "The next token is computed on them. Left, no token of the prompt has its own KV there.",
            ForwardRan,
        ),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"other lengths": OtherLengths()}

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count misread blocks."""
        return {"blocks misread": sum(self.misread(lab).values())}

    def answer(self, table: Table) -> str:
        """State how many are misread."""
        wrong, right, none = (table[column.name]["blocks misread"] for column in self.columns)
        return (
            f"Of the two blocks {wrong} are misread if the kept one is sent with them, and {right} if it is left out. "
            f"Where no slots are kept in the same table, {none} can be."
        )


SCENARIO = LookaheadSent()
