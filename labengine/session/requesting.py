"""Requests at the desk: adding, chatting, aborting, and what they have generated so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labengine.core.request import Request
from labengine.session.assembled import Assembled
from labengine.session.intake import ExtraKeySpec
from labengine.session.outputs import RequestOutput


class Requesting(Assembled):
    """What a lab does with requests."""

    def add(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        cache_salt: str | None = None,
        extra_keys: Mapping[str, str] | None = None,
        **sampling: Any,
    ) -> int:
        """Queue a request, given as text or as token ids; returns its id, counted from 0.

        sampling: max_tokens=64, temperature=0.0 (greedy), top_k, top_p, seed, ignore_eos=False. Requests share cached
        blocks only under equal cache_salt and extra_keys (what KV depends on besides the tokens: {"adapter": "x"}).
        ConfigError, before anything changes, for what can never run.
        """
        keys = ExtraKeySpec(cache_salt, extra_keys)
        return self._intake.queue([self._intake.checked(Requesting.add, prompt, token_ids, keys, sampling)])[0]

    def chat(self, messages: Sequence[dict[str, str]], *, cache_salt: str | None = None, **sampling: Any) -> int:
        """Queue a conversation ([{"role": "user", "content": ...}, ...]) through the model's chat template."""
        ids = self._model.tokenizer.chat(messages)
        keys = ExtraKeySpec(cache_salt)
        return self._intake.queue([self._intake.checked(Requesting.chat, None, ids, keys, sampling)])[0]

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, by the tokenizer's defaults."""
        return self._model.encode(text)

    def abort(self, request_id: int | str) -> bool:
        """End a request (its id, or its letter), its blocks freed at once; False when it had finished before."""
        return self._intake.abort(request_id)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content of the pool; False, and nothing changes, while some request holds blocks.

        The external tier keeps what it holds: after a change of weights, give the next lab another store.
        """
        return self._intake.reset_prefix_cache()

    def output(self, request_id: int | str) -> RequestOutput:
        """What a request (its id, or its letter) has generated so far. KeyError for one that is not kept."""
        return self._output_of(self._intake.request(request_id))

    def _output_of(self, request: Request) -> RequestOutput:
        with self._stepper.turn_to_read():
            token_ids = tuple(request.token_ids[request.num_prompt_tokens :])
            finish_reason = request.finish_reason
        return RequestOutput(request.request_id, token_ids, self._model.tokenizer.decode(token_ids), finish_reason)
