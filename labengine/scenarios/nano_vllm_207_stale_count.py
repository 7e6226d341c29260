"""nano-vLLM pull request 207: the tokens to compute are counted before the look-up, and the look-up finds some.

A request then computes as many tokens as its prompt has, from the end of its hit on: past its own end, and past its
block table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labengine.core.editions import NANO_VLLM
from labengine.core.parts import Parts
from labengine.core.prefill_first import PrefillFirstScheduler
from labengine.core.request import Request
from labengine.core.scheduler import NOT_ADMITTED, Admission
from labengine.events import PrefixHit, RequestAdded, RequestFinished, RequestScheduled, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    Experiment,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    symptom,
    wrong_at,
)


class CountsBeforeTheLookUp(PrefillFirstScheduler):
    """The scheduler before the pull request."""

    def admit(self, request: Request, limit: int, *, is_first: bool) -> Admission:
        """Return the tokens that were missing before the look-up raised the number of computed ones."""
        missing = request.num_tokens - request.num_computed_tokens
        admitted = super().admit(request, limit, is_first=is_first)
        return admitted if admitted is NOT_ADMITTED else min(missing, limit)


STALE = Column(
    "count first",
    Parts(name="nano-vllm, count first", scheduler=CountsBeforeTheLookUp).overriding(NANO_VLLM),
    "Counts the missing tokens, then looks the prompt up: the count still has the tokens of the hit.",
)
FIXED = Column("look up first", "nano-vllm", "Looks the prompt up, then counts what the hit leaves.")


class SecondPrompt(Experiment):
    """Two prompts with a common first block; the second one comes when the first has ended."""

    question = "The sizes of pull request 210: 465 tokens, of which a block of 256 is cached"
    columns = (STALE, FIXED)
    settings = settings(num_blocks=6, block_size=256)
    num_shared, num_tokens = 256, 465

    def play(self, lab: Lab) -> None:
        """Run A; then take a step for B, which an error may end."""
        self.run_first(lab)
        self.add_second(lab)
        symptom(lab.step)

    def run_first(self, lab: Lab) -> None:
        """Run A to its end: one token more than the block that both share."""
        lab.generate([range(self.num_shared + 1)], max_tokens=1)

    def add_second(self, lab: Lab) -> None:
        """Add B: A's block and other tokens."""
        others = range(1000, 1000 + self.num_tokens - self.num_shared)
        lab.add(token_ids=[*range(self.num_shared), *others], max_tokens=2)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Return B's length, the positions [start, end) that the step was to compute, and whether it failed."""
        [scheduled] = [event for event in events_of(lab, RequestScheduled) if event.request_id == 1]
        return {
            "tokens of the prompt": self.num_tokens,
            "first position computed": scheduled.start,
            "end of the computed positions": scheduled.start + scheduled.num_tokens,
            "steps ended by an error": len(events_of(lab, StepRolledBack)),
        }

    def answer(self, table: Table) -> str:
        """State which positions the step was to compute."""
        wrong, right = table[STALE.name], table[FIXED.name]
        return (
            f"{wrong['tokens of the prompt']} tokens, {wrong['first position computed']} of them found: the stale "
            f"count ends at position {wrong['end of the computed positions']}, the right one at "
            f"{right['end of the computed positions']}."
        )


class StaleCount(SecondPrompt, Scenario):
    """The same with blocks of 4."""

    id = "nano-vllm-207"
    title = "Tokens are counted before the look-up that finds some of them"
    report = Report(
        repository="GeeeekExplorer/nano-vllm",
        kind="pull request",
        number="207",
        title=("fix(scheduler): recalculate num_tokens after allocate to prevent IndexError at model_runner:155"),
        state="merged",
        as_of="2026-08-26",
        seen_in="commit 812eb1c (2026-04-14), where pull request 204 brought chunked prefill",
        mended_in=(
            "commit 44a51af (2026-04-25), which merged it; pull request 218 wrote the scheduler anew a day later"
        ),
        needs=("a prompt that hits cached blocks",),
    )
    claim = "allocate() raises num_cached_tokens after num_tokens was counted: the range [start, end) is too long."
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "The tokens were counted before `allocate()` raised the cached ones, so that the step "
            "computed past the end of the prompt and of its block table."
        ),
        passages=(
            CodePassage(
                version="nano-vllm 812eb1c",
                file="nanovllm/engine/scheduler.py",
                line=31,
                text="num_tokens = max(seq.num_tokens - seq.num_cached_tokens, 1)",
                says="The count is taken before the blocks are allocated.",
            ),
            CodePassage(
                version="nano-vllm 812eb1c",
                file="nanovllm/engine/scheduler.py",
                line=38,
                text="self.block_manager.allocate(seq)",
                says="The look-up comes with the allocation, and raises num_cached_tokens.",
            ),
            CodePassage(
                version="nano-vllm 812eb1c",
                file="nanovllm/engine/scheduler.py",
                line=39,
                text="seq.num_scheduled_tokens = min(num_tokens, remaining)",
                says="What is scheduled is the old count.",
            ),
            ThreadPassage(
                source="GeeeekExplorer/nano-vllm 210",
                says="The same defect with sizes: 465 tokens, 256 of them found, and an end at 721.",
            ),
        ),
    )
    kind = "boundary"
    breaks = "A request with a prefix hit is to compute tokens behind its own end, and the step raises."
    seen_by = ("granted",)
    question = "B begins with A's block: which positions does its first step compute?"
    settings = settings(num_blocks=8, block_size=4)
    num_shared, num_tokens = 4, 9
    roles = ("the bug: count, then look up", "the fix: look up, then count")
    guide = (
        GuideStop("A's prompt has five tokens: one full block and one token more.", RequestAdded),
        GuideStop("A has ended. Its full block is free, and cached.", RequestFinished),
        GuideStop(
            "B's prompt has nine tokens and begins with A's block. Left, nine are counted as missing: nobody has "
            "looked yet.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Both find A's block: four tokens are computed already.", PrefixHit, lambda event: event.request_id == 1
        ),
        GuideStop(
            "Right, B computes positions 4 to 8. Left, nine tokens from position 4 on: up to 12, in a table that ends "
            "with position 11.",
            RequestScheduled,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, the slot of position 12 is looked up, and the table has none: the step raises, and is lost.",
            StepRolledBack,
            about_slots=True,
        ),
    )
    sentences = sentences(guide[:3])
    follow_up_question = "What does B's first step compute?"
    experiments: Mapping[str, Experiment] = {"465 tokens": SecondPrompt()}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if the step was to compute positions behind the prompt."""
        return measured["end of the computed positions"] > measured["tokens of the prompt"]

    def opening(self, lab: Lab) -> None:
        """Run A, and add B."""
        self.run_first(lab)
        self.add_second(lab)

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Take B's first step, which an error may end."""
        return (lambda lab: symptom(lab.step),)

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the event that schedules positions behind the prompt's end."""
        ends = {event.request_id: len(event.token_ids) for event in events_of(lab, RequestAdded)}
        moment = moment_of(
            lab, RequestScheduled, lambda e: e.is_prefill and e.start + e.num_tokens > ends[e.request_id]
        )
        text = "Request 1 is to compute nine tokens from position 4 on, and its prompt ends with position 8."
        return None if moment is None else wrong_at(lab, moment, text)


SCENARIO = StaleCount()
