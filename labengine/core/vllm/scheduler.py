"""vLLM's synchronous scheduler (0.32): its differences from labengine's."""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import ClassVar

from labengine.config import ConfigError, EngineConfig
from labengine.core.connector import Connector
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.scheduler import NOT_ADMITTED, Admission
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.core.vllm.drafts import num_read_ahead, refuse_failing
from labengine.events import UNKNOWN_TOKEN


class VllmScheduler(TokenBudgetScheduler):
    """A scheduler without forks: vLLM v1's n answers to a prompt are n requests that share cached blocks."""

    capabilities: ClassVar[tuple[str, ...]] = ("hand_over",)

    _has_run = _has_prefilled = False
    """In the step being planned: whether it schedules requests that ran before, and one of these in its prompt."""

    def refuse_what_it_lacks(self, config: EngineConfig, connector: Connector | None) -> None:
        """Raise ConfigError for settings with which vLLM fails, or whose effects are not modelled."""
        super().refuse_what_it_lacks(config, connector)
        refuse_failing(config)

    def refuse_forks(self, num_answers: int = 1) -> None:
        """Accept any number, because answers need not run together."""

    def refuse_beams(self, num_beams: int) -> None:
        """Raise ConfigError: vLLM's scheduler has no beams."""
        raise ConfigError(
            "edition 'vllm' has no beam search: vLLM's is a front end that asks the scheduler for one token of each "
            "beam at a time, as separate requests. Use edition 'labengine'"
        )

    def refuse_what_never_fits(self, request: Request) -> None:
        """Raise ConfigError for a request too large for the pool with all its drafts and the drafter's KV.

        vLLM 0.32 lets such a request wait for ever, and all behind it: its own bound on what a window holds, by which
        it sizes the pool, leaves out the drafter's slots.
        """
        super().refuse_what_never_fits(request)
        config, num_usable = self.config, self.manager.pool.num_usable
        if (needed := self._most_blocks(request)) > num_usable:
            raise ConfigError(
                f"with {config.num_drafts} drafts a prompt of {request.num_prompt_tokens} tokens with max_tokens="
                f"{request.sampling.max_tokens} needs {needed} blocks, but the pool has {num_usable}: lower one of "
                f"these, or use num_blocks={needed + config.num_blocks - num_usable} or more"
            )

    def _most_blocks(self, request: Request) -> int:
        """Return the most blocks that a request holds in a step, be it a chunk of its text or a decode with drafts.

        A window's blocks depend on where in a block the step starts, so the last steps are tried at each such place.
        """
        config, end, groups = self.config, request.max_kv_tokens, self.manager.groups
        num_places = lcm(*(g.block_size for g in groups if not g.keeps_states and g.num_skipped_tokens(end)))
        longest = min(config.max_num_batched_tokens - self.drafts.num_inputs, end)
        chunks = range(max(0, end - longest - num_places + 1), end - longest + 1)
        decodes = range(max(request.num_prompt_tokens - 1, end - num_places), end)
        return max(
            *(self._num_held(request, start, start + longest) for start in chunks),
            *(self._num_held(request, start, start + 1 + config.num_drafts) for start in decodes),
        )

    def _num_held(self, request: Request, start: int, end: int) -> int:
        """Return how many blocks a request holds in a step that computes its tokens [start, end)."""
        num_slots = self.manager.num_slots(request, end)
        return sum(
            group.max_blocks_held(end)
            if group.keeps_states
            else -(-num_slots // group.block_size) - group.num_skipped_tokens(start) // group.block_size
            for group in self.manager.groups
        )

    def num_plannable(self, request: Request) -> int:
        """Return how many tokens a step could compute while leaving a position for the sampled token."""
        num_tokens = self.num_known(request) + self.drafts.num_affordable(request) - request.next_position
        if self.config.max_model_len:
            num_tokens = min(num_tokens, self.config.max_model_len - request.next_position - 1)
        return num_tokens

    def num_known(self, request: Request) -> int:
        """Return how many tokens a request has when its next step begins, without drafts."""
        return len(request.token_ids)

    def clipped(self, request: Request, start: int, num_tokens: int) -> int:
        """Return how many tokens a chunk has. With MTP it ends before the tokens that the last module reads ahead, or
        with the prompt.

        0 if none are left: the request waits for more of a step's budget.
        """
        num_tokens = super().clipped(request, start, num_tokens)
        num_ahead = num_read_ahead(self.config)
        if 0 < (num_left := request.num_tokens - start - num_tokens) < num_ahead:
            num_tokens -= num_ahead - num_left
        return max(num_tokens, 0)

    def waits_for_modules(self, request: Request, budget: int) -> bool:
        """Return True while a chunk could only end among a prompt's last tokens, which the modules of MTP read ahead.

        The request waits for a budget with which the chunk ends the prompt, or ends before those tokens.
        """
        num_left = request.num_tokens - request.num_computed_tokens
        num_behind = num_left - min(budget, self.longest_chunk(), num_left)
        return num_behind > 0 and num_left <= num_read_ahead(self.config)

    def _schedule_running(self, chunk: int, preempted: list[int]) -> list[ScheduledRequest]:
        were_prefilling = {request.request_id for request in self.running if request.is_prefilling}
        batch = super()._schedule_running(chunk, preempted)
        self._has_run = bool(batch)
        self._has_prefilled = any(part.request_id in were_prefilling for part in batch)
        return batch

    def num_admitted(self, request: Request, num_computed: int, limit: int) -> Admission:
        """Return how many tokens an admitted request computes.

        A request with a single token left is padded with placeholders for drafts, so that all decodes of the step have
        the same length; if they do not fit, it waits.
        """
        num_tokens = super().num_admitted(request, num_computed, limit)
        num_padded = 1 + self.config.num_drafts
        if not self._is_padded(request, num_computed):
            return num_tokens
        if num_padded > limit:
            return NOT_ADMITTED
        return num_padded if self.clipped(request, num_computed, num_padded) == num_padded else num_tokens

    def _is_padded(self, request: Request, num_computed: int) -> bool:
        is_decode = request.num_tokens - num_computed == 1 and not self._has_prefilled
        end, limit = num_computed + 1 + self.config.num_drafts, self.config.max_model_len
        has_room = not limit or end + 1 <= limit
        return self.config.num_drafts > 0 and is_decode and has_room and (self._has_run or num_computed > 0)

    def plan(self, request: Request, num_tokens: int, status: RequestStatus) -> ScheduledRequest:
        """Add a request with its blocks to the step, with placeholders if it was padded."""
        num_padding = request.num_computed_tokens + num_tokens - request.num_tokens - len(request.drafts)
        if num_padding > 0:
            self.drafts.keep(request, (UNKNOWN_TOKEN,) * num_padding)
        part = self._with_checkpoint(request, super().plan(request, num_tokens, status))
        if request.is_prefilling is part.samples:
            self._set(request, "is_prefilling", not part.samples)
        return part

    def _with_checkpoint(self, request: Request, part: ScheduledRequest) -> ScheduledRequest:
        """Return a request's share of a step with its checkpoint, if any."""
        position = self.manager.checkpoint(request)
        return replace(part, checkpoint=position) if position else part

    def finish_reason(self, request: Request) -> FinishReason | None:
        """Return "length" also at max_model_len."""
        if request.num_tokens == self.config.max_model_len:
            return super().finish_reason(request) or "length"
        return super().finish_reason(request)
