"""New requests: refuse those that can never run; give the others their seed, keys and images."""

from __future__ import annotations

from dataclasses import replace

from labengine.config import ConfigError, EngineConfig, SamplingParams
from labengine.core.request import Request, RequestStatus
from labengine.core.scheduler import Scheduler
from labengine.engine.request_options import RequestOptions
from labengine.record.wording import request_name
from labengine.system.code_roles import Role, plays

plays(__name__, Role.ENGINE)


class RequestMaker:
    """Makes requests that its engine can run, without queueing them."""

    def __init__(self, config: EngineConfig, scheduler: Scheduler) -> None:
        self._config = config
        self._scheduler = scheduler

    def request(self, request_id: int, prompt: list[int], options: RequestOptions) -> Request:
        """Return a request for a prompt. Raises ConfigError if it can never run.

        prompt: checked token ids, which the request keeps and appends to.
        """
        if not prompt:
            raise ConfigError("the prompt must not be empty: a request needs at least one token")
        if options.sampling.beams > 1:
            self._scheduler.refuse_beams(options.sampling.beams)
        request = self._made(request_id, prompt, options)
        self._scheduler.refuse_what_never_fits(request)
        return request

    def branch(self, request_id: int, parent: Request, seed: int | None = None, token_id: int | None = None) -> Request:
        """Return a request that continues from its parent's current position.

        seed: None for a new one. token_id: replaces the newest token, which has no KV yet.
        Raises ConfigError for a finished parent, for a replacement of a prompt's token, for a token that ends the
        branch, and for an edition without forks.
        """
        self._scheduler.refuse_forks()
        name = request_name(parent.request_id)
        if parent.sampling.beams > 1:
            raise ConfigError(f"{name} is a beam, and only its search can continue it")
        if parent.status is RequestStatus.FINISHED:
            raise ConfigError(f"{name} has finished and holds no blocks: add its tokens as a prompt instead")
        token_ids = list(parent.token_ids)
        if token_id is not None:
            if not parent.num_generated_tokens:
                raise ConfigError(f"{name} has not sampled a token yet, so it has none to replace")
            token_ids[-1] = token_id
        options = replace(RequestOptions.of(parent), sampling=replace(parent.sampling, seed=seed))
        request = self._made(request_id, token_ids, options)
        request.num_prompt_tokens = parent.num_prompt_tokens
        if parent.num_generated_tokens and self._scheduler.finish_reason(request) is not None:
            raise ConfigError(f"token {token_id} ends the text, so the branch would have nothing to generate")
        return request

    def _made(self, request_id: int, token_ids: list[int], options: RequestOptions) -> Request:
        seed, num_groups = seed_of(options.sampling, request_id, self._config), len(self._config.groups)
        keys = options.extra_keys, options.priority, options.images
        return Request(request_id, token_ids, options.sampling, seed, num_groups, *keys)


def seed_of(sampling: SamplingParams, request_id: int, config: EngineConfig) -> int:
    """Return the seed of a request: its own, else one derived from the engine's seed and the request's id."""
    return sampling.seed if sampling.seed is not None else config.seed * 1_000_003 + request_id
