"""Beam search: which beams continue with which tokens, which texts have ended, and when a search is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from labengine.config import shown
from labengine.core.request import FinishReason

Likeliest = tuple[tuple[int, float], ...]
"""(token id, log-probability) of the tokens that may follow a beam, the likeliest first."""


class Continuation(NamedTuple):
    """A beam with one more token. score: the sum of the log-probabilities of its generated tokens."""

    parent_id: int
    token_id: int
    score: float


class EndedText(NamedTuple):
    """The generated tokens of a text that has ended, and its score per token."""

    token_ids: tuple[int, ...]
    score: float
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """A search at one moment. A decision creates a new object, so that a rollback only has to keep the old one."""

    beam_ids: tuple[int, ...]
    """The requests of the search. The first computes the prompt, and finally gets the best text."""
    scores: Mapping[int, float]
    """Per continued beam, the sum of its log-probabilities; at first only the first beam's, 0."""
    likeliest: Mapping[int, Likeliest] = field(default_factory=dict)
    """Per computed beam, its candidate tokens. They are kept when the beam is preempted."""
    ended: tuple[EndedText, ...] = ()
    """The best texts that have ended, at most one per beam, the best first."""

    @property
    def is_due(self) -> bool:
        """True once all beams are computed: only then can the search decide."""
        return self.likeliest.keys() >= self.scores.keys()

    def noted(self, request_id: int, likeliest: Likeliest) -> BeamSearch:
        """Return the search with the tokens that may follow one of its beams."""
        return replace(self, likeliest={**self.likeliest, request_id: likeliest})


class BeamDecision(NamedTuple):
    """The result of one decision: the search after it, and the chosen continuations, the best first."""

    search: BeamSearch
    going_on: tuple[Continuation, ...]
    is_over: bool


class BeamPolicy:
    """The rules of transformers' beam search with its defaults: length_penalty=1.0 and early_stopping=False.

    Source: GenerationMixin._beam_search (transformers 5.23). Each rule is a method that a subclass may override.
    """

    def num_ranked(self, num_beams: int, num_eos_tokens: int) -> int:
        """Return how many continuations to consider: enough that num_beams can continue if all others end."""
        return max(2, 1 + num_eos_tokens) * num_beams

    def rank(self, search: BeamSearch, num_ranked: int) -> list[Continuation]:
        """Return the best continuations over all beams, the best first. Among equals the first beam's come first."""
        ranked = [
            Continuation(beam_id, token_id, search.scores[beam_id] + log_probability)
            for beam_id in search.beam_ids
            if beam_id in search.scores
            for token_id, log_probability in search.likeliest[beam_id]
        ]
        return sorted(ranked, key=lambda one: -one.score)[:num_ranked]

    def score(self, log_probability: float, num_generated: int) -> float:
        """Return the score that compares texts of different lengths: the mean per token."""
        return log_probability / num_generated

    def is_over(self, search: BeamSearch, best: float, num_generated: int) -> bool:
        """Return True if as many texts as beams have ended, and the best beam's score beats none of them.

        best: the sum of the log-probabilities of the best continued beam.
        """
        is_full = len(search.ended) == len(search.beam_ids)
        return is_full and self.score(best, num_generated) <= search.ended[-1].score

    def decide(
        self,
        search: BeamSearch,
        generated: Mapping[int, tuple[int, ...]],
        reason_to_end: Callable[[int, int], FinishReason | None],
        num_eos_tokens: int,
    ) -> BeamDecision:
        """Return which beams continue, and the search after that.

        generated: per beam its generated tokens, equally many each. reason_to_end: called with a token and its index
        among them. Only the best num_beams continuations can end a text; the others can only continue one.
        """
        num_beams = len(search.beam_ids)
        num_generated = 1 + len(generated[next(iter(search.scores))])
        going_on: list[Continuation] = []
        ended = list(search.ended)
        for place, one in enumerate(self.rank(search, self.num_ranked(num_beams, num_eos_tokens))):
            reason = reason_to_end(one.token_id, num_generated - 1)
            if reason is None:
                going_on.append(one)
            elif place < num_beams:
                tokens = (*generated[one.parent_id], one.token_id)
                ended.append(EndedText(tokens, self.score(one.score, num_generated), reason))
        ended.sort(key=lambda text: -text.score)
        del going_on[num_beams:]
        after = replace(search, ended=tuple(ended[:num_beams]), likeliest={})
        is_over = not going_on or self.is_over(after, going_on[0].score, num_generated)
        return BeamDecision(after, tuple(going_on), is_over)


def refuse_impossible(policy: BeamPolicy, search: BeamSearch, decision: BeamDecision) -> None:
    """Raise ValueError for a decision that cannot be carried out: its tokens go into the model."""
    num_beams, method = len(search.beam_ids), f"{type(policy).__name__}.decide"
    if not isinstance(decision, BeamDecision):
        raise ValueError(f"{method} must return a BeamDecision; it returned {shown(decision)}")
    if decision.is_over and len(decision.search.ended) != num_beams:
        num_ended = len(decision.search.ended)
        raise ValueError(
            f"{method} must end a search of {num_beams} beams only once as many texts have ended, not after {num_ended}"
        )
    if not decision.is_over and not 0 < len(decision.going_on) <= num_beams:
        raise ValueError(f"{method} must continue 1 to {num_beams} beams; it continued {len(decision.going_on)}")
    ranked = {(beam_id, token_id) for beam_id, found in search.likeliest.items() for token_id, _ in found}
    for parent_id, token_id, _ in decision.going_on:
        if (parent_id, token_id) not in ranked:
            raise ValueError(f"{method} must choose ranked tokens; it gave request {parent_id} token {token_id}")
