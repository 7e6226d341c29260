"""Beam search on forks: the beams of a search are requests that share blocks until they write to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from labengine.config import ConfigError
from labengine.core.beams import BeamPolicy, BeamSearch, Continuation, Likeliest
from labengine.core.collaborator import Collaborator
from labengine.core.forks import Forks
from labengine.core.guard import guarded
from labengine.core.request import FinishReason, Request
from labengine.core.request_queues import RequestQueues
from labengine.core.step_plan import StepPlan
from labengine.events import BeamReplaced


class BeamSearches(Collaborator):
    """The running searches. A search has one request per beam; they begin as forks of the first (see Forks.join).

    A computed beam waits until all beams of its search are computed; then the search decides at once which ones
    continue. A continued beam keeps its request; its other continuations fork into the requests of dropped beams. So a
    search always has as many requests as beams, and their ids stay.
    """

    policy: ClassVar[type[BeamPolicy]] = BeamPolicy
    """The rules by which beams continue and searches end."""

    def __init__(self, scheduler: RequestQueues, forks: Forks) -> None:
        super().__init__(scheduler)
        self.chosen: dict[int, int] = {}
        """Per beam, the token that its search chose in the newest update."""
        self._forks = forks
        self._policy = guarded(self.policy)()
        self._of: dict[int, BeamSearch] = {}
        """Searches by the first beam's id, in the order in which they began."""
        self._parked: frozenset[int] = frozenset()
        """Beams that wait for the others of their search, without blocks and outside the queues."""

    def refuse_too_many(self, num_beams: int) -> None:
        """Raise ConfigError for more beams than can run together."""
        if num_beams > self.config.max_num_seqs:
            raise ConfigError(
                f"beams={num_beams}: the beams of a search run together, but max_num_seqs is "
                f"{self.config.max_num_seqs}: raise it, or ask for fewer beams"
            )

    # -- what may follow a beam ----------------------------------------------------------------------------------------

    def num_likeliest(self, plan: StepPlan) -> int:
        """Return how many candidate tokens each beam of a step needs; 0 for a step without beams.

        Before its search begins, a beam has siblings that wait for the prompt.
        """
        if not self._of and not self.scheduler.siblings:
            return 0
        num_beams = max((part.sampling.beams for _, part in plan.beams), default=0)
        return self._policy.num_ranked(num_beams, len(self.config.eos_token_ids)) if num_beams else 0

    def note_likeliest(self, plan: StepPlan, found: Sequence[Likeliest]) -> None:
        """Keep the candidate tokens of the beams that a step computes. A search begins when its prompt is computed."""
        for (_, part), likeliest in zip(plan.beams, found, strict=True):
            beam = self.scheduler.requests[part.request_id]
            search = self.search_of(beam)
            if search is None:
                beam_ids = [one.request_id for one in (beam, *self.scheduler.siblings.of(beam))]
                search = BeamSearch(tuple(beam_ids), {beam.request_id: 0.0})
            if beam.request_id in search.scores:
                self._put(search.noted(beam.request_id, likeliest))

    # -- deciding ------------------------------------------------------------------------------------------------------

    def decide_due(self) -> tuple[int, ...]:
        """Decide the searches whose beams are all computed. Returns the ids of finished requests."""
        self.chosen = {}
        finished: tuple[int, ...] = ()
        for search in [search for search in self._of.values() if search.is_due]:
            finished += self.decide(search)
        return finished

    def decide(self, search: BeamSearch) -> tuple[int, ...]:
        """Continue a search's beams, or end it. Returns the ids of finished requests.

        Dropped beams are replaced before tokens are appended, because a fork shares computed tokens.
        """
        first = self.scheduler.requests[search.beam_ids[0]]
        start = first.num_prompt_tokens
        generated = {beam_id: tuple(self.scheduler.requests[beam_id].token_ids[start:]) for beam_id in search.scores}

        def reason_to_end(token_id: int, index: int) -> FinishReason | None:
            if not first.sampling.ignore_eos and token_id in self.config.eos_token_ids:
                return "stop"
            return "length" if index + 1 == first.sampling.max_tokens else None

        num_eos_tokens = 0 if first.sampling.ignore_eos else len(self.config.eos_token_ids)
        decision = self._policy.decide(search, generated, reason_to_end, num_eos_tokens)
        after, going_on, is_over = decision
        if is_over:
            return self.end_search(after)
        places = self.places(search, going_on)
        for beam_id, one in places.items():
            if beam_id != one.parent_id:
                self.replace_beam(self.scheduler.requests[beam_id], self.scheduler.requests[one.parent_id])
        for beam_id, one in places.items():
            self._append_chosen(self.scheduler.requests[beam_id], one.token_id)
        for beam_id in reversed(places):
            if self.unpark(self.scheduler.requests[beam_id]):
                self.scheduler.requeue(self.scheduler.requests[beam_id])
        self._put(replace(after, scores={beam_id: one.score for beam_id, one in places.items()}))
        return ()

    def places(self, search: BeamSearch, going_on: Sequence[Continuation]) -> dict[int, Continuation]:
        """Return each continuation's request: a beam's best one keeps the request, the others take those left over."""
        places: dict[int, Continuation] = {}
        others: list[Continuation] = []
        for one in going_on:
            if one.parent_id in places:
                others.append(one)
            else:
                places[one.parent_id] = one
        left = (beam_id for beam_id in search.beam_ids if beam_id not in places)
        return places | dict(zip(left, others, strict=False))

    def replace_beam(self, beam: Request, parent: Request) -> None:
        """Drop a beam: its request gets the tokens of another beam and forks from it.

        If the other beam holds no blocks, the request is queued, as that beam is.
        """
        if beam.token_ids == parent.token_ids and beam.has_blocks:
            return
        if not parent.has_blocks:
            if not self.unpark(beam):
                self.scheduler._remove_running(beam)
                self.scheduler.take_blocks(beam)
            self.take_tokens(beam, parent.token_ids, parent)
            self.scheduler.requeue(beam)
            return
        was_parked = self.unpark(beam)
        if not was_parked:
            self.scheduler._remove_running(beam)
            self.manager.free(beam, "pruned")
        self.take_tokens(beam, parent.token_ids, parent)
        if was_parked and not self._forks.has_seats(beam):
            self.scheduler.requeue(beam)
        else:
            self._forks.fork(beam, parent)

    def _append_chosen(self, beam: Request, token_id: int) -> None:
        self.scheduler.append_token(beam, token_id)
        self.chosen[beam.request_id] = token_id

    def take_tokens(self, beam: Request, token_ids: Sequence[int], parent: Request | None) -> None:
        """Replace a beam's tokens and forget their hash chain: none of the new tokens has KV."""
        self._set(beam, "token_ids", list(token_ids))
        self._set(beam, "num_computed_tokens", 0)
        for name in ("block_hashes", "links", "prefixes"):
            self._set(beam, name, [])
        if BeamReplaced in self._hooks:
            parent_id = None if parent is None else parent.request_id
            self._hooks.emit(BeamReplaced(beam.request_id, tuple(token_ids[beam.num_prompt_tokens :]), parent_id))

    def end_search(self, search: BeamSearch) -> tuple[int, ...]:
        """Finish all requests of a search. Each gets one of the ended texts, the first the best one."""
        self._end(search)
        for beam_id, text in zip(search.beam_ids, search.ended, strict=True):
            beam = self.scheduler.requests[beam_id]
            if not self.unpark(beam):
                self.scheduler._remove_running(beam)
            self.manager.free(beam, "finished")
            prompt = beam.token_ids[: beam.num_prompt_tokens]
            *tokens, last = (*prompt, *text.token_ids)
            if tokens != beam.token_ids:
                self.take_tokens(beam, tokens, None)
            self._append_chosen(beam, last)
            self.scheduler.finish(beam, text.reason)
        return search.beam_ids

    # -- losing blocks, and ending -------------------------------------------------------------------------------------

    def last_held(self, request: Request) -> Request | None:
        """Return the youngest running beam, if all requests that run beside this one are beams waiting for others."""
        others = [one for one in self.scheduler.running if one is not request]
        return others[-1] if others and all(map(self.holds, others)) else None

    def all_of(self, beam: Request) -> tuple[Request, ...]:
        """Return all beams of a beam's search, even before the search has begun."""
        search = self.search_of(beam)
        if search is not None:
            return tuple(self.scheduler.requests[beam_id] for beam_id in search.beam_ids)
        leader = self.scheduler.siblings.leader_of(beam, self.scheduler.requests)
        return (*self.scheduler.siblings.of(leader), leader)

    def leave(self, beam: Request) -> bool:
        """End the search of an aborted beam. Returns True if the beam waited outside the queues."""
        search = self.search_of(beam)
        if search is not None:
            self._end(search)
        return self.unpark(beam)

    # -- the searches --------------------------------------------------------------------------------------------------

    def search_of(self, request: Request) -> BeamSearch | None:
        """Return the search of a beam; None before it has begun, and for other requests."""
        return next((search for search in self._of.values() if request.request_id in search.beam_ids), None)

    def holds(self, request: Request) -> bool:
        """Return True for a computed beam that waits for the others of its search."""
        return any(request.request_id in search.likeliest for search in self._of.values())

    def _put(self, search: BeamSearch) -> None:
        """Add a search, or replace its earlier state."""
        self._set(self, "_of", {**self._of, search.beam_ids[0]: search})

    def _end(self, search: BeamSearch) -> None:
        """Forget a search."""
        self._set(self, "_of", {first: one for first, one in self._of.items() if first != search.beam_ids[0]})

    def park(self, request: Request) -> bool:
        """Let a computed beam that loses its blocks wait for the decision outside the queues; False for others."""
        if not self.holds(request):
            return False
        self._set(self, "_parked", self._parked | {request.request_id})
        return True

    def unpark(self, request: Request) -> bool:
        """End a beam's parking. Returns False if it was not parked."""
        if request.request_id not in self._parked:
            return False
        self._set(self, "_parked", self._parked - {request.request_id})
        return True
