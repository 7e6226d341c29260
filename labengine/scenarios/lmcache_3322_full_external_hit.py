"""LMCache pull request 3322: the external tier holds a complete prompt, and offers all of it.

Both columns load within the step. vLLM asserts for such loads alone that a token is left to compute; LMCache's MP
connector loads asynchronously, and then vLLM takes the last token back by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.request import Request
from labengine.engine.external.host import HostStore
from labengine.events import ExternalHit, RequestScheduled
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_rules
from labengine.scenarios.scenario import Column, Scenario


class OffersEverything(HostStore):
    """The MP connector before the pull request: it leaves no token out."""

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int, groups: Sequence[KVCacheGroup], alignment: int
    ) -> int:
        """Return the tokens of all full blocks that the tier has, the prompt's last token included."""
        end = request.num_tokens // alignment * alignment
        return min(self._run_end(request, group, num_computed_tokens, end) for group in groups) - num_computed_tokens


class FullExternalHit(Scenario):
    """One prompt of two full blocks, computed once; then again with an empty pool and the same tier."""

    columns = (
        Column(parts="vllm", tier=OffersEverything),
        Column(parts="vllm", tier=HostStore),
    )

    def play(self, lab: Lab) -> None:
        """Run A, which fills the tier; forget what the pool has cached; run B for a step."""
        lab.add(token_ids=range(1, 9), max_tokens=1)
        lab.step()
        lab.reset_prefix_cache()
        lab.add(token_ids=range(1, 9), max_tokens=2)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens of B that are loaded and computed, and broken rules."""
        [computed] = [event.num_tokens for event in events_of(lab, RequestScheduled) if event.request_id == 1]
        loaded = sum(event.num_tokens for event in events_of(lab, ExternalHit))
        return {"tokens loaded": loaded, "tokens computed": computed, "rules broken": num_rules(lab)}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if no token was computed."""
        return measured["tokens computed"] == 0


SCENARIO = FullExternalHit()
