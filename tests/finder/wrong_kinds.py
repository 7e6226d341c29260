"""Parts that go wrong with forks, beams, drafts, states, priorities or pictures alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labengine.core.beam_searches import BeamSearches
from labengine.core.block import BlockCopy
from labengine.core.drafts import Drafts
from labengine.core.full_attention import FullAttentionGroup
from labengine.core.hash_chain import HashChain
from labengine.core.kv_cache_manager import KVCacheManager, Moment
from labengine.core.request import BlockKeys, FinishReason, Request
from labengine.core.state_group import StateGroup
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.state_group import VllmStateGroup
from labengine.core.waiting_queue import PriorityQueue
from labengine.events import FreeReason

# -- forks -------------------------------------------------------------------------------------------------------------


class WritesSharedTails(FullAttentionGroup):
    """Writes to a block that other requests read."""

    def copies_before_write(self, request: Request, index: int) -> bool:
        return False


class CopiesAfterTheWrite(KVCacheManager):
    """Copies a block one step after the request has written to it."""

    late: tuple[BlockCopy, ...] = ()

    def take_copies(self) -> tuple[BlockCopy, ...]:
        self.late, copies = super().take_copies(), self.late
        return copies


class KeepsTheReference(FullAttentionGroup):
    """Drops no reference to a block that was copied."""

    def release(self, request: Request, block_ids: Sequence[int], indices: Sequence[int], reason: FreeReason) -> None:
        if reason != "copied":
            super().release(request, block_ids, indices, reason)


class CopiesTheFirstBlock(FullAttentionGroup):
    """Copies the table's first block, whichever is shared."""

    def copy(self, request: Request, index: int) -> BlockCopy:
        copied = super().copy(request, index)
        return replace(copied, block_id=request.block_tables[self.index][0])


class SharesTheSampledToken(FullAttentionGroup):
    """Counts the newest token as computed for a fork, although its KV was not written."""

    def num_shared_tokens(self, num_computed_tokens: int) -> int:
        return super().num_shared_tokens(num_computed_tokens) + 1


# -- beams -------------------------------------------------------------------------------------------------------------


class KeepsTheBlocksOfTheBeam(KVCacheManager):
    """Frees no blocks of a beam that another one replaces."""

    def free(self, request: Request, reason: FreeReason) -> None:
        if reason != "pruned":
            super().free(request, reason)


class KeepsTheTokensOfTheBeam(BeamSearches):
    """Gives a beam the blocks of another one, and leaves it its own tokens."""

    def take_tokens(self, beam: Request, token_ids: Sequence[int], parent: Request | None) -> None:
        if parent is None:
            super().take_tokens(beam, token_ids, parent)


# -- drafts ------------------------------------------------------------------------------------------------------------


