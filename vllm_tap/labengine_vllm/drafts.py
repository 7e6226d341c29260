"""Observers of speculative decoding: guesses that a request gets, that a step computes, and that the model judges.

With asynchronous scheduling vLLM's scheduler has only the numbers of guesses: their tokens stay in the worker.
"""

from __future__ import annotations

from typing import Any

from labengine_vllm.engine import Engine
from labengine_vllm.kinds import DRAFTS_JUDGED, TOKENS_DRAFTED
from labengine_vllm.recorder import Recorder
from labengine_vllm.tokens import LEFT_OUT
from labengine_vllm.wrapping import Wrapping


class DraftObserver:
    """Observes the guesses of one scheduler's requests."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        self._scheduler, self._recorder = engine.scheduler, recorder
        self._is_async = engine.is_async
        self._scheduled: dict[str, int] = {}
        """Number of guesses of each request that the step being booked has computed."""

    def watch(self, wrapping: Wrapping) -> None:
        """Wrap the method that brings guesses to a synchronous scheduler."""
        if not self._is_async:
            wrapping.watch(self._scheduler, "update_draft_token_ids", self._before_drafts, self._after_drafts)

    def _before_drafts(self, draft_token_ids: Any) -> dict[str, tuple[int, ...]]:
        """Note the guesses; return each request's earlier ones."""
        recorder, requests = self._recorder, self._scheduler.requests
        named = zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=True)
        guessed = {name: tuple(tokens) for name, tokens in named if name in requests}
        shown = guessed if recorder.tokens.are_sent else {name: (LEFT_OUT,) * len(one) for name, one in guessed.items()}
        recorder.note("drafts", [(recorder.id_of(name), tokens) for name, tokens in shown.items()])
        return {name: recorder.tokens.drafts(requests[name]) for name in guessed}

    def _after_drafts(self, before: dict[str, tuple[int, ...]], result: None, draft_token_ids: Any) -> None:
        recorder = self._recorder
        for name, known in before.items():
            drafts = recorder.tokens.drafts(self._scheduler.requests[name])
            if drafts != known:
                recorder.rows.append((TOKENS_DRAFTED, recorder.id_of(name), drafts))

    def report_scheduled(self, request: Any, end: int) -> int:
        """Return the number of guesses among a request's tokens up to `end`, which a step is about to compute.

        vLLM pads a request that is admitted to decode: its guesses have no tokens, and a step rejects them.
        """
        num_drafts = max(0, int(end - request.num_tokens - request.num_output_placeholders))
        if num_drafts and not request.spec_token_ids and not self._is_async:
            self._recorder.rows.append((TOKENS_DRAFTED, self._recorder.id_of(request.request_id), (-1,) * num_drafts))
        return num_drafts

    def begin_booking(self, output: Any) -> None:
        """Note the guesses of a step whose output is about to be booked."""
        self._scheduled = {name: len(drafts) for name, drafts in output.scheduled_spec_decode_tokens.items()}

    def num_scheduled(self, name: str) -> int:
        """Return the number of a request's guesses that the step has computed."""
        return self._scheduled.get(name, 0)

    def report_judged(self, request: Any, num_accepted: int) -> bool:
        """Report the guesses of a request that the model accepts; return False if the step has computed none."""
        num_drafts = self._scheduled.pop(request.request_id, 0)
        if not num_drafts:
            return False
        number = self._recorder.id_of(request.request_id)
        self._recorder.rows.append((DRAFTS_JUDGED, number, num_accepted, num_drafts - num_accepted))
        return True

    def report_unjudged(self, request: Any) -> None:
        """Report dropped guesses that a step has computed without any output."""
        if self._scheduled.pop(request.request_id, 0) and not self._is_async:
            self._recorder.rows.append((TOKENS_DRAFTED, self._recorder.id_of(request.request_id), ()))
