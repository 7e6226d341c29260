"""The attention X-ray of a session: a figure of one token's attention to the blocks of its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from labengine.config import ConfigError, as_int
from labengine.core.step_plan import UNSAMPLED
from labengine.record.wording import readable, request_name
from labengine.session.session import Session
from labengine.session.settings import request_id_of

if TYPE_CHECKING:  # torch is loaded for real models only, widgets for views only
    from labengine.engine.model_runner import ModelRunner
    from labengine.engine.xray import BlockAttention
    from labengine_widgets.pictures.xray import XRay


def xray(
    session: Session,
    select_block: Callable[[int], object],
    *,
    request: int | str = 0,
    position: int | None = None,
) -> XRay:
    """Return a figure of the attention of the token at `position`, by layer, block and head.

    request: an id or letter. position: by default the newest token's, from which the next token is computed.
    select_block: called with the id of a clicked block.
    """
    from labengine_widgets.pictures.xray import XRay

    request_id = request_id_of(request)
    attention, token_ids = attention_of(session, request_id, position)
    texts = [session.token_text(token_id) for token_id in token_ids[: attention.position + 1]]
    origin = "" if attention.source == "pool" else " · recomputed, because its blocks were freed"
    token, name = readable(texts[-1], 24), request_name(cast(int, as_int(request_id)))
    title = f"What “{token}” of request {name} looks at (position {attention.position}){origin}"
    return XRay(attention, texts, title, select_block)


def attention_of(
    session: Session, request: object, position: int | None = None
) -> tuple[BlockAttention, tuple[int, ...]]:
    """Return attention by block, and the request's tokens. Waits for the current step.

    ConfigError for a model without weights, KeyError for an unknown request, IndexError for a missing token.
    """
    for name, number in {"request": request, "position": position}.items():
        if number is not None and as_int(number) is None:
            raise ConfigError(f"{name} must be an integer, got {number!r}: lab.view('xray', request=0)")
    session.model.refuse_call("the X-ray")
    if session.model.num_layers == 0:
        raise ConfigError("the simulated model has no attention: use Lab('smollm2') for an X-ray of attention")
    from labengine.engine.xray import attention_by_block
    from labengine_widgets.why.subjects import known_requests_text

    stepper = session.stepper
    stepper.refuse_if_closed()
    runner = cast("ModelRunner", session.model.runner)
    runner.torch_modules()  # loaded before the lock is taken, so that no thread waits for files
    with stepper.reading():
        stepper.refuse_if_closed()
        state = stepper.engine.snapshot()
        if request not in state.requests:
            raise KeyError(f"no request {request}; {known_requests_text(state.requests)}")
        found = state.requests[cast(int, as_int(request))]
        num_known = sum(token is not UNSAMPLED for token in found.token_ids)
        at = num_known - 1 if position is None else position
        attention = attention_by_block(runner, found, at, null_block=state.null_block)
    return attention, found.token_ids
