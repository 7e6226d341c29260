"""OpenVINO GenAI issue 4190: a rejected guess is dealt with one iteration too late.

The sampler goes through a step's guesses one by one. If it draws and rejects one, it goes on to the next row of logits
and draws the token there: that row was computed behind the rejected guess. And how many tokens are taken back is
noted in that next iteration, counted from its own place: 0, if the rejected guess was the last. Then the rejected guess
stays counted as computed. (labengine's guesses are rejected where the model draws another token, OpenVINO's by a ratio
of probabilities: what happens behind a rejection is the same.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.proposer import FixedDrafts
from labengine.core.request import FinishReason, Request
from labengine.core.step_plan import ScheduledRequest
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import BlockCached, DraftsJudged, RequestScheduled, StepEnded, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, Conclusion, Report
from labengine.scenarios.scenario import Column, Experiment, GuideStop, Scenario, Table, sentences, settings

SAMPLER = "src/cpp/src/sampling/sampler.cpp"


class RejectsOneIterationLate(TokenBudgetScheduler):
    """Takes the token of the row behind the rejected guess, and takes one guess too few back."""

    def judge_drafts(self, request: Request, part: ScheduledRequest, sampled: Sequence[int]) -> FinishReason | None:
        """Skip the row that rejects a guess; behind the last guess, take back nothing."""
        num_accepted = self.num_accepted(part.token_ids[-part.num_drafts :], sampled)
        if num_accepted == part.num_drafts:
            return super().judge_drafts(request, part, sampled)
        reason = super().judge_drafts(request, part, [*sampled[:num_accepted], *sampled[num_accepted + 1 :]])
        if num_accepted == part.num_drafts - 1:
            self.book_accepted(request, request.num_tokens)
        return reason


class Guesses(Experiment):
    """A prompt of six tokens, and guesses that the model never draws."""

    columns = (
        Column(
            "one iteration late",
            Parts(name="labengine, rejects one iteration late", scheduler=RejectsOneIterationLate).overriding(
                LABENGINE
            ),
            "Draws the token behind the rejected guess, and sets the count back by one guess too few.",
        ),
        Column(
            "at once",
            "labengine",
            "The row that rejects a guess has the right token: it is taken, and no guess from there on counts.",
        ),
    )
    settings = settings(num_blocks=16, block_size=4, speculation=FixedDrafts((7,) * 32, num_drafts=1))

    def play(self, lab: Lab) -> None:
        """Compute the prompt, then take three steps more."""
        lab.add(token_ids=range(1, 7), max_tokens=6)
        for _ in range(4):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count tokens, those that a lab without guesses would not have, and those computed too many."""
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
    """Two guesses a step, of which the first is rejected."""

    question = "Two guesses, and the first is rejected: what is wrong then?"
    settings = settings(num_blocks=16, block_size=4, speculation=FixedDrafts((7,) * 32, num_drafts=2))

    def answer(self, table: Table) -> str:
        """State that the count is right, and the tokens are not."""
        late = table["one iteration late"]
        return (
            f"If the first of two guesses is rejected, the count is right ({late['computed too many']} too many), and "
            f"{late['wrong tokens']} of {late['tokens']} tokens are wrong: no check of the cache sees that. The rule "
            "about sampled tokens does."
        )


