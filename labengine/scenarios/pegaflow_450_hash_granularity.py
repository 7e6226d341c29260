"""pegaflow pull request 450: the external tier files a block under the hash of a shorter prefix.

The engine hashes every 128 tokens, its blocks have 1536. The connector took hash number i for block number i.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.request import Request
from labengine.core.vllm.full_attention import PromptTailGroup
from labengine.events import ExternalHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_misread_requests
from labengine.scenarios.scenario import Column, Scenario


class OneHashPerBlock(PromptTailGroup):
    """The connector's reading of the hash list."""

    def tier_hashes(self, request: Request, first: int, end: int) -> Sequence[bytes]:
        """Return the hashes of these numbers: those that close a link of the chain, not a block."""
        return request.block_hashes[first:end]


class HashGranularity(Scenario):
    """Two prompts of 17 tokens, of which the first four are equal; hashes every 2 tokens, blocks of 8."""

    columns = (Column("vllm", OneHashPerBlock), Column("vllm"))

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
