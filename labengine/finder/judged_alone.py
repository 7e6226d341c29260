"""A workload alone in a fresh process, to tell an error of the workload from a lost searcher."""

from __future__ import annotations

from labengine.finder.judgement import Case, Judgement
from labengine.finder.operations import TakeStep
from labengine.finder.sandbox import Finding
from labengine.isolation.alone import called_alone
from labengine.isolation.board import Board, NoAnswer
from labengine.isolation.limits import operations_end

EXIT = "exit"
"""The rule of a finding whose last operation ends the process without raising."""
LOST = "lost"
"""The rule of a finding whose process has ended, but not because of the last workload alone."""


def judged_alone(case: Case, judgement: Judgement, deadline: float) -> tuple[Finding, Case] | None:
    """Play a workload in a forked process; return its finding, as Judgement.of.

    None without one, if the system killed the process, or if it was not done at the deadline (monotonic).
    """

    def play(board: Board) -> tuple[Finding, Case] | None:
        with operations_end():
            return judgement.guarded(case, board.begin)

    answer = called_alone(play, deadline)
    if not isinstance(answer, NoAnswer):
        found: tuple[Finding, Case] | None = answer
        return found
    if answer.why not in ("exit", "endless", "asleep"):
        return None
    return lost_finding(case, answer)


def lost_finding(case: Case, answer: NoAnswer) -> tuple[Finding, Case]:
    """Return the finding of a workload that does not return, and the case up to the operation that does not."""
    begun = answer.begun or len(case.workload)
    workload = (*case.workload, *[TakeStep()] * (begun - len(case.workload)))
    operation = str(workload[begun - 1]) if workload else "to make the engine"
    reached = Case(case.scope, workload[:begun])
    if answer.why == "exit":
        return Finding("liveness", f"{operation}: {answer.reason}", EXIT, ends_process=True), reached
    return Finding("liveness", f"{operation} does not return: in its own process, {answer.reason}", "endless"), reached
