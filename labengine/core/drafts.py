"""Drafts: guessed tokens, from their proposal until the model has judged them."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.collaborator import Collaborator
from labengine.core.request import FinishReason, Request, RequestStatus
from labengine.core.request_queues import RequestQueues
from labengine.core.step_plan import ScheduledRequest
from labengine.events import DraftsJudged, TokensDrafted


class Drafts(Collaborator):
    """Decides how many guesses a request gets, and which of them become its tokens (Leviathan et al., 2023)."""

    def __init__(self, scheduler: RequestQueues) -> None:
        super().__init__(scheduler)
        self.accepted: dict[int, int] = {}
        """Per request, how many of its drafts were accepted in the newest update."""

    # -- how many ------------------------------------------------------------------------------------------------------

    num_inputs = 0
    """Tokens of the budget that a scheduled request takes besides its own."""

    def num_wanted(self, request: Request) -> int:
        """Return how many drafts a request can use: a step yields one token more than it accepts, up to max_tokens."""
        if request.status is not RequestStatus.RUNNING or request.num_computed_tokens != request.num_tokens - 1:
            return 0
        if request.sampling.beams > 1:  # its search chooses among beams, not by the likeliest token alone
            return 0
        return min(self.config.num_drafts, request.sampling.max_tokens - request.num_generated_tokens - 1)

    def num_affordable(self, request: Request) -> int:
        """Return how many of a request's drafts can have blocks: a guess is not worth a preemption."""
        num_known = request.num_tokens
        fits = self.manager.has_blocks_for
        return next((num for num in range(len(request.drafts), 0, -1) if fits(request, num_known + num)), 0)

    def fitting(self, request: Request, num_tokens: int) -> tuple[int, ...]:
        """Return a request's drafts that fit into the num_tokens tokens of its step; drop the others."""
        if len(request.drafts) >= num_tokens:
            self._set(request, "drafts", request.drafts[: num_tokens - 1])
        return request.drafts

    # -- from the proposal to the verdict ------------------------------------------------------------------------------

    def keep(self, request: Request, drafts: tuple[int, ...]) -> None:
        """Keep guesses of a request's next tokens; () drops them."""
        if drafts == request.drafts:
            return
        self._set(request, "drafts", drafts)
        if TokensDrafted in self._hooks:
            self._hooks.emit(TokensDrafted(request.request_id, drafts))

    def judge(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> FinishReason | None:
        """Append the sampled tokens up to the first that differs from its draft; return the reason if the request ends.

        sampled: the model's own token for each draft, and one after the last. Only accepted drafts' KV counts. That of
        the others stays in the blocks as garbage until a later step overwrites it, before any token attends to it.
        """
        num_accepted = self.num_accepted(part.token_ids[-part.num_drafts :], sampled)
        self.accepted[request.request_id] = num_accepted
        self._set(request, "drafts", ())
        if DraftsJudged in self._hooks:
            self._hooks.emit(DraftsJudged(request.request_id, num_accepted, part.num_drafts - num_accepted))
        for token_id in sampled[: num_accepted + 1]:
            self.scheduler.append_token(request, token_id)
            if (reason := self.scheduler.finish_reason(request)) is not None:
                break
        self.book_accepted(request, request.num_tokens - 1)
        return reason

    def num_accepted(self, drafts: Sequence[int], sampled: Sequence[int]) -> int:
        """Return how many drafts are accepted: those before the first that differs from the model's sampled token.

        So the tokens are those that would be sampled without drafts. For a guess of one token this is the rejection
        sampling of Leviathan et al. (2023, appendix A.1): the model samples draft x with its own probability p(x), else
        another token with p / (1 - p(x)), and each is what a plain step would have drawn at that position.
        """
        pairs = zip(drafts, sampled, strict=False)
        return next((index for index, (draft, token) in enumerate(pairs) if draft != token), len(drafts))

    def book_accepted(self, request: Request, num_tokens: int) -> None:
        """Note that the first num_tokens tokens have KV, accepted drafts included, and register their full blocks."""
        self.scheduler.book_computed(request, num_tokens)
