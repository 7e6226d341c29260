"""The attention X-ray of a lab: what a token of a request looked at, as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from labengine.config import ConfigError, is_single_int
from labengine.core.unsampled import UNSAMPLED
from labengine.session.request_names import request_id_of

if TYPE_CHECKING:
    from labengine.engine.model import PagedModel
    from labengine.engine.model_runner import ModelRunner
    from labengine.engine.xray import BlockAttention
    from labengine.lab import Lab
    from labengine_widgets.xray_figure import XRay

_modules: WeakKeyDictionary[Any, PagedModel] = WeakKeyDictionary()
"""Per runner, its model as torch modules: native kernels pack the weights away, and reading them takes a second."""


def xray(lab: Lab, request: int | str = 0, position: int | None = None) -> XRay:
    """A figure of what the token at `position` looked at, layer by layer, block by block; head by head with a slider.

    request: its id, or its letter.
    position: of the token that looks; the newest one by default, the one that the next token is made from.
    """
    from labengine_widgets.names import readable, request_name
    from labengine_widgets.xray_figure import XRay

    request_id = cast(int, request_id_of(request))
    attention, token_ids = attention_of(lab, request_id, position)
    texts = [lab.token_text(token_id) for token_id in token_ids[: attention.position + 1]]
    origin = "" if attention.source == "pool" else " · computed anew, its blocks were given back"
    looking = readable(texts[-1], 24)
    title = f"What “{looking}” of request {request_name(request_id)} looks at (position {attention.position}){origin}"
    return XRay(attention, texts, title, _selector(lab))


def attention_of(lab: Lab, request: int, position: int | None = None) -> tuple[BlockAttention, tuple[int, ...]]:
    """Attention by block, and the request's tokens. ConfigError for a model without weights, IndexError for a token
    that is not there. Waits for the step under way.
    """
    for name, asked_for in {"request": request, "position": position}.items():
        if asked_for is not None and not is_single_int(asked_for):
            raise ConfigError(f"{name} is a whole number, got {asked_for!r}: lab.view('xray', request=0)")
    if lab.num_layers == 0:
        raise ConfigError("the simulated model attends to nothing; use Lab('smollm2') for an X-ray of attention")
    from labengine.engine.xray import attention_by_block
    from labengine_widgets.why.known import requests_told

    lab._stepper.refuse_if_closed()
    runner = cast("ModelRunner", lab._model.runner)
    modules = _modules_of(lab, runner)  # before the turn: nobody waits for files
    with lab._stepper.turn_to_look():
        lab._stepper.refuse_if_closed()
        state = lab._stepper.engine.snapshot()
        if request not in state.requests:
            raise KeyError(f"there is no request {request}; {requests_told(state.requests)}")
        asked = state.requests[request]
        known = sum(token is not UNSAMPLED for token in asked.token_ids)
        at = known - 1 if position is None else position
        found = attention_by_block(runner, asked, at, modules=modules, null_block=state.null_block)
    return found, asked.token_ids


def _modules_of(lab: Lab, runner: ModelRunner) -> PagedModel:
    from labengine.engine.sources import model_path
    from labengine.engine.xray import torch_modules

    if runner not in _modules:
        _modules[runner] = torch_modules(runner, model_path(lab.model))
    return _modules[runner]


def _selector(lab: Lab) -> Any:
    """Select a block in every view of the lab, if it has views."""
    from labengine_widgets.selection import Selection

    return lambda block_id: lab.feed.select(Selection("block", block_id))
