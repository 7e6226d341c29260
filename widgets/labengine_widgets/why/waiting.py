"""Why a request waits, or gets no token of a step.

It waits because no step was taken, it loads, others are ahead, or blocks or budget were short. A running one gets no
token of a step that was spent on others, lacked blocks, or failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.wording import counted, listed, readable, request_name
from labengine_widgets.why.answer import Link, Why
from labengine_widgets.why.past import Past
from labengine_widgets.why.steps import Step, newest_step, rolled_back_since


def why_waiting(past: Past, request_id: int) -> Why:
    """Explain why the last step did not admit the request."""
    name, request = request_name(request_id), past.state.requests[request_id]
    question = f"Why is {name} waiting?"
    if request.status not in ("waiting", "preempted"):
        return Why(question, f"It is not waiting: it is {request.status}.")
    joined = _joined(past, request_id)
    step = newest_step(past)
    failed = None if step is None else step.failed
    if step is not None and failed is not None and (step.concerns(request_id) or not is_loading(past, request_id)):
        return Why(question, step.failure(request_id), _links(past, joined, step, failed[0]))
    if (leader := _leader(past, joined)) is not None:
        return Why(question, _beside(past, name, leader), past.links(joined, _last_scheduled(past, leader)))
    if is_loading(past, request_id):
        return _loading(past, request_id, question)
    if (landed := _landed(past, request_id)) is not None:
        text = f"Its load has ended and it holds its blocks; the next step with room for {name} schedules it."
        return Why(question, text, past.links(landed))
    if (moved := received(past, request_id)) is not None and _last_scheduled(past, request_id) is None:
        text = f"{came_from(moved[1])} It holds their blocks, and the next step with room for {name} schedules it."
        return Why(question, text, past.links(moved[0]))
    if any(request.block_tables) and (last := _last_scheduled(past, request_id)) is not None:
        text = f"{name} has its blocks and {counted(request.num_computed_tokens, 'token')} computed so far: "
        text += "a long prompt is computed in chunks, and the request stays in the waiting queue until the last one."
        return Why(question, text, past.links(joined, last))
    if step is None or _is_before(past, step, joined):
        return Why(question, _no_step(past, request.status, joined), past.links(joined))
    if not step.is_decided:
        return Why(question, step.so_far(), _links(past, joined, step, *(n for n, _ in step.scheduled[-6:])))
    return _not_taken_in(past, request_id, question, joined, step)


def _leader(past: Past, joined: int | None) -> int | None:
    """Return the request for whose tokens a request waits; None if it waits for its own turn."""
    added = None if joined is None else past.event(joined)
    leader = added.from_request_id if isinstance(added, ev.RequestAdded) else None
    return leader if _is_open(past.state, leader) else None


def _beside(past: Past, name: str, leader: int) -> str:
    computed, tokens = past.state.requests[leader].num_computed_tokens, len(past.state.requests[leader].token_ids)
    text = (
        f"It has the same tokens as {request_name(leader)}, which has computed {computed} of {tokens} for both so far."
    )
    return f"{text} Then {name} forks from it and shares its blocks."


def _is_before(past: Past, step: Step, joined: int | None) -> bool:
    """Return True for a step that began before the request joined the queue; a preemption joins it within a step."""
    return joined is not None and step.begin < joined and not isinstance(past.event(joined), ev.RequestPreempted)


def _no_step(past: Past, status: str, joined: int | None) -> str:
    if joined is None and not past.is_complete:
        return f"It has been {status} since {past.before}; no step has begun since."
    since = f"since it {'joined the waiting queue' if status == 'waiting' else 'was preempted'}"
    rolled_back = next(rolled_back_since(past, past.first if joined is None else joined), None)
    if rolled_back is not None:
        return f"No step has ended {since}: step {rolled_back.step} was rolled back ({readable(rolled_back.reason)})."
    return f"No step has begun {since}."


def _joined(past: Past, request_id: int) -> int | None:
    """Return the number of the event by which the request last joined the queue."""
    found = past.last(ev.RequestAdded, ev.RequestPreempted, request_id=request_id)
    return None if found is None else found[0]


def _last_scheduled(past: Past, request_id: int) -> int | None:
    found = past.last(ev.RequestScheduled, request_id=request_id)
    return None if found is None else found[0]


def is_loading(past: Past, request_id: int) -> bool:
    """Return True while the external tier loads blocks of the request."""
    ends = (ev.BlocksLoaded, ev.LoadFailed, ev.RequestPreempted, ev.RequestAdded)
    found = past.last(ev.ExternalHit, *ends, request_id=request_id)
    return found is not None and isinstance(found[1], ev.ExternalHit) and found[1].is_loading


def received(past: Past, request_id: int) -> tuple[int, ev.RequestReceived] | None:
    """Return the number and event of a request's arrival from another lab, unless it was preempted since."""
    match past.last(ev.RequestReceived, ev.RequestPreempted, ev.RequestAdded, request_id=request_id):
        case number, ev.RequestReceived() as event:
            return number, event
    return None


