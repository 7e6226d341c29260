"""Requests as a user gives them: checked to the last, then queued."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Any

from labengine.config import ConfigError, SamplingParams, checked_int, checked_text, is_single_int, shown
from labengine.core.request import ExtraKeys, Request
from labengine.engine.engine import Engine
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.loaded_model import LoadedModel
from labengine.session.keywords import refuse_unknown
from labengine.session.request_names import request_id_of
from labengine.session.stepper import Stepper
from labengine.session.time.inputs import AbortInput, AddInput, Inputs, ResetInput
from labengine.session.time.packed_tokens import pack


@dataclass(frozen=True, slots=True)
class ExtraKeySpec:
    """What a request's blocks depend on besides its tokens, as a user says it."""

    cache_salt: str | None = None
    extra_keys: Mapping[str, str] | None = None

    def checked(self) -> ExtraKeys:
        """(domain, value) pairs in the order of their domains. ConfigError for what is no mapping of texts."""
        keys = {} if self.extra_keys is None else self.extra_keys
        if not isinstance(keys, Mapping):
            raise ConfigError(f"extra_keys must be a mapping of names to texts, got {shown(keys)}")
        if "cache_salt" in keys:
            raise ConfigError("extra_keys may not hold 'cache_salt': give it as cache_salt=")
        pairs = ((checked_text("a name in extra_keys", k), checked_text(f"extra_keys[{k!r}]", keys[k])) for k in keys)
        return tuple(sorted(pairs))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that can run."""

    token_ids: list[int]
    sampling: SamplingParams
    cache_salt: str | None
    extra_keys: ExtraKeys

    def as_input(self, num_steps: int) -> AddInput:
        """To be remembered."""
        return AddInput(num_steps, pack(self.token_ids), self.sampling, self.cache_salt, self.extra_keys)


class Intake:
    """Checks change nothing; a call that wants several requests gets all of them or none."""

    def __init__(self, model: LoadedModel, stepper: Stepper, inputs: Inputs) -> None:
        self._model = model
        self._stepper = stepper
        self._inputs = inputs

    def checked(
        self,
        call: Callable[..., object],
        prompt: str | None,
        token_ids: Sequence[int] | None,
        keys: ExtraKeySpec,
        sampling: dict[str, Any],
    ) -> Wanted:
        """What the engine needs of a request, given as text or as token ids to the lab's method `call`.

        TypeError for a keyword that the method does not know, ConfigError for what can never run.
        """
        self._stepper.refuse_if_closed()
        refuse_unknown(f"{call.__name__}()", sampling, SamplingParams, call)
        params = SamplingParams(**sampling)
        params = _shared(params, repr(params))
        if prompt is not None and token_ids is None:
            ids = self._model.encode(prompt)
        elif token_ids is not None and prompt is None:
            ids = self._model.checked_ids(token_ids)
        else:
            raise ConfigError("give a request either a prompt or token_ids")
        self._model.refuse_too_long(len(ids), params.max_tokens)
        extra_keys = keys.checked()
        self._stepper.engine.new_request(0, ids, params, keys.cache_salt, extra_keys)
        return Wanted(ids, params, keys.cache_salt, extra_keys)

    def queue(self, requests: Sequence[Wanted]) -> list[int]:
        """Add requests one right after the other; their ids."""
        return [request.request_id for request in self.queue_all(requests)]

    def queue_all(self, requests: Sequence[Wanted]) -> list[Request]:
        """Add requests one right after the other; the requests, which outlive being forgotten."""
        with self._stepper.between_steps(), interrupts_deferred():
            return [self._add(wanted) for wanted in requests]

    def _add(self, wanted: Wanted) -> Request:
        engine = self._stepper.engine
        request_id = engine.add(wanted.token_ids, wanted.sampling, wanted.cache_salt, wanted.extra_keys)
        self._inputs.note(wanted.as_input(engine.num_finished_steps))
        return engine.requests[request_id]

    def abort(self, named: int | str) -> bool:
        """End a request; False when it had finished before. KeyError for an unknown one."""
        with self._stepper.between_steps(), interrupts_deferred():
            engine = self._stepper.engine
            request_id = self.request(named).request_id
            has_ended = engine.abort(request_id)
            if has_ended:
                self._inputs.note(AbortInput(engine.num_finished_steps, request_id))
            return has_ended

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content of the pool; False while some request holds blocks."""
        with self._stepper.between_steps(), interrupts_deferred():
            engine = self._stepper.engine
            was_reset = engine.reset_prefix_cache()
            if was_reset:
                self._inputs.note(ResetInput(engine.num_finished_steps))
            return was_reset

    def request(self, named: int | str) -> Request:
        """The request of that id, or of that letter. KeyError for an unknown one, ConfigError for what names none."""
        if not isinstance(named, str):
            checked_int("request_id", named)
        engine, asked = self._stepper.engine, request_id_of(named)
        request_id = index(asked) if is_single_int(asked) else -1  # type: ignore[arg-type]
        request = engine.requests.get(request_id)
        if request is None:
            raise KeyError(_unknown(named, request_id, engine))
        return request


@lru_cache(maxsize=256)
def _shared(params: SamplingParams, text: str) -> SamplingParams:
    """One record for all requests that ask for the same: their inputs are kept for good."""
    return params


def _unknown(named: object, request_id: int, engine: Engine) -> str:
    """What is said of a request that is not there: it never was, or it is kept no longer."""
    if 0 <= request_id < engine.num_added:
        keep = f"{engine.config.keep_finished:,}"
        return f"request {named!r} has finished and was forgotten: the newest {keep} are kept; see Lab(keep_finished=)"
    known = f"known are 0 to {engine.num_added - 1}" if engine.num_added else "none was added yet"
    return f"there is no request {shown(named)}; {known}"
