"""nano-vLLM's scheduling: a step is either prefill or decode."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.kv_cache_group import NotGrantedError
from labengine.core.part_methods import class_name, definers
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request, RequestStatus
from labengine.core.scheduler import NOT_ADMITTED, Admission, Scheduler
from labengine.core.step_plan import ScheduledRequest, StepPlan

_CHECKS = ("can_admit", "admit")
_SETTINGS = (
    *("num_blocks", "groups", "hash_block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"),
    *("seed", "eos_token_ids", "keep_finished"),
)
"""The settings that it takes; any other one is refused."""


def refuse_all_but_full_attention(config: EngineConfig, connector: Connector | None) -> None:
    """Raise ConfigError for windows, states and an external tier."""
    if kind := next((group.kind for group in config.groups if group.kind != "full"), None):
        raise ConfigError(f"this edition has no {kind.replace('_', '-')} groups: use edition 'labengine' or 'vllm'")
    if connector is not None:
        raise ConfigError("this edition has no external tier: use edition 'labengine' or 'vllm', or external=None")


class PrefillFirstScheduler(Scheduler):
    """Schedules prefill before decode, never both in one step; only a step's first prompt may be split into chunks.

    max_num_seqs limits a step, not the running requests. Source: nano-vLLM's scheduler (bb823b3).
    """

    reserves_whole_prompts = True

    def serves_all(self, batch: Sequence[ScheduledRequest], running: Collection[int]) -> bool:
        """Return True for a decode step that is not full: a prefill step serves no running request."""
        return len(batch) < self.config.max_num_seqs and all(part.request_id in running for part in batch)

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError for windows, states, an external tier and settings that nano-vLLM does not have."""
        refuse_all_but_full_attention(config, connector)
        for setting in fields(config):
            if setting.name not in _SETTINGS and getattr(config, setting.name) != setting.default:
                name = "speculation" if setting.name == "num_drafts" else setting.name
                raise ConfigError(f"this edition has no {name}: omit it, or use edition 'labengine' or 'vllm'")

    def schedule(self) -> StepPlan:
        """Plan a prefill step while a waiting request fits, else a decode step."""
        return self._schedule_prefill() or self._schedule_decode()

    def _schedule_prefill(self) -> StepPlan | None:
        budget = self.config.max_num_batched_tokens
        batch: list[ScheduledRequest] = []
        while self.waiting and budget and len(batch) < self.config.max_num_seqs:
            request = self.next_waiting()
            num_tokens = self.admit(request, budget, is_first=not batch)
            if num_tokens is NOT_ADMITTED:
                break
            batch.append(self._prefill(request, num_tokens))
            budget -= num_tokens
        return StepPlan(tuple(batch)) if batch else None

    def _prefill(self, request: Request, num_tokens: int) -> ScheduledRequest:
        """Plan a request's prefill. The request keeps its place in the queue until its whole prompt is computed."""
        if request.num_computed_tokens + num_tokens < request.num_tokens:
            return self.plan(request, num_tokens, RequestStatus.WAITING)
        self._start_running(request)
        return self.plan(request, num_tokens, RequestStatus.RUNNING)

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Admit a prompt only if it fits the budget; the step's first may be split, or it would wait for ever."""
        hit = None if request.has_blocks else self.manager.find_prefix(request)
        if hit is not None and not self.manager.can_admit(request, hit):
            return NOT_ADMITTED
        missing = request.num_tokens - (request.num_computed_tokens if hit is None else hit.num_tokens)
        if missing > limit and not is_first:
            return NOT_ADMITTED
        if hit is not None:
            self._give_blocks(request, hit)
        return min(missing, limit)

    def _give_blocks(self, request: Request, hit: Hit) -> None:
        """Give an admissible request its blocks. Raises NotGrantedError if `admit` finds too few free blocks."""
        if not self.manager.admit(request, hit, request.num_tokens):
            can_admit, admit = (f"{class_name(definers(type(self.manager), name)[0])}.{name}" for name in _CHECKS)
            raise NotGrantedError(
                request.request_id,
                f"{can_admit} accepts request {request.request_id}, but {admit} finds too few free blocks for it",
            )

    def _schedule_decode(self) -> StepPlan:
        batch: list[ScheduledRequest] = []
        preempted: list[int] = []
        while len(batch) < min(len(self.running), self.config.max_num_seqs):
            request = self.running[len(batch)]
            if self.allocate_or_preempt(request, request.num_tokens, batch, preempted):
                batch.append(self.plan(request, 1, RequestStatus.RUNNING))
        return StepPlan(tuple(batch), tuple(preempted))


class UnchunkedScheduler(PrefillFirstScheduler):
    """Never splits a prompt into chunks: a step admits a request only if its whole length fits the budget."""

    cuts_prompts = False

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError unless there is one group, with hash_block_size as its block size."""
        super().refuse_what_it_lacks(config, connector)
        if len(config.groups) > 1 or config.hash_block_size != config.groups[0].block_size:
            raise ConfigError("this edition has a single KV-cache group, so hash_block_size must be its block size")

    def refuse_what_never_fits(self, request: Request) -> None:
        """Raise ConfigError also for a request longer than a step: it would wait for ever and block all behind it."""
        super().refuse_what_never_fits(request)
        limit = self.config.max_num_batched_tokens
        if request.max_kv_tokens > limit:
            raise ConfigError(
                f"this edition computes a prompt in one step: {request.num_prompt_tokens} tokens with "
                f"max_tokens={request.sampling.max_tokens} (after a preemption all are recomputed) need "
                f"max_num_batched_tokens={request.max_kv_tokens} or more, but it is {limit}"
            )

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Admit the request if all its tokens fit the budget; charge only those missing from the cache."""
        if request.num_tokens > limit:
            return NOT_ADMITTED
        hit = self.manager.find_prefix(request)
        if not self.manager.can_admit(request, hit):
            return NOT_ADMITTED
        self._give_blocks(request, hit)
        return request.num_tokens - hit.num_tokens
