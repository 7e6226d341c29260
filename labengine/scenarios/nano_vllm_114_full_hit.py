"""nano-vLLM issue 114: a prompt that the cache holds completely leaves no token to compute.

The next token comes from the logits of the prompt's last token, and those are in no cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import NANO_VLLM
from labengine.core.nano_vllm import NanoKVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.events import PrefixHit, RequestAdded, RequestScheduled, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_hit_tokens, num_rules
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class HitsEverything(NanoKVCacheManager):
    """The look-up as it was: every full block of the prompt counts."""

    def find_prefix(self, request: Request) -> Hit:
        """Return the longest hit, possibly the complete prompt."""
        self.extend_hashes(request, request.num_tokens)
        return self.longest_hit(request, request.num_tokens)


class RecomputesTheLastToken(NanoKVCacheManager):
    """As pull request 199 describes: keep the hit, and compute the last token again, in the slot that has its KV."""

    def find_prefix(self, request: Request) -> Hit:
        """Return the blocks of a complete hit, with one token less."""
        self.extend_hashes(request, request.num_tokens)
        hit = self.longest_hit(request, request.num_tokens)
        return hit._replace(num_tokens=min(hit.num_tokens, request.num_tokens - 1))


BROKEN = Column(
    "full hit",
    Parts(name="nano-vllm, full hit", kv_cache_manager=HitsEverything).overriding(NANO_VLLM),
    "Takes all of the prompt from the cache: zero tokens are computed.",
)
FIXED = Column("last block", "nano-vllm", "Never takes the last block from the cache: its tokens are computed again.")
LAST_TOKEN = Column(
    "PR 199",
    Parts(name="nano-vllm + PR 199", kv_cache_manager=RecomputesTheLastToken).overriding(NANO_VLLM),
    "Takes all blocks, and computes the last token again: it writes to a block that others may be reading.",
)


class FullHit(Scenario):
    """The same prompt of eight tokens twice, in blocks of four."""

    id = "nano-vllm-114"
    title = "A prompt that is cached completely has no query token"
    report = Report(
        repository="GeeeekExplorer/nano-vllm",
        kind="issue",
        number="114",
        title="[BUG] Crashes when the prompt length exactly equals kvcache_block_size",
        state="open",
        as_of="2026-08-26",
        seen_in="October 2025; the look-up stood so up to commit 9e8507e (2026-04-13)",
        mended_in="commit bb823b3 (2026-04-26): since pull request 218 the look-up leaves out the last block",
        needs=("a prompt of complete blocks, all of them cached",),
    )
    claim = "If a prompt's length is a multiple of the block size and all its blocks are cached, the prefill crashes."
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "All full blocks were hits, and a step computed what the hit left: nothing. Pull request 199, "
            "which would compute the last token again, was closed without a merge."
        ),
        passages=(
            CodePassage(
                version="nano-vllm 9e8507e",
                file="nanovllm/engine/block_manager.py",
                line=73,
                text="seq.num_cached_tokens += self.block_size",
                says="Each full block that is found counts as cached, the last one too.",
            ),
            CodePassage(
                version="nano-vllm 9e8507e",
                file="nanovllm/engine/model_runner.py",
                line=139,
                text="seqlen_q = seqlen - seq.num_cached_tokens",
                says="The queries are what is not cached: none.",
            ),
            CodePassage(
                version="nano-vllm bb823b3",
                file="nanovllm/engine/block_manager.py",
                line=62,
                text="for i in range(seq.num_blocks - 1):",
                says="The look-up ends before the last block.",
            ),
            ThreadPassage(
                source="GeeeekExplorer/nano-vllm 114",
                says=(
                    "Equal prompts of one block, 513 of them, end with a CUDA error: an invalid configuration argument."
                ),
            ),
        ),
    )
    kind = "full hit"
    breaks = "The step computes no token of the request, and a token is sampled all the same."
    seen_by = ("progress",)
    question = "A prompt of exactly two blocks, sent a second time while the first one decodes"
    columns = (BROKEN, FIXED, LAST_TOKEN)
    settings = settings(num_blocks=8, block_size=4)
    roles = ("the bug: everything is a hit", "correct: the last block is computed again")
    guide = (
        GuideStop(
            "A's eight tokens are computed, and its two full blocks are cached. B comes with the same prompt.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, both blocks are a hit: eight tokens of eight. Right, the look-up leaves out the last token, and a "
            "hit ends with a full block: four of eight.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, 8 - 8 = 0 tokens are left to compute: the attention kernel gets a query of length 0. Right, four.",
            RequestScheduled,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, B's first token is sampled from logits that are not B's. The hit saved too much by one token.",
            TokenSampled,
            lambda event: event.request_id == 1,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Compute A; then add B, with A's prompt."""
        for _ in range(2):
            lab.add(token_ids=range(1, 9), max_tokens=4)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds and computes, and broken rules."""
        [computed] = [e.num_tokens for e in events_of(lab, RequestScheduled) if e.request_id == 1]
        return {"tokens found": num_hit_tokens(lab, 1), "tokens computed": computed, "rules broken": num_rules(lab)}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if no token was computed."""
        return measured["tokens computed"] == 0

    def answer(self, table: Table) -> str:
        """State what each column computes, and what the cheaper fix costs."""
        wrong, right, cheap = (table[column.name] for column in self.columns)
        return (
            f"With {wrong['tokens found']} of 8 tokens found, {wrong['tokens computed']} are computed: in the "
            f"report the attention kernel fails for 0 query tokens. nano-vLLM since pull request 218 computes the last "
            f"block again ({right['tokens computed']} tokens). As pull request 199 describes it, "
            f"{cheap['tokens computed']} token is computed, but it writes to a full block of A: in our reading the "
            f"same KV up to rounding, and here a broken rule ({cheap['rules broken']}), for cached blocks never change."
        )


SCENARIO = FullHit()