def came_from(event: ev.RequestReceived) -> str:
    """Return a sentence on a moved request's origin and its computed tokens."""
    name, other, num = request_name(event.request_id), request_name(event.other_request_id), event.num_tokens
    return f"{name} came from {readable(event.lab)}, where it was {other}, with {counted(num, 'computed token')}."


def _landed(past: Past, request_id: int) -> int | None:
    """Return the number of the event that ended a late load, while no step has scheduled the request since."""
    ends = (ev.RequestScheduled, ev.RequestPreempted, ev.RequestAdded)
    match past.last(ev.BlocksLoaded, ev.LoadFailed, *ends, request_id=request_id):
        case number, ev.BlocksLoaded() | ev.LoadFailed() if any(past.state.requests[request_id].block_tables):
            return number
    return None


def _loading(past: Past, request_id: int, question: str) -> Why:
    found = past.last(ev.ExternalHit, request_id=request_id)
    if found is None:
        return Why(question, "It is waiting for the external tier.")
    text = f"The external tier is loading {counted(found[1].num_tokens, 'token')} into its blocks."
    return Why(question, text, past.links(found[0]))


def _links(past: Past, joined: int | None, step: Step, *numbers: int) -> tuple[Link, ...]:
    return past.links(*sorted({*numbers, step.begin} | ({joined} if joined is not None else set())))


def _not_taken_in(past: Past, request_id: int, question: str, joined: int | None, step: Step) -> Why:
    numbers = [*(n for n, _ in step.scheduled[-6:]), *(n for n, _ in step.preempted)]
    state = past.at(step.end)
    text = _cause(request_id, state, step, _ahead(state, request_id, _siblings(past, state)))
    text += less_urgent_running(state, request_id)
    return Why(question, text, _links(past, joined, step, *numbers))


