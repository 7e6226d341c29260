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
from labengine.scenarios.figures import events_of, num_hit_tokens, num_rules
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class HitsEverything(NanoKVCacheManager):
    """The look-up as reported: every full block of the prompt counts."""

    def find_prefix(self, request: Request) -> Hit:
        """Return the longest hit, possibly the complete prompt."""
        self.extend_hashes(request, request.num_tokens)
        return self.longest_hit(request, request.num_tokens)


class RecomputesTheLastToken(NanoKVCacheManager):
    """Pull request 199: keep the hit, and compute the last token once more, in the slot where its KV is already."""

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
    url = "https://github.com/GeeeekExplorer/nano-vllm/issues/114"
    upstream = "Pull request 199 computes the last token again; not in commit bb823b3 (April 2026)."
    claim = "If a prompt's length is a multiple of the block size and all its blocks are cached, the prefill crashes."
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
            f"With {wrong['tokens found']} of 8 tokens found, {wrong['tokens computed']} are computed: upstream, "
            f"FlashAttention cannot be launched for 0 query tokens. Production computes the last block again "
            f"({right['tokens computed']} tokens). Pull request 199 computes {cheap['tokens computed']} token, but it "
            f"writes to a full block of A: the same KV up to rounding, and a broken rule "
            f"({cheap['rules broken']}) for an engine in which cached blocks never change."
        )


SCENARIO = FullHit()
