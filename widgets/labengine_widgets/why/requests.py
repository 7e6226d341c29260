"""Why a request was preempted, waits, or is finished; why a beam was dropped."""

from __future__ import annotations

from typing import NamedTuple

from labengine import events as ev
from labengine.record.wording import block_names, counted, listed, readable, request_name
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.hits import why_hit
from labengine_widgets.why.past import Past
from labengine_widgets.why.waiting import is_left_out, why_least_urgent, why_no_token, why_waiting


def why_request(past: Past, request_id: int) -> Why:
    """Answer the likeliest question about a request, by its status."""
    status = past.state.requests[request_id].status
    if status == "preempted":
        return why_preempted(past, request_id)
    if status == "finished":
        return why_finished(past, request_id)
    if status == "waiting" and not any(past.state.requests[request_id].block_tables):
        return why_waiting(past, request_id)
    if status == "running" and is_left_out(past, request_id):
        return why_no_token(past, request_id)
    return why_hit(past, request_id)


# -- finished ----------------------------------------------------------------------------------------------------------


def why_finished(past: Past, request_id: int) -> Why:
    """Explain the end of a request: its reason, and the token that caused it."""
    name = request_name(request_id)
    question = f"Why is {name} finished?"
    end = added = sampled = released = None
    for number, event in past.backwards():
        if getattr(event, "request_id", None) != request_id:
            continue
        if isinstance(event, ev.RequestFinished):
            end = (number, event)
        elif isinstance(event, ev.RequestReleased):
            released = number
        elif isinstance(event, ev.TokenSampled) and sampled is None:
            sampled = (number, event)
        elif isinstance(event, ev.RequestAdded):
            added = (number, event)
            break
    if end is None:
        return Why(question, _no_end(past, request_id))
    numbers = [found and found[0] for found in (added, sampled, end)]
    text = _how_finished(past, request_id, end[1], sampled[1] if sampled else None, added[1] if added else None)
    text += _held(past, request_id, end[1])
    return Why(question, text, past.links(*numbers, released))


def _no_end(past: Past, request_id: int) -> str:
    """Answer for a request without a RequestFinished event."""
    status, name = _status(past, request_id), request_name(request_id)
    return f"{name} ended {past.before}." if status == "finished" else f"It is not finished: it is {status}."


def _held(past: Past, request_id: int, end: ev.RequestFinished) -> str:
    """Return what happened to the blocks that a request held after its end."""
    if not end.holds_blocks or end.reason == "moved":
        return ""
    if request_id not in past.state.holding:
        return " It held its blocks until the connector was done with them."
    held = {i for table in past.state.requests[request_id].block_tables for i in table} - {past.state.null_block}
    why = "a connector is sending them, or a load into them has not ended"
    return f" It still holds {counted(len(held), 'block')}: {why}."


def _how_finished(
    past: Past,
    request_id: int,
    end: ev.RequestFinished,
    sampled: ev.TokenSampled | None,
    added: ev.RequestAdded | None,
) -> str:
    request, name = past.state.requests[request_id], request_name(request_id)
    generated = len(request.token_ids) - request.num_prompt_tokens
    if end.reason == "stop" and sampled is not None:
        number = "" if sampled.token_id == ev.UNKNOWN_TOKEN else f" (id {sampled.token_id})"
        return f"{name}'s token at position {sampled.position}{number} is the end-of-text token."
    if end.reason == "length":
        limit = generated if added is None else added.max_tokens
        return f"{name} may generate {counted(limit, 'token')}, and this was token {generated}."
    if end.reason == "abort":
        return f"{name} was aborted from outside, after {counted(generated, 'generated token')}."
    if end.reason == "moved":
        return _where_to(past, request_id)
    return f"{name} ended: {readable(end.reason)}."


def _where_to(past: Past, request_id: int) -> str:
    """Return the lab that a request has moved to. Its end here is recorded just before that lab is known."""
    name, found = request_name(request_id), past.last(ev.RequestHandedOver, request_id=request_id)
    if found is None:
        return f"{name} is moving to another lab. It holds its blocks until that lab has all of them."
    event = found[1]
    there = f"{readable(event.lab)}, where it is {request_name(event.other_request_id)}"
    tokens = counted(event.num_tokens, "computed token")
    return f"{name} moved to {there}, with {tokens}. Its blocks were held here until that lab had all of them."


