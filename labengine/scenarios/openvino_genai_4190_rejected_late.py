"""OpenVINO GenAI issue 4190: a rejected guess is handled one iteration too late.

The sampler goes through a step's guesses one by one. If it draws and rejects one, it continues with the next row of
logits and draws the token there, but that row was computed after the rejected guess. That next iteration also notes the
number of tokens to take back, counted from its own place: 0 if the rejected guess was the last. Then the rejected guess
stays counted as computed. labengine rejects a guess if the model draws another token, OpenVINO by a ratio of
probabilities; the steps after a rejection are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from labengine.core.drafts import Drafts
from labengine.core.proposer import FixedDrafts
from labengine.core.request import FinishReason, Request
from labengine.core.step_plan import ScheduledRequest
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, Experiment, Scenario, settings


class RejectsOneIterationLate(Drafts):
    """Takes the token of the row after the rejected guess; if the guess was the last, takes nothing back."""

    def judge(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> FinishReason | None:
        """Skip the row that rejects a guess; after the last guess, take back nothing."""
        num_accepted = self.num_accepted(part.token_ids[-part.num_drafts :], sampled)
        if num_accepted == part.num_drafts:
            return super().judge(request, part, sampled)
        reason = super().judge(request, part, [*sampled[:num_accepted], *sampled[num_accepted + 1 :]])
        if num_accepted == part.num_drafts - 1:
            self.book_accepted(request, request.num_tokens)
        return reason


class Guesses(Experiment):
    """A prompt of six tokens, and guesses that the model never draws."""

    columns = (Column("labengine", RejectsOneIterationLate), Column("labengine"))
    settings = settings(num_blocks=16, block_size=4, speculation=FixedDrafts((7,) * 32, num_drafts=1))

    def play(self, lab: Lab) -> None:
        """Compute the prompt, then take three more steps."""
        lab.add(token_ids=range(1, 7), max_tokens=6)
        for _ in range(4):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count tokens, those that a lab without guesses does not have, and those counted as computed in excess."""
        request = lab.snapshot().requests[0]
        got = request.token_ids[request.num_prompt_tokens :]
        with Lab("simulated", num_blocks=16, block_size=4, record=False, check=False) as alone:
            (output,) = alone.generate([request.token_ids[: request.num_prompt_tokens]], max_tokens=len(got))
        return {
            "tokens": len(got),
            "wrong tokens": sum(one != other for one, other in zip(got, output.token_ids, strict=True)),
            "computed too many": max(0, request.num_computed_tokens - (len(request.token_ids) - 1)),
        }


class TwoGuesses(Guesses):
    """Two guesses per step, the first of which is rejected."""

    settings = settings(num_blocks=16, block_size=4, speculation=FixedDrafts((7,) * 32, num_drafts=2))


class RejectedLate(Guesses, Scenario):
    """One guess per step, so that each rejected guess is the last."""

    experiments = {"two guesses": TwoGuesses()}
