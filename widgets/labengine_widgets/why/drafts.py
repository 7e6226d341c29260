"""Why drafts of a request were accepted or rejected."""

from __future__ import annotations

from typing import NamedTuple

from labengine import events as ev
from labengine.record.wording import counted, listed, request_name
from labengine_widgets.why.answer import Why
from labengine_widgets.why.past import Past


class Judgement(NamedTuple):
    """Drafts of one step, each event with its number: guessed, scheduled, judged; and the tokens that followed."""

    guessed: tuple[int, ev.TokensDrafted] | None
    scheduled: tuple[int, ev.RequestScheduled] | None
    judged: tuple[int, ev.DraftsJudged]
    sampled: list[tuple[int, ev.TokenSampled]]


def why_drafts(past: Past, request_id: int) -> Why:
    """Explain which of a request's newest judged drafts were accepted, and why no more."""
    name, found = request_name(request_id), _newest(past, request_id)
    if found is None:
        drafts = past.state.requests[request_id].drafts
        if not drafts:
            return Why(f"Why does {name} have no drafts?", "None have been guessed for it, so no step has judged any.")
        text = f"It has {counted(len(drafts), 'draft')}, which the next step that schedules {name} computes and judges."
        return Why(f"Why are {name}'s drafts not judged?", text)
    event, chain = found.judged[1], [found.guessed, found.scheduled, found.judged, *found.sampled[-1:]]
    numbers = [one and one[0] for one in chain]
    return Why(_question(name, event), _answer(name, found), past.links(*numbers))


def _question(name: str, event: ev.DraftsJudged) -> str:
    num_judged = event.num_accepted + event.num_rejected
    if num_judged == 1:
        return f"Why was {name}'s draft {'rejected' if event.num_rejected else 'accepted'}?"
    if not event.num_rejected:
        return f"Why were all of {name}'s drafts accepted ({num_judged})?"
    verb = "was" if event.num_rejected == 1 else "were"
    return f"Why {verb} {event.num_rejected} of {name}'s {num_judged} drafts rejected?"


def _newest(past: Past, request_id: int) -> Judgement | None:
    guessed = scheduled = judged = None
    sampled: list[tuple[int, ev.TokenSampled]] = []
    for number, event in past.backwards():
        if getattr(event, "request_id", None) != request_id:
            continue
        if judged is None and isinstance(event, ev.TokenSampled):
            sampled.append((number, event))
        elif judged is None and isinstance(event, ev.RequestScheduled):
            sampled.clear()
        elif judged is None and isinstance(event, ev.DraftsJudged):
            judged = (number, event)
        elif judged is not None and scheduled is None and isinstance(event, ev.RequestScheduled):
            scheduled = (number, event) if _computes(event, judged[1], sampled) else None
        elif scheduled is not None and isinstance(event, ev.TokensDrafted):
            guessed = (number, event)
            break
    return None if judged is None else Judgement(guessed, scheduled, judged, sampled[::-1])


def _computes(event: ev.RequestScheduled, judged: ev.DraftsJudged, sampled: list[tuple[int, ev.TokenSampled]]) -> bool:
    """Return True if the step of this event computed the judged drafts.

    With asynchronous scheduling another step is scheduled before they are judged. sampled: the tokens after the
    judgement, newest first; the drafts' positions begin at the oldest one's.
    """
    num_drafts = judged.num_accepted + judged.num_rejected
    return not sampled or event.start + event.num_tokens == sampled[-1][1].position + num_drafts


def _answer(name: str, found: Judgement) -> str:
    event, num_accepted = found.judged[1], found.judged[1].num_accepted
    num_judged = num_accepted + event.num_rejected
    if found.guessed is None or found.scheduled is None:
        if num_judged == 1:
            return "The model samples the same token." if num_accepted else "The model samples a different token."
        return f"{num_accepted or 'None'} of {counted(num_judged, 'draft')} agreed with the model's own tokens."
    tokens, first = found.guessed[1].token_ids, found.scheduled[1].start + 1
    text = f"The tokens at positions {first} to {first + len(tokens) - 1} were guessed: {listed(map(str, tokens))}."
    if len(tokens) == 1:
        text = f"The token at position {first} was guessed: {tokens[0]}."
    if num_judged < len(tokens):
        text += f" The step had room for {num_judged}."
    if not event.num_rejected:
        return f"{text} The model samples the same tokens."
    place = first + num_accepted
    other = next((one.token_id for _, one in found.sampled if one.position == place), None)
    text += f" At position {place} the model samples a different token"
    text += "" if other is None else f", {other} instead of {tokens[num_accepted]}"
    text += f", after {counted(num_accepted, 'equal token')}." if num_accepted else "."
    if event.num_rejected > 1:
        text += " The drafts after it continue a different text, so they are rejected too."
    return text
