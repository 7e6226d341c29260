"""Why a request gets no token of a step: it waits, the step was spent on others or lacked blocks, or it failed."""

from __future__ import annotations

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.wording import counted, request_name
from labengine_widgets.why.answer import Why
from labengine_widgets.why.past import Past
from labengine_widgets.why.steps import Step, newest_step
from labengine_widgets.why.waiting import why_waiting


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
    return Why(question, _answer(past, request_id, step), tuple(past.link(number) for number in sorted(numbers)))


def is_left_out(past: Past, request_id: int) -> bool:
    """Return True for a running request of which the newest step, its schedule complete, computes no token."""
    step = newest_step(past)
    return step is not None and step.is_decided and step.failed is None and not _schedules(step, request_id)


def _schedules(step: Step, request_id: int) -> bool:
    return any(event.request_id == request_id for _, event in step.scheduled)


def _answer(past: Past, request_id: int, step: Step) -> str:
    name = request_name(request_id)
    if step.failed is not None:
        return step.failure(request_id)
    if _schedules(step, request_id):
        return f"It does: step {step.number} {'computed' if step.is_decided else 'schedules'} tokens of it."
    if not step.is_decided:
        return step.so_far()
    none_of = f", and none of {name}" if step.scheduled else ""
    return f"{step.spent()}{none_of}. {_cause(past.at(step.end), request_id, step)}"


def _cause(state: Fold, request_id: int, step: Step) -> str:
    """Return what kept the request out, as far as events show it: the step's budget is in none of them."""
    request, name, free = state.requests[request_id], request_name(request_id), len(state.free_queue)
    end = request.num_computed_tokens + 1
    groups = zip(state.groups, request.block_tables, strict=True)
    needed = sum(max(0, -(-end // group.block_size) - len(table)) for group, table in groups)
    if needed > free:
        return f"Its next token needs {counted(needed, 'block')}, and {free} {'was' if free == 1 else 'were'} free."
    if isinstance(_last_decision(step), ev.RequestPreempted):
        victim = request_name(step.preempted[-1][1].request_id)
        return f"The step ended when {victim} lacked a block and gave way itself: {name} came after it."
    room = "fits into its blocks" if not needed else f"needs {counted(needed, 'block')}, and {free} were free"
    if step.scheduled and all(event.is_prefill for _, event in step.scheduled):
        return f"Its next token {room}; this step computed prompts alone."
    return f"Its next token {room}: the step took all the tokens or requests that it may, or passed {name} over."


def _last_decision(step: Step) -> ev.Event | None:
    kinds = (ev.RequestScheduled, ev.RequestPreempted)
    return next((event for _, event in reversed(step.events) if isinstance(event, kinds)), None)
