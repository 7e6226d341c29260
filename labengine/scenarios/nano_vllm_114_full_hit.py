"""nano-vLLM issue 114: a prompt that is completely in the cache leaves no token to compute.

The next token comes from the logits of the prompt's last token, which no cache holds.
"""

from __future__ import annotations

from labengine.core.nano_vllm.kv_cache_manager import NanoKVCacheManager
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.events import RequestScheduled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_hit_tokens, num_rules
from labengine.scenarios.scenario import Column, Scenario


class HitsEverything(NanoKVCacheManager):
    """The reported look-up: every full block of the prompt counts."""

    def find_prefix(self, request: Request) -> Hit:
        """Return the longest hit, possibly the complete prompt."""
        self.extend_hashes(request, request.num_tokens)
        return self.longest_hit(request, request.num_tokens)


class RecomputesTheLastToken(NanoKVCacheManager):
    """As pull request 199 describes: keep the hit, and recompute the last token in the slot that already has its KV."""

    def find_prefix(self, request: Request) -> Hit:
        """Return the blocks of a complete hit, with one token fewer."""
        self.extend_hashes(request, request.num_tokens)
        hit = self.longest_hit(request, request.num_tokens)
        return hit._replace(num_tokens=min(hit.num_tokens, request.num_tokens - 1))


class FullHit(Scenario):
    """The same prompt of eight tokens twice, in blocks of four."""

    columns = (Column("nano-vllm", HitsEverything), Column("nano-vllm"), Column("nano-vllm", RecomputesTheLastToken))

    def play(self, lab: Lab) -> None:
        """Compute A, then add B with A's prompt."""
        for _ in range(2):
            lab.add(token_ids=range(1, 9), max_tokens=4)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds, the tokens that B computes, and broken rules."""
        [computed] = [e.num_tokens for e in events_of(lab, RequestScheduled) if e.request_id == 1]
        return {"tokens found": num_hit_tokens(lab, 1), "tokens computed": computed, "rules broken": num_rules(lab)}