# -- preempted ---------------------------------------------------------------------------------------------------------


class Preemption(NamedTuple):
    """A RequestPreempted, the frees before it, and the events right before and after."""

    number: int
    frees: list[tuple[int, ev.BlockFreed]]
    before: tuple[int, ev.Event] | None
    asker: tuple[int, int] | None
    """(event number, request id) of the first allocation to, or scheduling of, another request later in the step."""


def why_preempted(past: Past, request_id: int) -> Why:
    """Explain which request needed room, which was preempted, and which got the blocks."""
    name = request_name(request_id)
    found = _preemption(past, request_id)
    if found is None:
        return Why(f"Why was {name} preempted?", _no_preemption(past, request_id))
    question = f"Why was {name} preempted?"
    if found.before is not None and isinstance(found.before[1], ev.LoadFailed):
        text = f"The external tier could not deliver {name}'s tokens, so {name} starts over and computes them."
        return Why(question, text, _links(past, found, [found.before[0]], []))
    if _is_after_rollback(past, found.number):
        text = f"A step was rolled back after it had allocated {name}'s blocks to another request and written into them"
        return Why(question, f"{text}: {name} starts over.", _links(past, found, [], []))
    takers = _takers(past, found)
    text = f"{_who_asked(past, request_id, found)} {_why_this_one(past, request_id, found)}{_who_took(past, takers)}"
    return Why(question, text, _links(past, found, _need(past, found), [number for number, _ in takers]))


def _no_preemption(past: Past, request_id: int) -> str:
    """Answer for a request without a RequestPreempted event."""
    status, name = _status(past, request_id), request_name(request_id)
    if status == "preempted":
        return f"{name} was preempted {past.before}."
    if past.is_complete or _is_added(past, request_id):
        return f"It was not preempted: it is {status}."
    return f"It has not been preempted since the recording began (event {past.first}): it is {status}."


def _is_added(past: Past, request_id: int) -> bool:
    """True if the recording has the request from its RequestAdded event on."""
    return past.last(ev.RequestAdded, request_id=request_id) is not None


def _status(past: Past, request_id: int) -> str:
    return past.state.requests[request_id].status


def _preemption(past: Past, request_id: int) -> Preemption | None:
    preempted = past.last(ev.RequestPreempted, request_id=request_id)
    if preempted is None:
        return None
    number, frees, before = preempted[0], list[tuple[int, ev.BlockFreed]](), None
    for n, event in past.backwards(number):
        if isinstance(event, ev.BlockFreed) and event.reason == "preempted" and event.request_id == request_id:
            frees.append((n, event))
            continue
        before = (n, event)
        break
    return Preemption(number, frees[::-1], before, _asker(past, number, request_id))


def _is_after_rollback(past: Past, number: int) -> bool:
    """True between a rolled-back step and the next one: blocks of a request preempted there were overwritten."""
    for _, event in past.everything_backwards(number):
        if isinstance(event, (ev.StepStarted, ev.StepEnded)):
            return False
        if isinstance(event, ev.StepRolledBack):
            return True
    return False


def _asker(past: Past, number: int, victim: int) -> tuple[int, int] | None:
    """Return the request that needed the room: the next one that gets a block or is scheduled; None if unknown."""
    for n, event in past.forwards(number + 1):
        match event:
            case ev.BlockAllocated() | ev.RequestScheduled() if event.request_id != victim:
                return n, event.request_id
            case ev.BlockFreed() | ev.RequestPreempted() | ev.BlockEvicted():
                continue
            case _:
                return None
    return None


def _who_asked(past: Past, victim: int, found: Preemption) -> str:
    free = len(past.at(_first(found)).free_queue)
    room = f"{counted(free, 'block')} {'was' if free == 1 else 'were'} free" if free else "no block was free"
    if found.asker is None:
        return f"{request_name(victim)} itself needed a block for its next token, and {room}."
    return f"{request_name(found.asker[1])} needed a block for its next tokens, and {room}."


def _first(found: Preemption) -> int:
    return found.frees[0][0] if found.frees else found.number


