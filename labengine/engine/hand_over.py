"""Move a request with its KV from one engine to another, block by block: completely on both sides, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from labengine.config import ConfigError
from labengine.core.hand_over import HandOver
from labengine.core.request import Request
from labengine.engine.engine import Engine
from labengine.engine.interrupts import interrupts_allowed, interrupts_deferred


class Side(NamedTuple):
    """One of the two engines, and the name of its lab."""

    engine: Engine
    lab: str

    @property
    def requests(self) -> HandOver:
        """The part that gives and takes running requests. Raises ConfigError if the edition has none."""
        hand_over = self.engine.scheduler.hand_over
        if hand_over is None:
            raise ConfigError(
                f"{self.lab} has edition {self.engine.parts.name!r}, which can neither hand over nor receive requests: "
                "use edition 'labengine' or 'vllm'"
            )
        return hand_over


def hand_over(request_id: int, giver: Side, taker: Side) -> int:
    """Move a running request from one engine to another; return its id there. The caller holds both locks.

    Blocks are copied one by one while both sides hold theirs; an interrupt in between undoes the change on both sides.
    Raises KeyError for an unknown id, and ConfigError, before anything changes, if the request cannot move between
    these engines.
    """
    for side in (giver, taker):
        side.engine.refuse_while_busy("hand_over()")
    request = giver.engine.requests[request_id]
    giver.requests.refuse_to_give(request)
    moved = _as_received(request, taker)
    num_tokens, written = request.num_computed_tokens, list[int]()
    with interrupts_deferred():
        try:
            with taker.engine.silent_change() as taken, giver.engine.silent_change() as given:
                transfers = taker.requests.receive(moved, num_tokens)
                taker.engine.num_added += 1
                source = giver.requests.blocks_to_read(request)
                for group, index, block_id, _ in transfers:
                    written.append(block_id)
                    _copy_block(giver, source[group][index], taker, group, block_id)
                taker.requests.start_received(moved, giver.lab, request_id, num_tokens, transfers)
                giver.requests.give(request, taker.lab, moved.request_id)
        except BaseException:
            taker.engine.num_added = moved.request_id
            taker.engine.scheduler.manager.pool.evict_cached(sorted(written), "distrusted")
            taker.engine.journal.commit()
            raise
        giver.engine.hooks.emit_all(given)
        taker.engine.hooks.emit_all(taken)
        giver.engine.scheduler.forget_finished()
    return moved.request_id


def _as_received(request: Request, taker: Side) -> Request:
    """Return the request for the other engine. It keeps its seed, so that its samples do not change.

    A model without weights uses the requested seed, or else the request's id (see engine/simulated.py).
    """
    engine, seed = taker.engine, request.sampling.seed
    sampling = replace(request.sampling, seed=request.request_id if seed is None else seed)
    keys = request.extra_keys, request.priority, request.images
    moved = Request(engine.num_added, list(request.token_ids), sampling, request.seed, len(engine.config.groups), *keys)
    moved.num_prompt_tokens = request.num_prompt_tokens
    engine.scheduler.refuse_what_never_fits(moved)
    return moved


def _copy_block(giver: Side, block_id: int, taker: Side, group: int, into_block_id: int) -> None:
    """Copy one block's K and V, or its state. This may take long, so an interrupt is raised at once."""
    with interrupts_allowed():
        taker.engine.runner.write_block(group, into_block_id, giver.engine.runner.read_block(group, block_id))
