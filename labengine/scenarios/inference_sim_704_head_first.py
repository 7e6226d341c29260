"""llm-d-inference-sim issue 704: a chain's head is evicted before its tail, and no look-up can reach the tail again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from labengine.core.request import Request
from labengine.core.vllm.full_attention import PromptTailGroup
from labengine.core.vllm.kv_cache_manager import VllmKVCacheManager
from labengine.events import BlockEvicted, FreeReason, PrefixHit
from labengine.lab import Lab
from labengine.record.snapshot import Snapshot
from labengine.scenarios.counts import num_hit_tokens
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    Scenario,
    moment_of,
    wrong_at,
)


class HeadFirst(PromptTailGroup):
    """Frees a table from its first entry on."""

    def freeing_order(self, num_entries: int) -> Sequence[int]:
        """Return the entries in the order of the table."""
        return range(num_entries)


class GroupsInReverse(VllmKVCacheManager):
    """vLLM's deferred free: the tables of all groups as one list, in reverse."""

    def free(self, request: Request, reason: FreeReason) -> None:
        """Free the last group's table first, and each table from its tail."""
        for group in reversed(self.groups):
            group.free(request, reason)


class OrderOfGroups(Experiment):
    """vLLM issue 48489 and pull request 48532: freed as one list, a later group's blocks are evicted first."""

    columns = (Column("vllm", GroupsInReverse), Column("vllm"))
    prompt = range(1, 26)

    def play(self, lab: Lab) -> None:
        """Run a prompt of six full blocks, then three short ones: they take two empty blocks and four others."""
        lab.generate([self.prompt], max_tokens=1)
        lab.generate([[100], [200], [300]], max_tokens=1)
        lab.generate([self.prompt], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count each group's remaining blocks, and the tokens that the second look-up finds."""
        assert lab.timeline is not None
        moment = moment_of(lab, PrefixHit, lambda event: event.request_id == 4)
        blocks = lab.timeline.state(moment or 0).snapshot().blocks
        left = Counter(group for block in blocks for group, _ in block.grouped_hashes)
        return {
            "blocks left in the full group": left[0],
            "blocks left in the window group": left[1],
            "tokens found": num_hit_tokens(lab, 4),
        }


class EvictedHeadFirst(Scenario):
    """The report's example."""

    columns = (Column("vllm", HeadFirst), Column("vllm"))
    experiments = {"order of groups": OrderOfGroups()}

    def play(self, lab: Lab) -> None:
        """Run a prompt of three full blocks, a prompt that needs one of those blocks, and the first prompt again."""
        for prompt in (range(1, 14), [100] * 8, range(1, 14)):
            lab.generate([prompt], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the prompt's blocks that the second look-up finds, and those cached but out of reach."""
        assert lab.timeline is not None
        moment = moment_of(lab, PrefixHit, lambda event: event.request_id == 2)
        cached = cached_links(lab.timeline.state(moment or 0).snapshot())
        found = num_hit_tokens(lab, 2) // 4
        return {"blocks found": found, "cached and out of reach": len(cached) - found}

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first eviction after which blocks of the chain are cached without the blocks before them."""
        timeline = lab.timeline
        assert timeline is not None
        for moment, event in enumerate(timeline.events(), timeline.num_dropped):
            if isinstance(event, BlockEvicted):
                links = cached_links(timeline.state(moment + 1).snapshot())
                if links != set(range(len(links))):
                    missing = min(set(range(3)) - links)
                    text = (
                        f"Block {missing + 1} of the chain is evicted, and {len(links) - missing} behind it stay "
                        f"cached."
                    )
                    return wrong_at(lab, moment, text)
        return None


def cached_links(snapshot: Snapshot) -> set[int]:
    """Return the cached full blocks of A's prompt (tokens 1, 2, 3 ...), counted from 0."""
    prompt = range(1, 100)
    first_tokens = (block.token_ids[0] for block in snapshot.blocks if block.token_ids)
    return {(token - 1) // 4 for token in first_tokens if token in prompt}
