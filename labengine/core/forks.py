"""Forks: requests that continue another request's tokens on its blocks."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.config import ConfigError
from labengine.core.collaborator import Collaborator
from labengine.core.request import Request, RequestStatus
from labengine.core.step_plan import ScheduledRequest, SlotRun


class Forks(Collaborator):
    """Handles several answers to one prompt, branches, and requests that wait for another one's tokens."""

    def refuse_too_many(self, num_answers: int) -> None:
        """Raise ConfigError for more answers to one prompt than can run together."""
        if num_answers > self.config.max_num_seqs:
            raise ConfigError(
                f"n={num_answers}: the answers to one prompt run together, but max_num_seqs is "
                f"{self.config.max_num_seqs}: raise it, or add the prompt several times"
            )

    def join(self, request: Request, leader: Request) -> None:
        """Accept a request with the same tokens as another one: it waits until these are computed, then forks.

        So the prompt is computed once, and all requests take their first token from the same logits.
        """
        self.scheduler.accept(request, leader)
        self.scheduler.siblings.join(request, leader)

    def branch(self, request: Request, parent: Request) -> None:
        """Accept a request that continues another one's text, perhaps with the newest token replaced.

        It shares the blocks of a decoding parent, and waits for the tokens of any other. Without a seat, or if its
        tokens differ from the parent's, it is queued and shares what the cache has at admission.
        """
        is_decoding = parent in self.scheduler.running and parent.num_computed_tokens == parent.num_tokens - 1
        leader = self.scheduler.siblings.leader_of(parent, self.scheduler.requests)
        if is_decoding and self.has_seats(request):
            self.scheduler.accept(request)
            self.fork(request, parent)
        elif not is_decoding and request.token_ids == parent.token_ids and self._can_join(request, leader):
            self.join(request, leader)
        else:
            self.scheduler.add(request)

    def _can_join(self, request: Request, leader: Request) -> bool:
        if leader in self.scheduler.running:
            return self.has_seats(request)
        return len(self.scheduler.siblings.of(leader)) + 1 < self.config.max_num_seqs

    def fork(self, request: Request, parent: Request) -> None:
        """Start a request on references to another one's blocks: it runs at once, as the youngest."""
        self._set(request, "status", RequestStatus.RUNNING)
        self._journal.record((self.scheduler.running.pop,))
        self.scheduler.running.append(request)
        self.manager.fork(request, parent)

    def has_seats(self, request: Request) -> bool:
        """Return True while max_num_seqs leaves room for a request and those that will fork from it.

        Forks run at once, so their seats must not be taken in the meantime.
        """
        num_running = len(self.scheduler.running)
        if self.scheduler.siblings:
            running = {one.request_id: one for one in self.scheduler.running}
            num_running += self.scheduler.siblings.num_beside(running) + len(self.scheduler.siblings.of(request))
        return num_running < self.config.max_num_seqs

    def start(self, leader: Request) -> None:
        """Fork a leader's siblings from it, now that its tokens are computed."""
        for sibling in self.scheduler.siblings.take(leader):
            self.fork(sibling, leader)

    def follow(self, leader: Request, place: int | None) -> None:
        """Queue the first of a leader's siblings at `place`, or at the front for None; the others wait for it."""
        first, *others = self.scheduler.siblings.take(leader) or (None,)
        if first is not None:
            if place is None:
                self.scheduler._queue_first(first)
            else:
                self._journal.record((self.scheduler._take_out, first))
                self.scheduler.waiting.put_back_request(first, place)
            for other in others:
                self.scheduler.siblings.join(other, first)

    def of_batch(self, batch: Sequence[ScheduledRequest]) -> tuple[tuple[int, ScheduledRequest], ...]:
        """Return the requests that fork once this batch, with their leader's last token, is computed."""
        if not self.scheduler.siblings:
            return ()
        return tuple(
            (part.request_id, _without_tokens(part, sibling))
            for part in batch
            if part.samples
            for sibling in self.scheduler.siblings.of(self.scheduler.requests[part.request_id])
        )


def _without_tokens(part: ScheduledRequest, sibling: Request) -> ScheduledRequest:
    """Return a sibling's share of the step that computes its leader's last token: it only samples."""
    runs: tuple[tuple[SlotRun, ...], ...] = ((),) * len(part.slot_runs)
    ids = sibling.request_id, (), part.end, part.block_tables, runs
    return ScheduledRequest(*ids, part.is_prefill, True, sibling.sampling, sibling.seed)
