"""Captions of a request's way through a step: it joins the queue, is looked up, scheduled, and gets tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from labengine import events as ev
from labengine.record.wording import counted, readable, separated
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
        is_one = len(run) == 1
        are, they = ("is the other beam", "it waits") if is_one else ("are the other beams", "they wait")
        search = Sentence(names, f" {are} of ", the_request(leader), "'s search: ")
        return Sentence(
            search,
            f"{they} until the prompt has been computed, then {'forks' if is_one else 'fork'} from ",
            the_request(leader),
            ".",
        )
    if leader is not None:
        tail = ": they wait until it has computed them, then fork."
        return Sentence(names, " have the same tokens as ", the_request(leader), tail)
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
    """Return the place of requests of one priority in the waiting queue: behind which others, and ahead of which."""
    requests, place = scene.fold.requests.items(), (run[0].priority, run[0].request_id)
    waiting = [(request.priority, i) for i, request in requests if request.status in ("waiting", "preempted")]
    behind = [i for priority, i in waiting if (priority, i) < place]
    ahead = [i for priority, i in waiting if priority > run[0].priority]
    places = [Sentence(word, the_requests(ids)) for word, ids in (("behind ", behind), ("ahead of ", ahead)) if ids]
    return Sentence(" ", *separated(places), ",") if places else ""


def prefix_hit(run: Sequence[ev.PrefixHit], scene: Scene) -> Sentence:
    """Describe a look-up, and the requests that the newly admitted request overtakes."""
    if overtaken := _overtaken(run[0], scene):
        first, *others = phrase(run[0]).parts
        told = Sentence(first, " is more urgent than ", the_requests(overtaken), ", so it is next: it", *others)
    else:
        told = phrase(run[0])
    if not run[0].num_tokens:
        return told
    ids = dict.fromkeys(i for group in run[0].block_ids for i in group if i != scene.fold.null_block)
    return Sentence(told.without_stop(), ", in ", the_blocks(ids), ", and need not compute them.")


def _overtaken(event: ev.PrefixHit, scene: Scene) -> list[int]:
    """Return the requests that arrived before this one and still wait, because they are less urgent."""
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


# -- tokens: sampled, guessed, and judged ------------------------------------------------------------------------------


def token_sampled(run: Sequence[ev.TokenSampled], scene: Scene) -> Sentence:
    """Describe tokens that requests get, and which of them have keys and values."""
    if any(scene.filling.was_guessed(event.request_id, event.position) for event in run):
        first, *others = [_with_guessed(list(few), scene) for _, few in groupby(run, lambda event: event.request_id)]
        return Sentence(first, *(Sentence(" ", told) for told in others))
    if len(run) == 1:
        told = phrase(run[0], lambda token_id: _shown_token(token_id, scene))
        return Sentence(told.without_stop(), ": it has no keys and values yet.")
    tokens = [Sentence(the_request(event.request_id), f"'s is {_next_token(event, scene)}") for event in run]
    return Sentence("The next tokens are sampled: ", listing(tokens), ". They have no keys and values yet.")


def _with_guessed(run: Sequence[ev.TokenSampled], scene: Scene) -> Sentence:
    """Describe the tokens that a request gets in one step: accepted guesses, and the one after them."""
    num_accepted = sum(scene.filling.was_guessed(event.request_id, event.position) for event in run)
    gets = Sentence(the_request(run[0].request_id), " gets ", listing(_next_token(event, scene) for event in run))
    if len(run) == num_accepted:
        return Sentence(gets, ", as guessed: their keys and values are already there.")
    first = "The first was" if num_accepted == 1 else f"The first {num_accepted} were"
    return Sentence(gets, f". {first} guessed, with keys and values already there; the last has none yet.")


def tokens_drafted(run: Sequence[ev.TokensDrafted], scene: Scene) -> Sentence:
    """Describe the guesses of a request's next tokens."""
    event = run[0]
    if not event.token_ids:
        return Sentence("The guesses of ", the_request(event.request_id), "'s next tokens are dropped.")
    guesses = listing(f"“{_shown_token(token_id, scene)}”" for token_id in event.token_ids)
    return Sentence(
        the_request(event.request_id), "'s next tokens are guessed: ", guesses, ". The next step judges them."
    )


def drafts_judged(run: Sequence[ev.DraftsJudged], scene: Scene) -> Sentence:
    """Describe how many of a request's guesses are accepted, and the blocks that rejected ones were written to."""
    event = run[0]
    if not event.num_rejected or not (garbage := scene.filling.garbage(event.request_id)):
        return phrase(event)
    hold = "holds" if len(garbage) == 1 else "hold"
    end = f" {hold} the keys and values of {counted(event.num_rejected, 'rejected draft')}: garbage, to be overwritten."
    return Sentence(_num_accepted(event), ". ", the_blocks(garbage), end)


def _num_accepted(event: ev.DraftsJudged) -> Sentence:
    name, num_judged = the_request(event.request_id), event.num_accepted + event.num_rejected
    if num_judged == 1:
        return Sentence(name, "'s draft is not accepted")
    verb = "are" if event.num_accepted > 1 else "is"
    return Sentence(f"{event.num_accepted or 'None'} of ", name, f"'s {num_judged} drafts {verb} accepted")


def _next_token(event: ev.TokenSampled, scene: Scene) -> str:
    return "not known yet" if event.token_id < 0 else f"“{_shown_token(event.token_id, scene)}”"


def _shown_token(token_id: int, scene: Scene) -> str:
    shown = readable(scene.token_text(token_id), 40)
    return shown.strip() or shown
