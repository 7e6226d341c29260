"""Beam search on forks: the beams of a search are requests, which share blocks until they write to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from labengine.config import ConfigError
from labengine.core.beam_searches import BeamSearches
from labengine.core.beams import BeamPolicy, BeamSearch, Continuation, Likeliest
from labengine.core.guard import guarded
from labengine.core.request import FinishReason, Request
from labengine.core.scheduler import Scheduler
from labengine.core.step_plan import StepPlan
from labengine.events import BeamReplaced


class BeamScheduler(Scheduler):
    """A scheduler with beam search. As many requests as beams begin as forks of the first (see Scheduler.join).

    A beam whose tokens are computed waits until all beams of its search are: then the search decides at once which ones
    go on. A beam that goes on keeps its request; further continuations of it take the requests of beams that do not,
    and fork. So a search takes as many requests as it has beams, and their ids stay.
    """

    beam_policy: ClassVar[type[BeamPolicy]] = BeamPolicy
    """The rules by which beams go on and searches end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.searches = BeamSearches(self._journal)
        self._policy = guarded(self.beam_policy)()

    def refuse_beams(self, num_beams: int) -> None:
        """Raise ConfigError for more beams than could run together."""
        if num_beams > self.config.max_num_seqs:
            raise ConfigError(
                f"beams={num_beams}: the beams of a search run together, and max_num_seqs is "
                f"{self.config.max_num_seqs}: raise it, or ask for fewer beams"
            )

    # -- what may follow a beam ----------------------------------------------------------------------------------------

    def num_likeliest(self, plan: StepPlan) -> int:
        """Return how many tokens may matter after any one beam of a step; 0 for a step without beams.

        Before its search begins, a beam has siblings that wait for the prompt.
        """
        if not self.searches and not self.siblings:
            return 0
        num_beams = max((part.sampling.beams for _, part in plan.beams), default=0)
        return self._policy.num_ranked(num_beams, len(self.config.eos_token_ids)) if num_beams else 0

    def note_likeliest(self, plan: StepPlan, found: Sequence[Likeliest]) -> None:
        """Keep what may follow the beams that a step computes. A search begins when its prompt is computed."""
        for (_, part), likeliest in zip(plan.beams, found, strict=True):
            beam = self.requests[part.request_id]
            search = self.searches.of(beam)
            if search is None:
                beam_ids = [one.request_id for one in (beam, *self.siblings.of(beam))]
                search = BeamSearch(tuple(beam_ids), {beam.request_id: 0.0})
            if beam.request_id in search.scores:
                self.searches.note(search, beam.request_id, likeliest)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def update(self, plan: StepPlan, sampled: Sequence[int]) -> tuple[int, ...]:
        """Book a computed step, then decide the searches whose beams are all computed."""
        self.chosen = {}
        finished = super().update(plan, sampled)
        for search in self.searches.due():
            finished += self.decide(search)
        return finished

    def decide(self, search: BeamSearch) -> tuple[int, ...]:
        """Have a search's beams go on, or end it; return the ids of finished requests.

        Beams that do not go on are replaced first, and tokens are appended after that: a fork shares what is computed.
        """
        first = self.requests[search.beam_ids[0]]
        start = first.num_prompt_tokens
        generated = {beam_id: tuple(self.requests[beam_id].token_ids[start:]) for beam_id in search.scores}

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
                self.replace_beam(self.requests[beam_id], self.requests[one.parent_id])
        for beam_id, one in places.items():
            self._append_chosen(self.requests[beam_id], one.token_id)
        for beam_id in reversed(places):
            if self.searches.unpark(self.requests[beam_id]):
                self.requeue(self.requests[beam_id])
        self.searches.put(replace(after, scores={beam_id: one.score for beam_id, one in places.items()}))
        return ()

    def places(self, search: BeamSearch, going_on: Sequence[Continuation]) -> dict[int, Continuation]:
        """Return which request each continuation gets: its beam's best one stays, the others take what is left."""
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
        """Give a beam that does not go on up: its request gets the tokens of another beam, and forks from it.

        Where the other beam holds no blocks the request is queued, as that one is.
        """
        if beam.token_ids == parent.token_ids and beam.has_blocks:
            return
        if not parent.has_blocks:
            if not self.searches.unpark(beam):
                self._remove_running(beam)
                self.take_blocks(beam)
            self.take_tokens(beam, parent.token_ids, parent)
            self.requeue(beam)
            return
        was_parked = self.searches.unpark(beam)
        if not was_parked:
            self._remove_running(beam)
            self.manager.free(beam, "pruned")
        self.take_tokens(beam, parent.token_ids, parent)
        if was_parked and not self.has_seats(beam):
            self.requeue(beam)
        else:
            self.fork(beam, parent)

    def _append_chosen(self, beam: Request, token_id: int) -> None:
        self.append_token(beam, token_id)
        self.chosen[beam.request_id] = token_id

    def take_tokens(self, beam: Request, token_ids: Sequence[int], parent: Request | None) -> None:
        """Replace a beam's tokens, and forget the hash chain of those that it had: of the new ones none has KV."""
        self._set(beam, "token_ids", list(token_ids))
        self._set(beam, "num_computed_tokens", 0)
        for name in ("block_hashes", "links", "prefixes"):
            self._set(beam, name, [])
        if BeamReplaced in self._hooks:
            parent_id = None if parent is None else parent.request_id
            self._hooks.emit(BeamReplaced(beam.request_id, tuple(token_ids[beam.num_prompt_tokens :]), parent_id))

    def end_search(self, search: BeamSearch) -> tuple[int, ...]:
        """Finish all requests of a search: each gets one of the texts that have ended, the first the best one."""
        self.searches.end(search)
        for beam_id, text in zip(search.beam_ids, search.ended, strict=True):
            beam = self.requests[beam_id]
            if not self.searches.unpark(beam):
                self._remove_running(beam)
            self.manager.free(beam, "finished")
            prompt = beam.token_ids[: beam.num_prompt_tokens]
            *tokens, last = (*prompt, *text.token_ids)
            if tokens != beam.token_ids:
                self.take_tokens(beam, tokens, None)
            self._append_chosen(beam, last)
            self.finish(beam, text.reason)
        return search.beam_ids

    # -- losing blocks, and ending -------------------------------------------------------------------------------------

    def preempt(self, victim: Request) -> None:
        """Preempt a request. A beam that waits for the others of its search is in no queue: it is computed already."""
        if victim in self.running and self.searches.holds(victim):
            self._remove_running(victim)
            self.searches.park(victim)
            self.take_blocks(victim)
        else:
            super().preempt(victim)

    def ends_with(self, request: Request) -> tuple[Request, ...]:
        """Return all beams of a beam's search: who aborts one of them aborts the search."""
        if request.sampling.beams == 1:
            return super().ends_with(request)
        search = self.searches.of(request)
        if search is not None:
            return tuple(self.requests[beam_id] for beam_id in search.beam_ids)
        leader = self.siblings.leader_of(request, self.requests)
        return (*self.siblings.of(leader), leader)

    def abort(self, request: Request) -> None:
        """End a request, of a search each beam; see ends_with."""
        search = self.searches.of(request)
        if search is not None:
            self.searches.end(search)
        if self.searches.unpark(request):
            self.finish(request, "abort")
        else:
            super().abort(request)
