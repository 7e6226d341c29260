"""A workload alone in a fresh process: whether it goes wrong by itself, or only a searcher's process did."""

from __future__ import annotations

from mmap import mmap
from multiprocessing.connection import Connection

from labengine.finder.child import Child, KilledError, NoAnswerError
from labengine.finder.judgement import Case, Judgement
from labengine.finder.limits import operations_end
from labengine.finder.sandbox import Finding

COMPUTING_S = 3.0
"""Processor seconds after which a workload is endless; alone, it takes some thousandths of that."""


def judged_alone(case: Case, judgement: Judgement, deadline: float) -> tuple[Finding, Case] | None:
    """Play a workload in a forked process of its own; return what goes wrong, as Judgement.of.

    None where nothing does, and where it was not done at the deadline (monotonic). A process that is killed is tried
    once more: the machine may have killed the first one.
    """
    begun = mmap(-1, 8)
    try:
        try:
            return _answer(case, judgement, begun, deadline)
        except KilledError:
            return _answer(case, judgement, begun, deadline)
    except NoAnswerError as error:
        number = int.from_bytes(begun[:8], "little") or len(case.workload)
        operation = case.workload[number - 1] if case.workload else "the end"
        finding = Finding("liveness", f"{operation} does not return: {error}", "endless")
        return finding, Case(case.scope, case.workload[:number])


def _answer(case: Case, judgement: Judgement, begun: mmap, deadline: float) -> tuple[Finding, Case] | None:
    child = Child(_play, case, judgement, begun, computing_s=COMPUTING_S)
    try:
        found: tuple[Finding, Case] | None = child.answer(deadline)
        return found
    finally:
        child.end()


def _play(end: Connection, case: Case, judgement: Judgement, begun: mmap) -> None:
    def note(number: int) -> None:
        begun[:8] = number.to_bytes(8, "little")

    with operations_end():
        try:
            sandbox = judgement.sandbox(case.scope)
            sandbox.on_begin = note
            end.send(judgement.of(case, sandbox))
        except Exception:
            end.send(None)
