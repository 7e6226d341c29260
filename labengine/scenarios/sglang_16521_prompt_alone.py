"""SGLang pull request 16521: a request that ends leaves its prompt in the tree, but not what it has generated."""

from __future__ import annotations

from labengine.core.kv_cache_manager import Moment
from labengine.core.request import Request
from labengine.core.sglang.kv_cache_manager import SglangKVCacheManager
from labengine.lab import Lab
from labengine.scenarios.counts import num_computed_tokens, num_hit_tokens
from labengine.scenarios.scenario import Column, Scenario


class KeepsThePromptAlone(SglangKVCacheManager):
    """Inserts an ended request with the tokens that it had when its prefill was scheduled."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        """Return at most the tokens of the prefill."""
        known_then = self.prefill_ends.get(request.request_id, 0)
        return min(super().num_registrable_tokens(request, num_tokens, moment), known_then)


class PromptAlone(Scenario):
    """A conversation of two turns: the second prompt is the first one, its answer, and a new question."""

    columns = (Column("sglang", KeepsThePromptAlone), Column("sglang"))
    figures = {
        "tokens found in the second turn": lambda lab: num_hit_tokens(lab, 1),
        "tokens computed": num_computed_tokens,
    }

    def play(self, lab: Lab) -> None:
        """Run the first turn to its end, and the second turn's prompt."""
        first = lab.add(token_ids=range(1, 10), max_tokens=8)
        lab.run()
        lab.add(token_ids=[*range(1, 10), *lab.output(first).token_ids, 51, 52, 53], max_tokens=1)
        lab.run()
