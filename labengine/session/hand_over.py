"""Handing a request over from one session to another: settings that must match, and the inputs that record it."""

from __future__ import annotations

from contextlib import ExitStack

from labengine.config import ConfigError, GroupSpec
from labengine.core.request import Request
from labengine.engine.hand_over import Side, hand_over
from labengine.engine.request_options import RequestOptions
from labengine.record.wording import listed
from labengine.session.history.inputs import HandOverInput, ReceiveInput, pack
from labengine.session.session import Session


def hand_over_between(giver: Session, name: int | str, taker: Session) -> int:
    """Move a running request of one session to another one; return its id there. See Lab.hand_over."""
    if giver is taker:
        raise ConfigError("the request already runs on this lab: hand it over to a different one")
    for session in (giver, taker):
        session.model.refuse_call("hand_over")
    with ExitStack() as locks:
        for session in sorted((giver, taker), key=lambda session: session.number):  # one order for all: no deadlock
            locks.enter_context(session.stepper.between_steps())
        request = giver.requests.named(name)
        _refuse_unlike(giver, taker)
        taker.model.refuse_too_long(request.num_prompt_tokens, request.sampling.max_tokens)
        sides = (Side(session.stepper.engine, session.lab_id) for session in (giver, taker))
        other_id = hand_over(request.request_id, *sides)
        giver.inputs.note(HandOverInput(giver.stepper.engine.num_finished_steps, request.request_id, taker.lab_id))
        taker.inputs.note(_received(taker.stepper.engine.requests[other_id], giver, taker))
    return other_id


def _received(request: Request, giver: Session, taker: Session) -> ReceiveInput:
    return ReceiveInput(
        taker.stepper.engine.num_finished_steps,
        pack(request.token_ids),
        RequestOptions.of(request),
        request_id=request.request_id,
        lab=giver.lab_id,
    )


def _refuse_unlike(giver: Session, taker: Session) -> None:
    """Raise ConfigError for two sessions with different kinds of KV."""
    ours, theirs = giver.config.groups, taker.config.groups
    if ours != theirs:
        raise ConfigError(
            f"{giver.lab_id} keeps KV in {_laid_out(ours)}, but {taker.lab_id} in {_laid_out(theirs)}: make both labs "
            "with the same model, groups and block_size"
        )
    if giver.model.fingerprint != taker.model.fingerprint:
        raise ConfigError(
            f"{giver.lab_id} has {_kind(giver)}, but {taker.lab_id} {_kind(taker)}: KV can only be handed over between "
            "labs with the same weights and dtype"
        )


def _laid_out(groups: tuple[GroupSpec, ...]) -> str:
    return listed(f"{group.kind} blocks of {group.block_size}{_reach(group)}" for group in groups)


def _reach(group: GroupSpec) -> str:
    return "" if group.window is None else f" (window {group.window})"


def _kind(session: Session) -> str:
    described = session.model.describe()
    return ", ".join([session.model.name, *(described[key] for key in ("dtype",) if key in described)])