def _cause(request_id: int, state: Fold, step: Step, ahead: Sequence[int]) -> str:
    name, free, spent, scheduled = request_name(request_id), len(state.free_queue), step.spent(), step.scheduled
    needed = sum(-(-len(state.requests[request_id].token_ids) // group.block_size) for group in state.groups)
    preempted = step.preempted
    if preempted:
        return (
            f"{spent}, and {_names(preempted)} had to be preempted to free blocks; such a step admits no new requests."
        )
    if ahead:
        first = ahead[0]
        names, are = names_of(state, ahead), "is" if len(ahead) == 1 else "are"
        order = f"order is kept: {request_name(first)} is admitted first{_lacks(state, first)}"
        return f"{spent}; {names} {are} ahead of it in the waiting queue, and {order}."
    if needed > free:
        are = "was" if free == 1 else "were"
        return f"{spent}. For all its tokens {name} needs up to {counted(needed, 'block')}, but {free} {are} free."
    if scheduled and not any(event.is_prefill for _, event in scheduled):
        return f"{spent}, all decodes. Blocks were free, but the step could take no more requests or tokens."
    return f"{spent}. Blocks were free for {name}, but the step could take no more requests or tokens."


def _lacks(state: Fold, first: int) -> str:
    needed = sum(-(-len(state.requests[first].token_ids) // group.block_size) for group in state.groups)
    free = len(state.free_queue)
    return (
        f" (it needs up to {counted(needed, 'block')}, but {free} {'was' if free == 1 else 'were'} free)"
        if needed > free
        else ""
    )


def _siblings(past: Past, state: Fold) -> set[int]:
    """Return the requests that are in no queue because they wait for another one's tokens."""
    added = [event for _, event in past.backwards() if isinstance(event, ev.RequestAdded)]
    return {event.request_id for event in added if _is_open(state, event.from_request_id)}


def _is_open(state: Fold, request_id: int | None) -> bool:
    return request_id in state.requests and state.requests[request_id].status != "finished"


def _ahead(state: Fold, request_id: int, siblings: Collection[int]) -> list[int]:
    """Return the ids of the requests ahead in the queue: preempted ones first, then the others by id.

    Where priorities are in use, the most urgent come first, whether preempted or not.
    """
    waiting = [i for i, r in state.requests.items() if r.status in ("waiting", "preempted")]
    line = [i for i in waiting if not any(state.requests[i].block_tables)]
    line = [i for i in line if i not in siblings or state.requests[i].status == "preempted"]
    comes_first = {i for i in line if state.requests[i].status == "preempted" and not are_in_use(state)}
    line.sort(key=lambda i: (i not in comes_first, state.requests[i].priority, i))
    return line[: line.index(request_id)] if request_id in line else []


def _names(preempted: list[tuple[int, ev.RequestPreempted]]) -> str:
    return listed(request_name(event.request_id) for _, event in preempted)


# -- a running request -------------------------------------------------------------------------------------------------


def why_no_token(past: Past, request_id: int) -> Why:
    """Explain why the newest step computes no token of a request."""
    status, name = past.state.requests[request_id].status, request_name(request_id)
    question = f"Why does {name} get no token?"
    if status in ("waiting", "preempted"):
        return why_waiting(past, request_id)
    step = newest_step(past)
    if status == "finished" or step is None:
        return Why(question, "It is finished." if status == "finished" else f"Its last step was {past.before}.")
    numbers = [step.begin, *(number for number, _ in (*step.preempted, *step.scheduled[-6:]))]
    if step.failed is not None:
        numbers.append(step.failed[0])
    return Why(question, _answer_for_token(past, request_id, step), past.links(*sorted(numbers)))


def is_left_out(past: Past, request_id: int) -> bool:
    """Return True for a running request of which the newest step, its schedule complete, computes no token."""
    step = newest_step(past)
    return step is not None and step.is_decided and step.failed is None and not _schedules(step, request_id)


def _schedules(step: Step, request_id: int) -> bool:
    return any(event.request_id == request_id for _, event in step.scheduled)


def _answer_for_token(past: Past, request_id: int, step: Step) -> str:
    name = request_name(request_id)
    if step.failed is not None:
        return step.failure(request_id)
    if _schedules(step, request_id):
        return f"It does get one: step {step.number} {'computed' if step.is_decided else 'schedules'} tokens of it."
    if not step.is_decided:
        return step.so_far()
    none_of = f", and none of {name}" if step.scheduled else ""
    return f"{step.spent()}{none_of}. {_what_kept_out(past.at(step.end), request_id, step)}"


def _what_kept_out(state: Fold, request_id: int, step: Step) -> str:
    """Return what kept the request out, as far as events show it; they do not have the step's budget."""
    request, name, free = state.requests[request_id], request_name(request_id), len(state.free_queue)
    end = request.num_computed_tokens + 1
    groups = zip(state.groups, request.block_tables, strict=True)
    needed = sum(max(0, -(-end // group.block_size) - len(table)) for group, table in groups)
    if needed > free:
        return f"Its next token needs {counted(needed, 'block')}, but {free} {'was' if free == 1 else 'were'} free."
    if isinstance(_last_decision(step), ev.RequestPreempted):
        victim = request_name(step.preempted[-1][1].request_id)
        return f"The step ended when {victim} lacked a block and gave way itself; {name} came after it."
    room = "fits into its blocks" if not needed else f"needs {counted(needed, 'block')}, and {free} were free"
    if step.scheduled and all(event.is_prefill for _, event in step.scheduled):
        return f"Its next token {room}; this step computed only prompts."
    return f"Its next token {room}: the step either took as many tokens or requests as it may, or passed {name} over."


def _last_decision(step: Step) -> ev.Event | None:
    kinds = (ev.RequestScheduled, ev.RequestPreempted)
    return next((event for _, event in reversed(step.events) if isinstance(event, kinds)), None)


# -- priorities: smaller is more urgent --------------------------------------------------------------------------------


def are_in_use(state: Fold) -> bool:
    """Return True if some request has a priority. Where the waiting queue ignores priorities, all have 0."""
    return any(request.priority for request in state.requests.values())


def names_of(state: Fold, request_ids: Iterable[int]) -> str:
    """Return the names of requests, with their priorities where these are in use."""
    if not are_in_use(state):
        return listed(map(request_name, request_ids))
    return listed(f"{request_name(i)} (priority {state.requests[i].priority})" for i in request_ids)


def less_urgent_running(state: Fold, request_id: int) -> str:
    """Return a sentence about the running requests that are less urgent than one that waits; empty without any."""
    limit = state.requests[request_id].priority
    found = [i for i, request in state.requests.items() if request.status == "running" and request.priority > limit]
    if not found:
        return ""
    are = "is less urgent, yet continues" if len(found) == 1 else "are less urgent, yet continue"
    return f" {names_of(state, found)} {are}: a running request gives way to a running one, never to a waiting one."


def why_least_urgent(state: Fold, victim: int, running: Sequence[int]) -> str | None:
    """Explain by priorities why this one of the running requests gave way; None if they do not explain it."""
    others = [i for i in running if i != victim]
    own, most = state.requests[victim].priority, max(state.requests[i].priority for i in others)
    if not are_in_use(state) or own < most:
        return None
    among = f"of the running requests (the others: {names_of(state, others)})"
    name = names_of(state, [victim])
    if own > most:
        return f"{name} was the least urgent {among}."
    if victim < max(i for i in running if state.requests[i].priority == own):
        return None
    return f"{name} was one of the least urgent {among}; among equals, the last to arrive gives way."
