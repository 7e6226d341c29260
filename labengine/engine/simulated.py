"""A model without weights: tokens are a pure function of (request, position). Scheduler and core are the real ones."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from labengine.config import ConfigError, EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import edition as edition_named
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.step_plan import StepPlan
from labengine.engine.engine import Engine
from labengine.hooks import Hooks
from labengine.snapshot import Snapshot

NextToken = Callable[[int, int], int]
"""next_token(request_id, position): the token that the request will hold at that position."""


def default_next_token(request_id: int, position: int) -> int:
    """Spread tokens so that no two requests go on alike by accident."""
    return (request_id * 7919 + position * 104729) % 50021


class SimulatedRunner:
    """Computes nothing, and samples next_token."""

    def __init__(self, next_token: NextToken = default_next_token) -> None:
        self._next_token = next_token

    def forward(self, plan: StepPlan) -> None:
        """There is no KV to write."""

    def sample(self, plan: StepPlan, logits: None) -> list[int]:
        """One token per sampling request."""
        return [self._next_token(request.request_id, request.end) for request in plan.sampling]


class WordTokenizer:
    """Words as tokens, numbered as they come: enough to read a simulated lab. Sampled tokens show as their number."""

    _FIRST_WORD = 100_000

    def __init__(self) -> None:
        self._new_ids = count(self._FIRST_WORD)
        self._words: dict[str, int] = {}
        self._texts: dict[int, str] = {}

    def encode(self, text: str) -> list[int]:
        """One id per word, with the white space before it."""
        return [self._word_id(word) for word in re.findall(r"\s*\S+|\s+$", text)]

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The messages one after the other."""
        return self.encode(" ".join(f"{message['role']}: {message['content']}" for message in messages))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The words, and the numbers of sampled tokens."""
        return "".join(self.token_text(token_id) for token_id in token_ids)

    def token_text(self, token_id: int) -> str:
        """A word, or a number."""
        return self._texts.get(token_id, f" {token_id}")

    def _word_id(self, word: str) -> int:
        if word not in self._words:  # several threads may be here, each with a word of its own
            token_id = self._words.setdefault(word, next(self._new_ids))
            self._texts[token_id] = word
        return self._words[word]


_WORKLOAD_KEYS = {"num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "requests"}
_REQUEST_KEYS = {"step", "prompt", "max_tokens"}


def simulate(
    workload: Mapping[str, Any],
    edition: str | Parts = "labengine",
    next_token: NextToken | None = None,
    hooks: Hooks | None = None,
) -> list[Snapshot]:
    """Run a workload on the simulated model; one snapshot per step taken, `step` being the workload's clock from 0.

    workload: {num_blocks, block_size, max_num_seqs, max_num_batched_tokens, requests: [{step, prompt: [ids],
    max_tokens, salt?}], groups?: [{kind, block_size?, window?}]}. A request joins before the step of its `step`;
    requests are numbered from 0 in list order; while nothing waits or runs the clock jumps to the next arrival.
    ValueError, before the first step, for a request that can never fit and for anything unknown. hooks: listeners that
    hear every event of the run.
    """
    parts = edition if isinstance(edition, Parts) else edition_named(edition)
    runner = SimulatedRunner(next_token or default_next_token)
    engine = Engine(_config(workload), runner, parts, Hooks() if hooks is None else hooks)
    arrivals = _arrivals(workload, engine)
    snapshots = []
    clock = 0
    while arrivals or not engine.scheduler.is_idle:
        if engine.scheduler.is_idle:
            clock = max(clock, arrivals[0][0])
        while arrivals and arrivals[0][0] <= clock:
            engine.queue(arrivals.popleft()[1])
        engine.step()
        snapshots.append(replace(engine.snapshot(), step=clock))
        clock += 1
    return snapshots


def _arrivals(workload: Mapping[str, Any], engine: Engine) -> deque[tuple[int, Request]]:
    """(step, request) in the order of joining; every request is checked before the first one joins."""
    arrivals = []
    for request_id, wanted in enumerate(workload["requests"]):
        _check_keys(f"request {request_id}", wanted, _REQUEST_KEYS, {"salt"})
        sampling = SamplingParams(max_tokens=wanted["max_tokens"], ignore_eos=True)
        request = engine.new_request(request_id, wanted["prompt"], sampling, wanted.get("salt"))
        arrivals.append((wanted["step"], request))
    return deque(sorted(arrivals, key=lambda arrival: (arrival[0], arrival[1].request_id)))


def _config(workload: Mapping[str, Any]) -> EngineConfig:
    _check_keys("workload", workload, _WORKLOAD_KEYS, {"groups"})
    size = workload["block_size"]
    groups = workload.get("groups") or [{"kind": "full"}]
    specs = tuple(GroupSpec(g.get("block_size", size), g["kind"], g.get("window")) for g in groups)
    return EngineConfig(
        num_blocks=workload["num_blocks"],
        groups=specs,
        max_num_seqs=workload["max_num_seqs"],
        max_num_batched_tokens=workload["max_num_batched_tokens"],
    )


def _check_keys(what: str, given: Iterable[str], required: set[str], optional: set[str]) -> None:
    unknown, missing = set(given) - required - optional, required - set(given)
    if unknown:
        raise ConfigError(f"{what} has unknown keys {sorted(unknown)}; known are {sorted(required | optional)}")
    if missing:
        raise ConfigError(f"{what} lacks {sorted(missing)}")
