"""Captions of a request's way into a step: it joins the waiting queue, is looked up, and gets its share."""

from __future__ import annotations

from collections.abc import Sequence

from labengine import events as ev
from labengine.record.wording import counted, separated
from labengine_widgets.words.mentions import Sentence, listing, the_blocks, the_request, the_requests
from labengine_widgets.words.phrases import phrase
from labengine_widgets.words.scene import Scene


def request_added(run: Sequence[ev.RequestAdded], scene: Scene) -> Sentence:
    """Describe requests that join the waiting queue, and where in it."""
    event, is_alone = run[0], len(run) == 1 and run[0].num_beams == 1
    if is_alone and (event.from_request_id is not None or event.num_generated or event.images):
        return phrase(run[0])
    names = the_requests(event.request_id for event in run)
    if (leader := run[0].from_request_id) is not None and run[0].num_beams > 1:
        are, they = ("is the other beam", "it waits") if len(run) == 1 else ("are the other beams", "they wait")
        search = Sentence(names, f" {are} of ", the_request(leader), "'s search: ")
        return Sentence(search, f"{they} until the prompt is computed, to fork from ", the_request(leader), ".")
    if leader is not None:
        tail = ", and wait until they are computed, to fork from it."
        return Sentence(names, " have the tokens of ", the_request(leader), tail)
    urgency = f" and priority {run[0].priority}" if _has_priorities(scene) else ""
    sizes = sorted({len(event.token_ids) for event in run})
    tokens = counted(sizes[0], "prompt token") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} prompt tokens"
    join, each = ("joins", "") if len(run) == 1 else ("join", " each")
    beams = f": the first of {run[0].num_beams} beams" if run[0].num_beams > 1 else ""
    end = f" with {tokens}{urgency}{each}, and no blocks yet{beams}."
    return Sentence(names, f" {join} the waiting queue", _place(run, scene), end)


def _has_priorities(scene: Scene) -> bool:
    return any(request.priority for request in scene.fold.requests.values())


def _place(run: Sequence[ev.RequestAdded], scene: Scene) -> str:
    """Return behind whom requests have joined the waiting queue, and ahead of whom; they have one priority."""
    requests, place = scene.fold.requests.items(), (run[0].priority, run[0].request_id)
    waiting = [(request.priority, i) for i, request in requests if request.status in ("waiting", "preempted")]
    behind = [i for priority, i in waiting if (priority, i) < place]
    ahead = [i for priority, i in waiting if priority > run[0].priority]
    places = [Sentence(word, the_requests(ids)) for word, ids in (("behind ", behind), ("ahead of ", ahead)) if ids]
    return Sentence(" ", *separated(places), ",") if places else ""


def prefix_hit(run: Sequence[ev.PrefixHit], scene: Scene) -> Sentence:
    """Describe a look-up, and whom a request overtakes that is admitted now."""
    if overtaken := _overtaken(run[0], scene):
        first, *others = phrase(run[0]).parts
        told = Sentence(first, " is more urgent than ", the_requests(overtaken), ", and is next: it", *others)
    else:
        told = phrase(run[0])
    if not run[0].num_tokens:
        return told
    ids = dict.fromkeys(i for group in run[0].block_ids for i in group if i != scene.fold.null_block)
    return Sentence(told.without_stop(), ", in ", the_blocks(ids), ": no need to compute them.")


def _overtaken(event: ev.PrefixHit, scene: Scene) -> list[int]:
    """Return the requests that came before this one and wait still, because their priority is less urgent."""
    own, requests = scene.fold.requests[event.request_id], scene.fold.requests.items()
    return [
        i
        for i, request in requests
        if i < event.request_id and request.status in ("waiting", "preempted") and request.priority > own.priority
    ]


def request_scheduled(run: Sequence[ev.RequestScheduled], scene: Scene) -> Sentence:
    """Describe how many tokens of each request the step computes."""
    if len(run) == 1:
        return phrase(run[0])
    names = the_requests(event.request_id for event in run)
    if len({(event.num_tokens, event.num_drafts) for event in run}) == 1:
        return Sentence(names, f" are scheduled: the step computes {_share(run[0])} of each.")
    shares = [Sentence(f"{_share(event)} of ", the_request(event.request_id)) for event in run]
    return Sentence(names, " are scheduled: the step computes ", listing(shares), ".")


def _share(event: ev.RequestScheduled) -> str:
    """Return how many tokens of a request a step computes, and how many of them are guesses."""
    drafts = f" ({counted(event.num_drafts, 'draft')})" if event.num_drafts else ""
    return f"{counted(event.num_tokens, 'token')}{drafts}"