class CountsRejectedDrafts(Drafts):
    """Counts the slots of rejected drafts as computed."""

    def judge(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> FinishReason | None:
        reason = super().judge(request, part, sampled)
        self.scheduler.count_computed(request, max(request.num_computed_tokens, min(part.end, request.num_tokens)))
        return reason


class AcceptsOneMore(Drafts):
    """Accepts the first draft that the model would not have sampled."""

    def num_accepted(self, drafts: Sequence[int], sampled: Sequence[int]) -> int:
        return min(len(drafts), super().num_accepted(drafts, sampled) + 1)


class RegistersDrafts(Drafts):
    """Registers the blocks that drafts fill before they are judged."""

    def judge(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> FinishReason | None:
        known = request.num_tokens
        request.token_ids += part.token_ids[-part.num_drafts :]
        self.manager.register(request, request.num_tokens, "computed")
        del request.token_ids[known:]
        return super().judge(request, part, sampled)


class KeepsDraftsWhenPreempted(TokenBudgetScheduler):
    """Keeps the drafts of a request that loses its blocks."""

    def take_blocks(self, victim: Request) -> None:
        drafts = victim.drafts
        super().take_blocks(victim)
        self.drafts.keep(victim, drafts)


class KeepsJudgedDrafts(Drafts):
    """Keeps the drafts that were judged, for the next step."""

    def judge(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> FinishReason | None:
        reason = super().judge(request, part, sampled)
        self._set(request, "drafts", part.token_ids[-part.num_drafts :])
        return reason


# -- states ------------------------------------------------------------------------------------------------------------


class GoesOnInAnEmptyBlock(StateGroup):
    """Continues in a fresh block without the earlier state."""

    def carry_over(self, request: Request, num_entries: int) -> BlockCopy | None:
        return None


class RegistersOneTokenEarly(KVCacheManager):
    """Registers a state, and a block beside it, one token before it has seen its tokens."""

    def num_registrable_tokens(self, request: Request, num_tokens: int, moment: Moment) -> int:
        registrable = super().num_registrable_tokens(request, num_tokens, moment)
        return registrable and min(registrable + 1, request.num_tokens)


class HitsStatesOfThisStep(VllmStateGroup):
    """Admits a request on a state that the same step computes, and so copies it too early."""

    def num_blocks_to_admit(self, hit: Sequence[int], num_computed_tokens: int, num_blocks: int) -> int:
        return StateGroup.num_blocks_to_admit(self, hit, num_computed_tokens, num_blocks)


class EndsChunksAnywhere(StateGroup):
    """Ends a chunk where the budget does, and registers states of other positions."""

    def chunk_end(self, request: Request, start: int, end: int) -> int:
        return end


class DropsTheRunningState(StateGroup):
    """Treats all computed tokens as skipped, including the last one, after which the state is needed."""

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens


class ForgetsCopiesOfOthers(VllmStateGroup):
    """Forgets all requests' pending copies of registered states when one of them ends."""

    def free(self, request: Request, reason: FreeReason) -> None:
        super().free(request, reason)
        self._journal.record((self.partial_entries.update, dict(self.partial_entries)))
        self.partial_entries.clear()


# -- priorities --------------------------------------------------------------------------------------------------------


class PreemptsTheMostUrgent(PriorityQueue):
    """Takes the blocks of the most urgent request."""

    def least_urgent(self, running: Sequence[Request]) -> Request:
        return min(running, key=self.order)


class TakesLargerForMoreUrgent(PriorityQueue):
    """Admits the request with the largest number first."""

    def order(self, request: Request) -> tuple[int, int, int | str]:
        priority, arrival, request_id = super().order(request)
        return -priority, arrival, request_id


class ForgetsTheArrival(PriorityQueue):
    """Admits the youngest of equally urgent requests first."""

    def order(self, request: Request) -> tuple[int, int, int | str]:
        priority, arrival, request_id = super().order(request)
        return priority, -arrival, request_id


class ForgetsThePriority(PriorityQueue):
    """Treats all requests as equally urgent."""

    def priority(self, request: Request) -> int:
        return 0


class LosesTheUrgent(PriorityQueue):
    """Loses a preempted request that is more urgent than 0."""

    def prepend_request(self, request: Request) -> None:
        if request.priority >= 0:
            super().prepend_request(request)


# -- pictures ----------------------------------------------------------------------------------------------------------


class ForgetsPictures(HashChain):
    """Hashes only the placeholder tokens."""

    def keyed(self, parent_hash: bytes, keys: BlockKeys) -> bytes:
        return parent_hash


class ForgetsPlaces(HashChain):
    """Hashes which picture a block shows, but not which part of it."""

    def keyed(self, parent_hash: bytes, keys: BlockKeys) -> bytes:
        return super().keyed(parent_hash, tuple((kind, name, 0) for kind, name, _ in keys))


class HashesTheLengthOfNames(HashChain):
    """Confuses pictures with equally long names."""

    def keyed(self, parent_hash: bytes, keys: BlockKeys) -> bytes:
        return super().keyed(parent_hash, tuple((kind, str(len(name)), start) for kind, name, start in keys))


class HashesThePictureOnce(HashChain):
    """Hashes a picture only in the block in which it begins, without its place."""

    def keyed(self, parent_hash: bytes, keys: BlockKeys) -> bytes:
        begun = tuple((kind, name, 0) for kind, name, start in keys if start >= 0)
        return super().keyed(parent_hash, begun) if begun else parent_hash


class HashesPicturesInTheFirstBlock(HashChain):
    """Recognizes pictures only at the prompt's beginning."""

    def keyed(self, parent_hash: bytes, keys: BlockKeys) -> bytes:
        return parent_hash if parent_hash else super().keyed(parent_hash, keys)
