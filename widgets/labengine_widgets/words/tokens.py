"""Captions of tokens: sampled, guessed, and judged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from labengine import events as ev
from labengine.record.wording import counted, readable
from labengine_widgets.words.mentions import Sentence, listing, the_blocks, the_request
from labengine_widgets.words.phrases import phrase
from labengine_widgets.words.scene import Scene


def token_sampled(run: Sequence[ev.TokenSampled], scene: Scene) -> Sentence:
    """Describe tokens that requests get, and which of them have keys and values."""
    if any(scene.was_guessed(event.request_id, event.position) for event in run):
        first, *others = [_with_guessed(list(few), scene) for _, few in groupby(run, lambda event: event.request_id)]
        return Sentence(first, *(Sentence(" ", told) for told in others))
    if len(run) == 1:
        told = phrase(run[0], lambda token_id: _shown_token(token_id, scene))
        return Sentence(told.without_stop(), ": it has no keys and values yet.")
    tokens = [Sentence(the_request(event.request_id), f"'s is {_next_token(event, scene)}") for event in run]
    return Sentence("The next tokens are sampled: ", listing(tokens), ". They have no keys and values yet.")


def _with_guessed(run: Sequence[ev.TokenSampled], scene: Scene) -> Sentence:
    """Describe the tokens that a request gets in one step: accepted guesses, and the one behind them."""
    num_accepted = sum(scene.was_guessed(event.request_id, event.position) for event in run)
    gets = Sentence(the_request(run[0].request_id), " gets ", listing(_next_token(event, scene) for event in run))
    if len(run) == num_accepted:
        return Sentence(gets, ", as guessed: keys and values are there already.")
    first = "The first was" if num_accepted == 1 else f"The first {num_accepted} were"
    return Sentence(gets, f". {first} guessed: keys and values are there already; the last has none yet.")


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
    """Describe how many of a request's guesses are accepted, and which blocks hold what is left of the others."""
    event = run[0]
    if not event.num_rejected or not (garbage := scene.garbage(event.request_id)):
        return phrase(event)
    hold = "holds" if len(garbage) == 1 else "hold"
    end = f" {hold} keys and values of {counted(event.num_rejected, 'rejected draft')}: garbage, to be overwritten."
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
