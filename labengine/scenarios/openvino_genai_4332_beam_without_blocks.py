"""OpenVINO GenAI pull request 4332: a group of beams is preempted, and one of them holds no blocks.

OpenVINO preempts the beams of a search together, and asserts that each has a block table. The pull request skips those
that have none. labengine preempts beam by beam; here a scheduler preempts them together, and they come back one by one,
so that one of them may hold nothing when the search has to give way again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from labengine.core.editions import LABENGINE
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.core.token_budget import TokenBudgetScheduler
from labengine.events import RequestForked, RequestPreempted, RequestScheduled, StepFailed, StepRolledBack
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_finished, num_preemptions
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
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

MAIN = "openvino.genai da1db864"
BLOCK_MANAGER = "src/cpp/src/continuous_batching/cache/block_manager.hpp"


class PreemptsTogether(TokenBudgetScheduler):
    """Preempts all beams of a search for one of them."""

    def preempt(self, victim: Request) -> None:
        """Free the blocks of the victim, and of the other beams of its search."""
        for beam in self.beams_of(victim):
            if beam is not victim:
                super().preempt(beam)
        super().preempt(victim)

    def beams_of(self, victim: Request) -> Sequence[Request]:
        """Return the beams of a search that hold blocks."""
        return [beam for beam in self.ends_with(victim) if beam.has_blocks]


class PreemptsEveryBeam(PreemptsTogether):
    """Takes it that every beam of the search holds blocks."""

    def beams_of(self, victim: Request) -> Sequence[Request]:
        """Return all beams of the search."""
        return self.ends_with(victim)


TOGETHER = Parts(name="labengine, beams together", scheduler=PreemptsTogether).overriding(LABENGINE)


class BeamWithoutBlocks(Scenario):
    """A request beside a search of two beams, in a pool of four blocks."""

    id = "openvino-genai-4332"
    title = "A search gives way again, and one of its beams holds nothing"
    report = Report(
        repository="openvinotoolkit/openvino.genai",
        kind="pull request",
        number="4332",
        title="Fix stale sequence handling during partial preemption",
        state="closed",
        as_of="2026-08-21",
        seen_in="with beams the main branch at 2e24cc93; the same assertion without beams 2026.2.1 (model_server 4428)",
        needs=("beam search with continuous batching", "too few blocks, so that a running search is preempted"),
    )
    kind = "preemption"
    breaks = "What frees the blocks of a group takes it that every member has some, and raises."
    wrong_figure = "steps that failed"
    why_unseen = "The error ends the step before it computes anything, and the step is taken back."
    claim = (
        "When a group of beams is preempted in part, a fork may have left the block table already while the loop still "
        "goes over it, and an assertion fails. It should be treated as freed."
    )
    conclusion = Conclusion(
        answer="holds in part",
        reason=(
            "That the assertion fails for beams, a user's runs of the pull request's base show (model_server 4428). "
            "That a fork has left the table before the loop is not shown: the pull request's test frees it by hand, "
            "and in the pipeline a beam that is dropped leaves its group in the call that reports it. What may lead "
            "there is the loop itself, as it reads: it takes a block from each beam in turn, a beam's last one ends "
            "its table, and its own test for the end subtracts unsigned numbers, so that it is true only where the "
            "context ends with a block. With what the pull request proposes, the same runs hang. Nothing was run here."
        ),
        passages=(
            CodePassage(
                version=MAIN,
                file=BLOCK_MANAGER,
                line=760,
                text='OPENVINO_ASSERT(m_block_table.count(seq_id) > 0, "Invalid sequence group.");',
                says="Every beam that has not finished has to have a block table.",
            ),
            CodePassage(
                version=MAIN,
                file="src/cpp/src/sampling/sampler.cpp",
                line=507,
                text="m_sequence_group->remove_sequence(beam.m_sequence->get_id());",
                says="A beam that is not continued leaves the group.",
            ),
            CodePassage(
                version=MAIN,
                file=BLOCK_MANAGER,
                line=795,
                text="(int)sequence_group->get_context_len() - logical_blocks_released * m_block_size <= 0",
                says="The loop's test for the end: an int minus a size_t is never below 0.",
            ),
            ThreadPassage(
                source="openvinotoolkit/openvino.genai 4332",
                says="The test forks a sequence, frees the fork, and then frees a part of the group.",
            ),
            ThreadPassage(
                source="openvinotoolkit/model_server 4428",
                says=(
                    "A user, in September 2026, ran the base of the pull request, 2e24cc93, and the same with it. Two "
                    "runs with beams failed at line 760 without it, and with it they stood still at step 8 until they "
                    "were ended. The issue itself is a server of 2026.2.1 that fails at line 633: the assertion for "
                    "groups that do not search with beams."
                ),
            ),
        ),
    )
    question = "A and a search of two beams in four blocks: how many steps fail, and how many requests end?"
    roles = ("the assertion: all beams hold blocks", "the proposal: those that do")
    columns = (
        Column(
            "every beam",
            Parts(name="labengine, every beam", scheduler=PreemptsEveryBeam).overriding(TOGETHER),
            "Preempts a search by going over all its beams, as the assertion asks for.",
        ),
        Column("holders", TOGETHER, "Goes over the beams that hold blocks, as the pull request proposes."),
        Column(
            "one by one",
            "labengine",
            "Preempts one beam at a time: the youngest, and the next one only if that does not suffice.",
        ),
    )
    settings = settings(num_blocks=4, block_size=4)
    guide = (
        GuideStop(
            "B searches with two beams: C forks from it when its prompt is computed. A runs beside them.", RequestForked
        ),
        GuideStop(
            "A needs a second block, and none is free. Both beams give theirs back, B first.",
            RequestPreempted,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "There is room for one of them: C comes back, and B waits without blocks.",
            RequestScheduled,
            lambda event: event.request_id == 2 and event.start == 4,
        ),
        GuideStop(
            "A needs a third block. Left, B is to give its blocks back once more, and it has none: the step fails.",
            StepFailed,
        ),
        GuideStop(
            "Left, the step is taken back, and every other attempt fails as this one. Right, C alone gives way, and A "
            "gets on.",
            StepRolledBack,
        ),
    )
    sentences = sentences(guide[:3])

    def play(self, lab: Lab) -> None:
        """Take six steps, then fourteen more; an error may end each of these."""
        self.opening(lab)
        for _ in range(14):
            symptom(lab.step)

    def opening(self, lab: Lab) -> None:
        """Add the request and the search, and take the steps up to that in which A needs its third block."""
        lab.add(token_ids=(50, 51, 52), max_tokens=10)
        lab.add(token_ids=range(1, 7), max_tokens=6, beams=2)
        for _ in range(6):
            lab.step()

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Take that step, which an error may end."""
        return (lambda lab: symptom(lab.step),)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count failed steps, preemptions, and requests that ended."""
        return {
            "steps that failed": len(events_of(lab, StepRolledBack)),
            "preemptions": num_preemptions(lab),
            "requests ended": num_finished(lab),
        }

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the first step that fails."""
        moment = moment_of(lab, StepFailed)
        return None if moment is None else wrong_at(lab, moment, "B holds no blocks, and is to give them back.")

    def answer(self, table: Table) -> str:
        """State how many steps fail."""
        every, holders, single = (table[column.name] for column in self.columns)
        return (
            f"Over every beam, {every['steps that failed']} of 20 steps fail, and {every['requests ended']} of 3 "
            f"requests end. Over those that hold blocks, all {holders['requests ended']} end, with "
            f"{holders['preemptions']} preemptions, as with {single['preemptions']} if beams give way one by one."
        )


SCENARIO = BeamWithoutBlocks()
