"""Requests of a lab: checked, then queued; ended; and found by id or name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from labengine.config import ConfigError, SamplingKeywords, SamplingParams, as_int, checked_int, checked_text, shown
from labengine.core.request import ExtraKeys, Request
from labengine.core.waiting_queue import WaitingQueue
from labengine.engine.engine import Engine
from labengine.engine.loaded_model import LoadedModel
from labengine.engine.request_options import RequestOptions, salted
from labengine.session.history.inputs import AbortInput, AddInput, BranchInput, Input, Inputs, ResetInput, pack
from labengine.session.images import checked_images, refuse_images_beyond
from labengine.session.settings import refuse_unknown, request_id_of
from labengine.session.stepper import Stepper


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request that this lab can run, not queued yet."""

    request: Request
    options: RequestOptions
    """The options as given; the waiting queue may change the request's priority."""
    leader_id: int | None = None
    """The request with the same prompt that it forks from."""

    def as_input(self, num_steps: int) -> AddInput:
        """Return the input to keep, for a request queued after `num_steps` steps."""
        prompt = self.request.token_ids[: self.request.num_prompt_tokens]
        return AddInput(num_steps, pack(prompt), self.options, self.leader_id)


class Requests:
    """Adds and ends requests. A check changes nothing; a call that adds several requests adds all or none."""

    def __init__(self, model: LoadedModel, stepper: Stepper, inputs: Inputs) -> None:
        self._model = model
        self._stepper = stepper
        self._inputs = inputs

    def add(
        self, prompt: str | None, token_ids: Sequence[int] | None, options: RequestOptions, n: int | None
    ) -> int | list[int]:
        """Queue a request with a prompt as text or as token ids; return its id, or the ids of n answers or of beams."""
        return self.queue_answers(self.checked(prompt, token_ids, options), n)

    def chat(self, messages: Sequence[dict[str, str]], options: RequestOptions, n: int | None) -> int | list[int]:
        """Queue a conversation through the model's chat template; return its id, or ids, as `add` does."""
        return self.add(None, self._model.tokenizer.chat(messages), options, n)

    def checked(self, prompt: str | None, token_ids: Sequence[int] | None, options: RequestOptions) -> CheckedRequest:
        """Return a checked request. Raises ConfigError for one that can never run."""
        self._stepper.refuse_if_closed()
        if options.sampling.beams > 1:
            self._model.refuse_call("beams")
        ids = self._model.prompt_ids("a request", prompt, token_ids)
        self._model.refuse_too_long(len(ids), options.sampling.max_tokens)
        refuse_images_beyond(options.images, len(ids))
        engine, shared = self._stepper.engine, _shared(options, repr(options))
        return CheckedRequest(engine.maker.request(engine.num_added, ids, shared), shared)

    @property
    def options(self) -> tuple[str, ...]:
        """The options among n, beams and priority that the scheduler supports."""
        scheduler = self._stepper.engine.scheduler
        refusals: dict[str, Callable[[int], object]] = {"n": scheduler.refuse_forks, "beams": scheduler.refuse_beams}
        taken = [name for name, refuse in refusals.items() if _is_taken(refuse)]
        if type(scheduler.waiting).priority is not WaitingQueue.priority:
            taken.append("priority")
        return tuple(taken)

    def answers(self, first: CheckedRequest, n: int | None) -> list[CheckedRequest]:
        """Return the requests for one prompt, the first included: n answers, whose seeds count up, or all beams.

        Raises ConfigError for a number that this lab's scheduler does not support.
        """
        num_beams = first.request.sampling.beams
        if num_beams > 1 and n is not None:
            raise ConfigError(f"beams={num_beams} already gives {num_beams} texts: omit n")
        if num_beams > 1:
            return [first, *(self._sibling(first, 0) for _ in range(1, num_beams))]
        num_answers = 1 if n is None else checked_int("n", n, 1)
        if num_answers > 1:
            self._stepper.engine.scheduler.refuse_forks(num_answers)
        return [first, *(self._sibling(first, number) for number in range(1, num_answers))]

    def _sibling(self, first: CheckedRequest, number: int) -> CheckedRequest:
        engine, options, sampling = self._stepper.engine, first.options, first.options.sampling
        if sampling.seed is not None:
            options = replace(options, sampling=replace(sampling, seed=sampling.seed + number))
        request = engine.maker.request(engine.num_added, list(first.request.token_ids), options)
        return replace(first, request=request, options=options)

    def queue_answers(self, first: CheckedRequest, n: int | None) -> int | list[int]:
        """Queue a request, or n or `beams` requests for its prompt; return its id, or theirs."""
        answers = self.answers(first, n)
        with self._stepper.between_steps():
            ids = [request.request_id for request in self._queue_together(answers)]
        return ids[0] if n is None and len(ids) == 1 else ids

    def check_branch(self, name: int | str, seed: int | None, token_id: int | None) -> None:
        """Raise the error that `branch` would raise, if any."""
        token_id = self._checked_token(token_id)
        with self._stepper.between_steps():
            engine = self._stepper.engine
            engine.maker.branch(engine.num_added, self.named(name), seed, token_id)

    def branch(self, name: int | str, seed: int | None = None, token_id: int | None = None) -> int:
        """Queue another continuation of a request from where it stands; return its id. See Lab.branch."""
        token_id = self._checked_token(token_id)
        with self._stepper.between_steps():
            engine, parent = self._stepper.engine, self.named(name)
            branch = engine.requests[engine.branch(parent.request_id, seed, token_id)]
            asked, parent_id = (pack(branch.token_ids), RequestOptions.of(branch)), parent.request_id
            done = BranchInput(engine.num_finished_steps, *asked, request_id=parent_id, seed=seed, token_id=token_id)
            self._inputs.note(done)
            return branch.request_id

    def _checked_token(self, token_id: int | None) -> int | None:
        """Return the token given to `branch`. ConfigError for one that the model does not know, or without branches."""
        self._model.refuse_call("branch")
        if token_id is None:
            return None
        return self._model.checked_ids([checked_int("token", token_id, 0, 2**63 - 1)])[0]

    def queue(self, requests: Sequence[CheckedRequest], n: int | None = None) -> list[Request]:
        """Queue requests in a row, each with its n answers or beams; return n answers each, or the first beam.

        The result stays valid after the engine forgets the requests.
        """
        answers = [self.answers(checked, n) for checked in requests]
        with self._stepper.between_steps():
            return [one for together in answers for one in self._queue_together(together)[: n or 1]]

    def repeat(self, checked: CheckedRequest) -> int:
        """Queue one request alone, without its other answers; return its id."""
        with self._stepper.between_steps():
            return self._queue_together([checked])[0].request_id

    def _queue_together(self, answers: Sequence[CheckedRequest]) -> list[Request]:
        """Queue the requests for one prompt, all or none; the others wait for the first one's tokens."""
        engine, leader_id = self._stepper.engine, answers[0].leader_id
        requests = [checked.request for checked in answers]
        engine.queue_next(*requests, leader_id=leader_id)
        for checked in answers:
            self._inputs.note(replace(checked, leader_id=leader_id).as_input(engine.num_finished_steps))
            leader_id = requests[0].request_id if leader_id is None else leader_id
        return requests

    def abort(self, name: int | str) -> bool:
        """End a request. False if it had already finished; KeyError for an unknown one."""

        def abort(engine: Engine) -> Input | None:
            request_id = self.named(name).request_id
            return AbortInput(engine.num_finished_steps, request_id) if engine.abort(request_id) else None

        return self._change(abort)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content of the pool. False while any request holds blocks."""

        def reset(engine: Engine) -> Input | None:
            return ResetInput(engine.num_finished_steps) if engine.reset_prefix_cache() else None

        return self._change(reset)

    def _change(self, change: Callable[[Engine], Input | None]) -> bool:
        """Change the engine between two steps and keep the input; None means no change."""
        with self._stepper.between_steps():
            done = change(self._stepper.engine)
            if done is not None:
                self._inputs.note(done)
            return done is not None

    def named(self, name: int | str) -> Request:
        """Return the request with that id or letter. KeyError for an unknown one, ConfigError for an invalid name."""
        if not isinstance(name, str):
            checked_int("request_id", name)
        engine, request_id = self._stepper.engine, as_int(request_id_of(name))
        request = None if request_id is None else engine.requests.get(request_id)
        if request is None:
            raise KeyError(_unknown(name, request_id, engine))
        return request


def _is_taken(refuse: Callable[[int], object]) -> bool:
    """Return True if the scheduler supports two; an override that raises anything supports none."""
    try:
        refuse(2)
    except Exception:
        return False
    return True


@lru_cache(maxsize=256)
def _shared(options: RequestOptions, text: str) -> RequestOptions:
    """Return one shared record for equal options, because inputs keep them as long as the lab lives."""
    return options


def options_of(
    method: Callable[..., object],
    sampling: SamplingKeywords,
    *,
    cache_salt: str | None = None,
    extra_keys: Mapping[str, str] | None = None,
    priority: int = 0,
    images: Mapping[int, tuple[str, int]] | None = None,
) -> RequestOptions:
    """Return the options of a call of a lab's method. sampling: the keywords that the method does not name.

    Raises TypeError for an unknown keyword, and ConfigError for an invalid value.
    """
    refuse_unknown(f"{method.__name__}()", sampling, SamplingParams, method)
    keys = salted(_checked_keys(extra_keys), cache_salt)
    return RequestOptions(SamplingParams(**sampling), keys, priority, checked_images(images))


def _checked_keys(extra_keys: Mapping[str, str] | None) -> ExtraKeys:
    """Return (domain, value) pairs, sorted by domain. ConfigError unless it is a mapping of strings."""
    keys = {} if extra_keys is None else extra_keys
    if not isinstance(keys, Mapping):
        raise ConfigError(f"extra_keys must be a mapping of names to strings, got {shown(keys)}")
    if "cache_salt" in keys:
        raise ConfigError("extra_keys must not contain 'cache_salt': pass it as cache_salt=")
    pairs = ((checked_text("a name in extra_keys", k), checked_text(f"extra_keys[{k!r}]", keys[k])) for k in keys)
    return tuple(sorted(pairs))


def _unknown(name: object, request_id: int | None, engine: Engine) -> str:
    """Return the error for a request that was never added or is no longer kept."""
    if request_id is not None and 0 <= request_id < engine.num_added:
        keep = f"{engine.config.keep_finished:,}"
        return f"request {name!r} has finished and been forgotten: Lab(keep_finished=) keeps the newest {keep}"
    known = f"the lab has requests 0 to {engine.num_added - 1}" if engine.num_added else "none has been added yet"
    return f"no request {shown(name)}: {known}"
