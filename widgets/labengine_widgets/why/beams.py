"""Why a beam does not go on: its search has chosen other continuations."""

from __future__ import annotations

from labengine import events as ev
from labengine.record.wording import listed, request_name
from labengine_widgets.why.answer import Why
from labengine_widgets.why.past import Past


def why_beam(past: Past, request_id: int) -> Why:
    """Explain the newest decision of a search by which a request gave its tokens up."""
    name, first = request_name(request_id), past.state.requests[request_id].first_beam
    question = f"Why did {name} not go on as a beam?"
    if first is None:
        return Why(question, f"{name} is no beam: it was added without beams=.")
    number, event = next(
        (
            (number, event)
            for number, event in past.backwards()
            if isinstance(event, ev.BeamReplaced) and event.request_id == request_id
        ),
        (None, None),
    )
    if number is None or event is None:
        return Why(question, f"It does: at each decision so far a continuation of {name} was among the best.")
    parent = event.from_request_id
    num_beams = sum(request.first_beam == first for request in past.state.requests.values())
    if parent is None:
        text = (
            f"The search is over. Its {num_beams} best texts went to its requests, the best to {request_name(first)}."
        )
        return Why(f"Why did {name} get another text?", text, (past.link(number),))
    text = f"When all beams were computed, the search kept the {num_beams} likeliest continuations of all of them. "
    text += f"None went on from {name}, and {request_name(parent)} had more than one: {name} took the tokens of "
    text += f"{request_name(parent)}, to go on with the other."
    chosen = _chosen(past, number, (parent, request_id))
    if len(chosen) > 1:
        text += f" The next tokens are {listed(f'{token} for {request_name(i)}' for _, i, token in chosen)}."
    return Why(question, text, tuple(past.link(n) for n in (number, *(n for n, _, _ in chosen))))


def _chosen(past: Past, number: int, request_ids: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Return (event number, request id, token id) of the tokens that these requests get by the same decision."""
    found: list[tuple[int, int, int]] = []
    for n, event in past.surviving(number):
        if isinstance(event, ev.StepEnded):
            break
        if isinstance(event, ev.TokenSampled) and event.request_id in request_ids:
            found.append((n, event.request_id, event.token_id))
    return found