def _why_this_one(past: Past, victim: int, found: Preemption) -> str:
    state = past.at(_first(found))
    running = [i for i, request in state.requests.items() if request.status == "running" and any(request.block_tables)]
    name = request_name(victim)
    if state.requests[victim].status != "running":
        return f"{name} held blocks but was not running yet; such a request is preempted before a running one."
    if len(running) == 1:
        return f"No other request was running, so {name} had to preempt itself."
    if (by_priority := why_least_urgent(state, victim, running)) is not None:
        return by_priority
    others = listed(request_name(i) for i in running if i != victim)
    last = _admitted_last(past, _first(found), running)
    selected = f"{name} was selected among the running requests (the others: {others})"
    if last is None and not past.is_complete:
        return f"{selected}, all of them admitted {past.before}."
    if last != victim:
        return f"{selected}."
    return f"Of the running requests, {name} was the last to be admitted (after {others}), so it is preempted first."


def _admitted_last(past: Past, before: int, running: list[int]) -> int | None:
    for _, event in past.backwards(before):
        if isinstance(event, ev.PrefixHit) and event.request_id in running:
            return event.request_id
    return None


def _takers(past: Past, found: Preemption) -> list[tuple[int, ev.BlockAllocated]]:
    """Return the first allocation of each freed block, up to the moment."""
    left = {event.block_id for _, event in found.frees if event.queue_end is not None}
    takers = []
    for number, event in past.surviving(found.number):
        if isinstance(event, ev.BlockAllocated) and event.block_id in left:
            left.discard(event.block_id)
            takers.append((number, event))
    return takers


def _who_took(past: Past, takers: list[tuple[int, ev.BlockAllocated]]) -> str:
    if not takers:
        return ""
    by_request: dict[int, list[int]] = {}
    for _, event in takers:
        by_request.setdefault(event.request_id, []).append(event.block_id)
    allocated = (f"{block_names(ids)} to {request_name(request_id)}" for request_id, ids in by_request.items())
    return f" Of its blocks, the engine then allocated {listed(allocated)}."


def _need(past: Past, found: Preemption) -> list[int]:
    """Return the number of the newest token of the request that needed room."""
    if found.asker is None:
        return []
    token = past.last(ev.TokenSampled, before=found.number, request_id=found.asker[1])
    return [] if token is None else [token[0]]


def _links(past: Past, found: Preemption, before: list[int], after: list[int]) -> tuple[Link, ...]:
    frees = [number for number, _ in found.frees]
    numbers = [*before, *frees[:3], found.number, *after[:6]]
    links = [past.link(number) for number in numbers]
    if len(frees) > 3:
        at = len(before) + 2
        last = block_names([found.frees[-1][1].block_id])
        text = f"… and {counted(len(frees) - 2, 'more')} of its blocks, the last being {last}."
        links[at] = past.link(frees[-1], text)
    return tuple(links)


# -- a beam ------------------------------------------------------------------------------------------------------------


def why_beam(past: Past, request_id: int) -> Why:
    """Explain a search's newest decision by which a request gave up its tokens."""
    name, first = request_name(request_id), past.state.requests[request_id].first_beam
    question = f"Why was {name}'s beam dropped?"
    if first is None:
        return Why(question, f"{name} is not a beam: it was added without beams=.")
    found = past.last(ev.BeamReplaced, request_id=request_id)
    if found is None:
        return Why(
            question, f"It was not dropped: at every decision so far a continuation of {name} was among the best."
        )
    number, event = found
    parent = event.from_request_id
    num_beams = sum(request.first_beam == first for request in past.state.requests.values())
    if parent is None:
        text = (
            f"The search is over. Its {num_beams} best texts went to its requests, the best to {request_name(first)}."
        )
        return Why(f"Why did {name} get a different text?", text, past.links(number))
    text = f"When all beams had been computed, the search kept their {num_beams} likeliest continuations overall. "
    text += f"None continued {name}, and {request_name(parent)} had more than one: {name} took the tokens of "
    text += f"{request_name(parent)}, to continue with another one."
    chosen = _chosen(past, number, (parent, request_id))
    if len(chosen) > 1:
        text += f" The next tokens are {listed(f'{token} for {request_name(i)}' for _, i, token in chosen)}."
    return Why(question, text, past.links(number, *(n for n, _, _ in chosen)))


def _chosen(past: Past, number: int, request_ids: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return (event number, request id, token id) of the tokens that these requests get by the same decision."""
    found: list[tuple[int, int, int]] = []
    for n, event in past.surviving(number):
        if isinstance(event, ev.StepEnded):
            break
        if isinstance(event, ev.TokenSampled) and event.request_id in request_ids:
            found.append((n, event.request_id, event.token_id))
    return found