class RejectedLate(Guesses, Scenario):
    """One guess a step, so that each rejection is that of the last guess."""

    id = "openvino-genai-4190"
    title = "A rejected guess counts as computed"
    report = Report(
        repository="openvinotoolkit/openvino.genai",
        kind="issue",
        number="4190",
        title=(
            "Speculative decoding (`draft_model()`) + non-greedy sampling: crash and silent output corruption from a "
            "one-iteration-late rejection handler"
        ),
        state="open",
        as_of="2026-07-20",
        seen_in="2026.2.1 and 2026.3.0, as their code reads, and the main branch at da1db864 (2026-08-21)",
        needs=(
            "a draft model, and sampling with do_sample",
            "for the crash: prefix caching, and a rejection of the last guess",
        ),
    )
    kind = "speculation"
    breaks = "A token counts as computed whose slot holds the KV of the guess that it replaces."
    wrong_figure = "wrong tokens"
    seen_by = ("progress", "sampled", "named")
    claim = (
        "A rejected guess is handled one iteration late. So the right token is dropped and the one of the next row "
        "kept; and if the guess was the last, the count of processed tokens stays one too high, until an assertion "
        "fails when a block is hashed."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "Read in the code of 2026.3.0, and not run: the rejecting iteration only goes on to the next one, which "
            "removes the guesses, draws from its own row, and notes its own offset as what was removed. Behind the "
            "last guess that is 0, and the count is set back for more than 0 alone. Greedy decoding and prompt look-up "
            "take another way, which removes the guesses at once."
        ),
        passages=(
            CodePassage(
                version="openvino.genai 2026.3.0.0",
                file=SAMPLER,
                line=1553,
                text="continue;",
                says="What follows a rejection where tokens are drawn: the next iteration.",
            ),
            CodePassage(
                version="openvino.genai 2026.3.0.0",
                file=SAMPLER,
                line=1420,
                text="running_sequence->remove_last_tokens(token_offset);",
                says="The next iteration removes the rejected guess and those behind it.",
            ),
            CodePassage(
                version="openvino.genai 2026.3.0.0",
                file=SAMPLER,
                line=1530,
                text="max_removed_tokens_per_request, generated_seq_token_offset)",
                says="As removed it notes its own offset: one less than that of the rejected guess.",
            ),
            CodePassage(
                version="openvino.genai 2026.3.0.0",
                file=SAMPLER,
                line=1761,
                text="if (assisting_pipeline_info.max_removed_tokens_per_request)",
                says="The count of processed tokens is set back if any was noted.",
            ),
            CodePassage(
                version="openvino.genai 2026.3.0.0",
                file="src/cpp/src/sequence_group.cpp",
                line=32,
                text="content_length <= prompt_ids.size() + m_generated_ids.size()",
                says="A block's hash is over tokens that the sequence has.",
            ),
        ),
    )
    question = "A's one guess is rejected: which token comes next, and how many are computed?"
    roles = ("the bug: a rejection one iteration late", "labengine's way: the row that rejects has the token")
    guide = (
        GuideStop(
            "A's prompt has six tokens, and its first token is sampled. One guess is made of what follows.",
            TokenSampled,
        ),
        GuideStop(
            "The newest token and the guess are computed together. Each of them has a row of logits.",
            RequestScheduled,
            lambda event: event.num_drafts > 0,
        ),
        GuideStop("The newest token's row has another token than the guess: it is rejected.", DraftsJudged),
        GuideStop(
            "Right, the other token comes next. Left, it is dropped, and the token of the second row taken: what the "
            "model would say behind the rejected guess.",
            TokenSampled,
            lambda event: event.position == 7,
        ),
        GuideStop(
            "Left, block 1 is registered as full. Its last slot holds the KV of the rejected guess, not of the token.",
            BlockCached,
            lambda event: event.index == 1,
        ),
        GuideStop(
            "Left, all eight tokens count as computed, and no step computes the newest one: here A gets no further "
            "token. Right, seven do: the slot is written again, before anything reads it.",
            StepEnded,
        ),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"two guesses": TwoGuesses()}

    def answer(self, table: Table) -> str:
        """State what is wrong."""
        late, right = (table[column.name] for column in self.columns)
        return (
            f"One iteration late, {late['wrong tokens']} of {late['tokens']} tokens is not the model's, and "
            f"{late['computed too many']} counts as computed that is not. At once, all {right['tokens']} are those "
            "that come without guesses."
        )


SCENARIO = RejectedLate()
