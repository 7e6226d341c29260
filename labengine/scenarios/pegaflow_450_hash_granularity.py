"""pegaflow pull request 450: the external tier stores a block under the hash of a shorter prefix.

The engine hashes every 128 tokens, but its blocks have 1536. The connector used hash number i for block number i.
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
        """Return the hashes with these numbers, each of a link of the chain instead of a block."""
        return request.block_hashes[first:end]


class HashGranularity(Scenario):
    """Two prompts of 17 tokens whose first four are equal; hashes every 2 tokens, blocks of 8."""

    columns = (Column("vllm", OneHashPerBlock), Column("vllm"))

    def play(self, lab: Lab) -> None:
        """Run A, which fills the tier; clear the pool's cache; run B."""
        for first in (100, 200):
            lab.add(token_ids=[1, 2, 3, 4, *range(first, first + 13)], max_tokens=1)
            lab.step()
            lab.reset_prefix_cache()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B has in common with A, the tokens it loads, and misreads."""
        loaded = sum(event.num_tokens for event in events_of(lab, ExternalHit) if event.request_id == 1)
        return {"tokens in common": 4, "tokens loaded": loaded, "requests that misread": num_misread_requests(lab)}
