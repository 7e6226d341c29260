"""A run to judge: one request of one lab; and the refusal of pairs that are different requests."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import cast

from labengine.config import CUTS, ConfigError, SamplingParams, shown
from labengine.core.step_plan import UNSAMPLED
from labengine.engine.sources import model_path
from labengine.record.violation import Violation
from labengine.record.wording import request_name
from labengine.session.compare.sides import session_of
from labengine.session.history.inputs import AddInput
from labengine.session.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class JudgedRun:
    """A request of a lab, at its present state. token_ids: its tokens, beginning with the prompt."""

    session: Session
    request_id: int
    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    sampling: SamplingParams
    seed: int
    extra_keys: dict[str, str]

    @property
    def is_simulated(self) -> bool:
        """True for a model without weights."""
        return self.session.model.num_layers == 0

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids of the prompt."""
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def request(self) -> str:
        """The request in words: "request B"."""
        return f"request {request_name(self.request_id)}"

    @property
    def misreads(self) -> tuple[Violation, ...] | None:
        """Violations of the rule `read` found by the lab's checks; None without checks."""
        return None if self.session.watch is None else misreads_of(self.session)


def misreads_of(session: Session) -> tuple[Violation, ...]:
    """Return a session's violations of the rule `read`, oldest first."""
    return tuple(found for found in session.inspection.violations if found.rule == "read")


def run_of(run: object, request: int | str) -> JudgedRun:
    """Return the run of a lab or of (lab, request). request: the default for a lab alone.

    Raises ConfigError for anything else, and KeyError for an unknown request.
    """
    lab, name = run if isinstance(run, tuple) and len(run) == 2 else (run, request)
    session = session_of(lab)
    if session is None:
        raise ConfigError(f"a run must be a lab, or (lab, request) such as (lab, 0) or (lab, 'B'), got {shown(run)}")
    session.stepper.refuse_if_closed()
    session.model.refuse_call("judge")
    with session.stepper.reading():
        found = session.requests.named(name)
        tokens = session.inspection.snapshot().requests[found.request_id].token_ids
        added = [done for done in session.inputs.done if isinstance(done, AddInput)][found.request_id]
        return JudgedRun(
            session=session,
            request_id=found.request_id,
            token_ids=tuple(token for token in tokens if token is not UNSAMPLED),
            num_prompt_tokens=found.num_prompt_tokens,
            sampling=found.sampling,
            seed=found.seed,
            extra_keys=added.options.other_keys,
        )


def refuse_unlike(one: JudgedRun, other: JudgedRun) -> None:
    """Raise ConfigError for runs whose KV or tokens may differ because their requests do."""
    if one.session is other.session and one.request_id == other.request_id:
        raise ConfigError(f"both runs are {one.request} of the same lab: use judge((lab, 'A'), (lab, 'B'))")
    _refuse_other_model(one, other)
    if one.prompt != other.prompt:
        raise ConfigError(
            f"{one.request} of the first run and {other.request} of the second have different prompts: judge two runs "
            "of the same prompt"
        )
    if one.extra_keys != other.extra_keys:
        keys = f"{one.extra_keys} and {other.extra_keys}"
        raise ConfigError(f"the runs have different extra_keys, {keys}: their KV differs by design")
    if (what := _other_sampling(one, other)) is not None:
        raise ConfigError(f"the runs sample differently ({what}): their tokens may differ even with the same KV")
    for run, place in ((one, "first"), (other, "second")):
        if len(run.token_ids) == run.num_prompt_tokens:
            raise ConfigError(f"{run.request} of the {place} run has not sampled a token yet: run it first")


def _refuse_other_model(one: JudgedRun, other: JudgedRun) -> None:
    models = [cast("str | PathLike[str]", run.session.settings.model) for run in (one, other)]
    if one.is_simulated and other.is_simulated:
        return
    if one.is_simulated or other.is_simulated or model_path(models[0]) != model_path(models[1]):
        raise ConfigError(f"the runs are from different models, {models[0]} and {models[1]}")
    if any(group.kind == "state" for group in one.session.model.config.groups):
        raise ConfigError(
            f"{one.session.model.name} has layers with recurrent state: judge compares only models with K and V in "
            "every layer"
        )


def _other_sampling(one: JudgedRun, other: JudgedRun) -> str | None:
    """Return the first setting that differs; seeds count only if tokens are drawn."""
    for name in CUTS:
        values = getattr(one.sampling, name), getattr(other.sampling, name)
        if values[0] != values[1]:
            return f"{name} {values[0]} and {values[1]}"
    if not one.sampling.is_greedy and one.seed != other.seed:
        return f"seed {one.seed} and {other.seed}"
    return None
