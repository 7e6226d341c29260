"""Outputs of requests: completions so far, streamed text, and prompts run to completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from labengine.core.request import Request, RequestStatus
from labengine.engine.loaded_model import LoadedModel
from labengine.engine.request_options import RequestOptions
from labengine.session.history.breakpoints import Breakpoints
from labengine.session.requests import Requests
from labengine.session.runs import Runs
from labengine.session.settings import prompt_list
from labengine.session.stepper import Stepper

_UNFINISHED = "�"
"""A decoder prints this for bytes that a later token completes."""


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """One request's completion: token_ids without the prompt, eos included; text without special tokens.

    finish_reason: stop (eos), length (max_tokens) or abort; None while the request has not finished.
    """

    request_id: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None


class Outputs:
    """Reads completions, and takes steps until they are complete."""

    def __init__(
        self, model: LoadedModel, stepper: Stepper, requests: Requests, runs: Runs, breakpoints: Breakpoints
    ) -> None:
        self._model = model
        self._stepper = stepper
        self._requests = requests
        self._runs = runs
        self._breakpoints = breakpoints

    def output(self, name: int | str) -> RequestOutput:
        """Return a request's output so far. KeyError for one that is not kept."""
        return self._output_of(self._requests.named(name))

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        options: RequestOptions,
        n: int | None,
    ) -> list[RequestOutput]:
        """Add prompts and run until they have finished; return their outputs in order. See Lab.generate."""
        texts_and_ids = [(p, None) if isinstance(p, str) else (None, p) for p in prompt_list(prompts)]
        checked = [self._requests.checked(text, ids, options) for text, ids in texts_and_ids]
        self._runs.pause()
        added = self._requests.queue(checked, n)
        if added:
            self._runs.run(until=lambda: self._have_finished(added))
        return [self._output_of(request) for request in added]

    def stream(self, name: int | str) -> Iterator[str]:
        """Yield the text of a request piece by piece; a beam's text in one piece, since it may change until the end.

        Takes steps unless the background does.
        """
        return self._stream(self._requests.named(name))

    def _output_of(self, request: Request) -> RequestOutput:
        with self._stepper.reading_requests():
            token_ids = tuple(request.token_ids[request.num_prompt_tokens :])
            finish_reason = request.finish_reason
        return RequestOutput(request.request_id, token_ids, self._model.tokenizer.decode(token_ids), finish_reason)

    def _have_finished(self, requests: Sequence[Request]) -> bool:
        """Return True if the requests have finished. Reads between steps, as an open step may still be rolled back."""
        with self._stepper.reading():
            return all(request.finish_reason is not None for request in requests)

    def _stream(self, request: Request) -> Iterator[str]:
        text = _TextStream(self._model.tokenizer.decode, request.num_prompt_tokens)
        is_unfinished = True
        while is_unfinished and self._take_step_for(request):
            token_ids, is_unfinished = self._seen_between_steps(request)
            if request.sampling.beams == 1:
                yield from text.grown_by(token_ids)
            is_unfinished = is_unfinished and not self._breakpoints.is_hit
        yield from text.remainder(self._seen_between_steps(request)[0])

    def _seen_between_steps(self, request: Request) -> tuple[tuple[int, ...], bool]:
        """Return a request's tokens, and False if no more will come because it has finished or reset() removed it."""
        with self._stepper.reading():
            is_known = self._stepper.engine.requests.get(request.request_id) is request
            return tuple(request.token_ids), is_known and request.status is not RequestStatus.FINISHED

    def _take_step_for(self, request: Request) -> bool:
        """Take a step, or wait for the background's next one. Return False if nothing is left to do."""
        if self._runs.background.is_running:
            return True
        if not self._seen_between_steps(request)[1]:
            return False
        return bool(self._runs.run_one())


class _TextStream:
    """Cuts a growing completion into pieces of text; a character whose bytes are incomplete is held back."""

    def __init__(self, decode: Callable[[Sequence[int]], str], num_prompt_tokens: int) -> None:
        self._decode = decode
        self._num_prompt_tokens = num_prompt_tokens
        self._num_yielded = 0
        """Characters."""

    def grown_by(self, token_ids: Sequence[int]) -> Iterator[str]:
        """Yield the piece that the newest tokens added, if any."""
        text = self._decode(token_ids[self._num_prompt_tokens :])
        if not text.endswith(_UNFINISHED):
            yield from self._piece(text)

    def remainder(self, token_ids: Sequence[int]) -> Iterator[str]:
        """Yield the text still held back at the request's end."""
        yield from self._piece(self._decode(token_ids[self._num_prompt_tokens :]))

    def _piece(self, text: str) -> Iterator[str]:
        if len(text) > self._num_yielded:
            yield text[self._num_yielded :]
            self._num_yielded = len(text)
