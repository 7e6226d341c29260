"""SGLang's scheduling: it reserves a guess of what requests still need, and retracts some when the guess was low."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, cast

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.prefix_lookup import Hit
from labengine.core.radix.scheduler import RadixScheduler
from labengine.core.request import FinishReason, Request
from labengine.core.scheduler import NOT_ADMITTED, Admission
from labengine.core.sglang.full_attention import SglangGroup
from labengine.core.sglang.kv_cache_manager import SglangKVCacheManager
from labengine.core.step_plan import StepPlan


class SglangScheduler(RadixScheduler):
    """Admits first come, first served, while a share of what running requests may still sample fits.

    max_num_batched_tokens is SGLang's chunked_prefill_size, max_num_seqs its max_running_requests. Source: Scheduler
    and PrefillAdder of SGLang 0.5.23, with event_loop_normal.
    """

    manager: SglangKVCacheManager

    first_new_token_ratio = 0.7
    """new_token_ratio of an idle engine (SGLANG_INIT_NEW_TOKEN_RATIO)."""

    smallest_share = 0.14
    """How far new_token_ratio falls, as a share of its first value (SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR)."""

    num_decay_steps = 600
    """Decode steps in which it falls that far (SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS)."""

    num_retract_steps = 20
    """Decode steps for which a retraction makes room (SGLANG_RETRACT_DECODE_STEPS)."""

    most_new_tokens = 4096
    """Most tokens to come that are counted for one request (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""

    refresh_interval = 32
    """Passes over the waiting queue from one refresh of its cached prefixes to the next."""

    most_refreshed = 128
    """Most waiting requests that one refresh covers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.new_token_ratio = self.first_new_token_ratio
        """Share of the tokens to come that is reserved for each running request."""
        self.is_full = False
        """True from a refused admission until a running request leaves; no other is tried in between."""
        self.num_passes = 0
        """Passes over the waiting queue so far."""
        self.aborted: dict[int, bool] = {}
        """Running requests that end after their next token."""
        self.num_reserved: float = 0
        """Tokens reserved while a step's prompts are chosen."""

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError also for steps shorter than a block: a prompt is split at the end of one."""
        super().refuse_what_it_lacks(config, connector)
        size = config.groups[0].block_size
        if config.max_num_batched_tokens < size:
            raise ConfigError(
                f"this edition splits prompts into whole blocks: max_num_batched_tokens must be at least the block "
                f"size, {size}, but is {config.max_num_batched_tokens}"
            )

    def refuse_what_never_fits(self, request: Request) -> None:
        """Raise ConfigError also for a request whose max_tokens SGLang would lower, to keep one more block free."""
        super().refuse_what_never_fits(request)
        num_slots = self.pool.num_usable * self.block_size
        most = num_slots - self.in_whole_blocks(request.num_prompt_tokens) - self.block_size - 1
        if request.sampling.max_tokens > most:
            raise ConfigError(
                f"this edition keeps a block and a slot free beside a request: a prompt of {request.num_prompt_tokens} "
                f"tokens in {num_slots} slots leaves room for max_tokens={max(0, most)}, not "
                f"{request.sampling.max_tokens}: shorten the prompt, lower max_tokens, or use more blocks"
            )

    # -- prefill -------------------------------------------------------------------------------------------------------

    def schedule(self) -> StepPlan:
        """Insert the chunk that the last step computed into the tree; then plan a step."""
        if (chunked := self.chunked) is not None:
            self.manager.register(chunked, chunked.num_computed_tokens, "computed")
        return super().schedule()

    @property
    def chunked(self) -> Request | None:
        """The request in the middle of its prefill, of which there is at most one, at the head of the queue."""
        return self.waiting[0] if self.waiting and self.waiting[0].has_blocks else None

    def make_room_for(self, chosen: Sequence[tuple[Request, int]]) -> None:
        """Evict ahead of need: with blocks of several tokens, one block more for each prompt than its tokens fill."""
        num_tokens = sum(num_tokens for _, num_tokens in chosen)
        num_more = len(chosen) if self.block_size > 1 else 0
        self.pool.make_room(num_more + self.num_blocks(num_tokens))

    def _choose_prompts(self) -> list[tuple[Request, int]]:
        if self.chunked is None and (not self.may_admit() or self._note_if_crowded(0)):
            return []
        self._refresh_prefixes()
        self.num_reserved = sum([self.num_expected(request) for request in self.running])
        chosen = self._continue_chunked()
        for request in islice(self.waiting, len(chosen), None):
            budget = self.config.max_num_batched_tokens - sum(self.in_whole_blocks(number) for _, number in chosen)
            if budget <= 0 < self.num_left or self._note_if_crowded(len(chosen)):
                break
            if (num_tokens := self.admit(request, budget, is_first=not chosen)) is NOT_ADMITTED:
                break
            chosen.append((request, num_tokens))
            if self.num_left <= 0:
                self._note_full()
                break
        return chosen

    def may_admit(self) -> bool:
        """Return False while no request waits, or none is tried because one was refused and none has left since."""
        return bool(self.waiting) and not (self.running and self.is_full)

    def _note_if_crowded(self, num_chosen: int) -> bool:
        """Note, and return, whether as many requests as may run are running or chosen."""
        if is_crowded := len(self.running) + num_chosen >= self.config.max_num_seqs:
            self._note_full()
        return is_crowded

    def _note_full(self) -> None:
        """Try no further request until one leaves. Only a batch that was running before this step keeps the mark."""
        self._set(self, "is_full", bool(self.running))

    def _continue_chunked(self) -> list[tuple[Request, int]]:
        """Return the request in the middle of its prefill, and how much of it this step computes: never nothing."""
        if (request := self.chunked) is None:
            return []
        limit, num_left = self.config.max_num_batched_tokens, int(self.num_left)
        missing = self.num_to_compute(request)
        num_tokens = min(missing, limit, num_left) if num_left > 0 else min(missing, limit)
        self._reserve(request, num_tokens, is_last=num_tokens == missing)
        return [(request, num_tokens)]

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Admit a request if its prompt and all it may sample fit beside what is reserved.

        A prompt beyond the limit is split at the end of a block. A refused request's look-up has changed the tree.
        """
        hit = self.manager.find_prefix(request)
        num_tokens = request.num_tokens - hit.num_tokens
        if not self.fits(request, hit):
            self._note_full()
            return NOT_ADMITTED
        if is_split := self.in_whole_blocks(num_tokens) > limit:
            num_tokens = limit // self.block_size * self.block_size
        if not num_tokens or not self.manager.admit(request, hit, hit.num_tokens):
            return NOT_ADMITTED
        self._reserve(request, num_tokens, is_last=not is_split)
        return num_tokens

    def fits(self, request: Request, hit: Hit) -> bool:
        """Compare the request's tokens, known and to come, with the slots that are left once its hit is locked."""
        num_locked = self.group.num_newly_locked(hit.block_ids[0]) * self.block_size
        num_tokens = request.num_tokens - hit.num_tokens + self.num_to_come(request) + self.block_size
        return num_tokens < self.num_left - num_locked

    @property
    def num_left(self) -> float:
        """Slots that can be taken and are not reserved."""
        return self.pool.num_free * self.block_size - self.num_reserved

    def _reserve(self, request: Request, num_tokens: int, *, is_last: bool) -> None:
        num_new = min(request.sampling.max_tokens, self.most_new_tokens) if is_last else 0
        self.num_reserved += self.in_whole_blocks(num_tokens) + self.block_size + num_new

    def _refresh_prefixes(self) -> None:
        """In every 32nd pass, make the cached prefixes of waiting requests the youngest, the head's last."""
        first = int(self.chunked is not None)
        if len(self.waiting) == first:
            return
        if self.num_passes % self.refresh_interval == 0:
            for request in reversed([*islice(self.waiting, first, first + self.most_refreshed)]):
                self.manager.refresh_prefix(request)
        self._set(self, "num_passes", self.num_passes + 1)

    # -- decode --------------------------------------------------------------------------------------------------------

    def _schedule_decode(self) -> StepPlan:
        """Plan a decode. One block for each request is evicted ahead of need, whether or not it opens one."""
        retracted = self._retract_or_decay() if self.running else []
        self.pool.make_room(len(self.running))
        return replace(super()._schedule_decode(), preempted=tuple(retracted))

    def _retract_or_decay(self) -> list[int]:
        """Retract requests if the step's blocks cannot be had, else reserve a little less; return the retracted."""
        if self.has_blocks_to_decode():
            smallest = self.first_new_token_ratio * self.smallest_share
            decay = (self.first_new_token_ratio - smallest) / self.num_decay_steps
            self._set(self, "new_token_ratio", max(self.new_token_ratio - decay, smallest))
            return []
        retracted = self._retract()
        self._set(self, "is_full", False)
        self._set(self, "new_token_ratio", self.ratio_after_retraction())
        return retracted

    def has_blocks_to_decode(self) -> bool:
        """Evict until each running request can have its next slot; return False if that does not suffice."""
        num_missing = sum(self.group.num_missing_blocks(request, request.num_tokens) for request in self.running)
        self.pool.make_room(num_missing)
        return num_missing <= len(self.pool.free_queue)

    def _retract(self) -> list[int]:
        """Retract requests until the next slots of the others can be had: at least one, but not the last.

        That one always fits: see refuse_what_never_fits.
        """
        self._sort_running()
        retracted: list[int] = []
        while len(self.running) > 1 and not (retracted and self.has_blocks_to_decode()):
            victim = self.choose_victim(self.running[-1])
            self._preempt_for_blocks(victim)
            retracted.append(victim.request_id)
            self.pool.make_room(self.num_blocks(len(self.running) * self.num_retract_steps))
        return retracted

    def _sort_running(self) -> None:
        """Put requests with many sampled tokens first, then those with short prompts; the last is retracted first.

        The order stays: the batch is rebuilt in it.
        """
        self._journal.record((self.running.__setitem__, slice(None), [*self.running]))
        self.running.sort(key=lambda request: (-request.num_generated_tokens, request.num_prompt_tokens))

    def choose_victim(self, request: Request) -> Request:
        """Return the request with the fewest sampled tokens, among those the one with the longest prompt.

        They have been sorted: it is the last, unless a waiting queue decides otherwise.
        """
        return super().choose_victim(request)

    def requeue(self, request: Request) -> None:
        """Queue a retracted request at the back."""
        self._journal.record((self._take_out, request))
        self.waiting.add_request(request)

    def ratio_after_retraction(self) -> float:
        """Return the share that covers the tokens sampled so far and those of the next steps."""
        num_sampled = sum(request.num_generated_tokens for request in self.running)
        num_soon = self.num_retract_steps * len(self.running)
        most = sum(request.sampling.max_tokens for request in self.running)
        return min(1.0, (num_sampled + num_soon) / (most + 1))

    # -- results, and ends ---------------------------------------------------------------------------------------------

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Book a computed step. All that it frees joins the free queue together, at the end."""
        with self.group.freed_together():
            finished = super().update(plan, sampled)
        if finished or not all(part.samples for part in plan.scheduled):
            self._set(self, "is_full", False)
        self.rest_if_idle()
        return finished

    def _end_running(self, request: Request, reason: FinishReason) -> int:
        """Insert the request's blocks at its turn; it ends when the step's frees are made."""
        self.manager.keep(request)
        self._remove_running(request)
        self.group.free_in_group(partial(self.finish, request, reason))
        return request.request_id

    def abort(self, request: Request) -> None:
        """End a request that waits or is in its prefill. A running one is computed once more, and then ends."""
        if request in self.running:
            self._journal.put(self.aborted, request.request_id, True)
            return
        super().abort(request)
        self.rest_if_idle()

    def finish_reason(self, request: Request) -> FinishReason | None:
        """Return "abort" for an aborted request, whatever its token; for others as RequestQueues does."""
        is_aborted = request.request_id in self.aborted or request.finish_reason == "abort"
        return "abort" if is_aborted else super().finish_reason(request)

    def finish(self, request: Request, reason: FinishReason) -> None:
        """End a request; nothing more is noted of its abort."""
        super().finish(request, reason)
        if request.request_id in self.aborted:
            self._journal.put(self.aborted, request.request_id, None)

    def beside_queues(self) -> Hashable:
        """Return what the next steps admit by, and which running requests will end."""
        aborted = tuple([request.request_id in self.aborted for request in self.running])
        return self.is_full, self.new_token_ratio, self.num_passes % self.refresh_interval, aborted

    def rest_if_idle(self) -> None:
        """Start over with new_token_ratio when nothing is left to run."""
        if self.is_idle:
            self._set(self, "new_token_ratio", self.first_new_token_ratio)

    # -- counting ------------------------------------------------------------------------------------------------------

    def num_to_come(self, request: Request) -> int:
        """Return how many tokens may still be sampled for a request, as far as they are counted."""
        return min(request.sampling.max_tokens - request.num_generated_tokens, self.most_new_tokens)

    def num_expected(self, request: Request) -> float:
        """Return the tokens to reserve for a running request: all if only its length ends it, else a share."""
        return self.num_to_come(request) * (1.0 if request.sampling.ignore_eos else self.new_token_ratio)

    def num_blocks(self, num_tokens: int) -> int:
        """Return how many blocks num_tokens tokens fill."""
        return -(-num_tokens // self.block_size)

    def in_whole_blocks(self, num_tokens: int) -> int:
        """Return num_tokens, rounded up to whole blocks."""
        return self.num_blocks(num_tokens) * self.block_size

    @property
    def group(self) -> SglangGroup:
        """The only group."""
        return cast(SglangGroup, self.manager.groups[0])
