"""LMCache pull request 3322: the external tier holds a complete prompt, and offers all of it.

Both columns load within the step. Only for such loads does vLLM assert that a token is left to compute; LMCache's MP
connector loads asynchronously, and then vLLM itself takes the last token back.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request
from labengine.engine.external.host import HostStore
from labengine.events import ExternalHit, RequestScheduled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_rules
from labengine.scenarios.scenario import Column, Scenario


class OffersEverything(HostStore):
    """The MP connector before the pull request: it leaves out no token."""

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, groups: Sequence[KVCacheGroup], alignment: int
    ) -> int:
        """Return the tokens of all full blocks in the tier, including the prompt's last token."""
        end = request.num_tokens // alignment * alignment
        return min(self._run_end(request, group, num_computed_tokens, end) for group in groups) - num_computed_tokens


class FullExternalHit(Scenario):
    """A prompt of two full blocks, computed once, and then again with an empty pool and the same tier."""

    columns = (Column("vllm", tier=OffersEverything), Column("vllm", tier=HostStore))

    def play(self, lab: Lab) -> None:
        """Run A, which fills the tier; clear the pool's cache; run B for a step."""
        lab.add(token_ids=range(1, 9), max_tokens=1)
        lab.step()
        lab.reset_prefix_cache()
        lab.add(token_ids=range(1, 9), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count B's loaded tokens, B's computed tokens, and broken rules."""
        [computed] = [event.num_tokens for event in events_of(lab, RequestScheduled) if event.request_id == 1]
        loaded = sum(event.num_tokens for event in events_of(lab, ExternalHit))
        return {"tokens loaded": loaded, "tokens computed": computed, "rules broken": num_rules(lab)}
