"""DrivenEngine: another engine in a lab, with the interface of Engine. It repeats its calls after a failed one."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from labengine.config import EngineConfig
from labengine.core.parts import Parts
from labengine.core.request import Request, RequestStatus
from labengine.driven.calls import (
    EngineRaisedError,
    add_operation,
    is_answer,
    lost_in,
    raised_in,
    wire_settings,
    workload_of,
)
from labengine.driven.mirror import Mirror
from labengine.driven.model import DrivenModel
from labengine.driven.process import EngineLostError
from labengine.engine.checked_proposer import CheckedProposer
from labengine.engine.engine import Engine
from labengine.engine.step_report import Phase, StepReport
from labengine.events import Event
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from labengine.record.timeline import Timeline
from labengine.system.code_roles import Role, plays, rolls_back

plays(__name__, Role.ENGINE)

CALLS_AT_ONCE = 20
"""Calls repeated by one line to the driver, whose processor time is limited."""


class DrivenEngine(Engine):
    """One engine with an empty cache, in another process.

    Its requests are followed by its events. If a call raises, hangs or ends the process, the next call is preceded by a
    repetition of the calls before it on a new engine, so that nothing of the failed one is left. `scheduler` is the
    edition's: it decides nothing, but knows which requests an engine of this kind can run.
    """

    def __init__(
        self,
        config: EngineConfig,
        model: DrivenModel,
        parts: Parts,
        hooks: Hooks,
        timeline: Timeline,
        policy: str,
        proposer: CheckedProposer | None = None,
    ) -> None:
        super().__init__(config, model.runner, parts, Hooks(), proposer=proposer)
        self.hooks = hooks
        self._model, self._settings = model, wire_settings(config, policy)
        self._calls: list[list[Any]] = []
        """The calls that the engine has done, in the words of driver.py."""
        self._must_repeat = self._owes_drafts = False
        self._mirror = Mirror(model, timeline, hooks, config.keep_finished)
        try:
            with model.exclusive() as self._process_number:
                self._mirror.take(self._done([], settings=self._settings))
        except EngineLostError as lost:
            raise self._lost(lost) from None

    @property
    def seams(self) -> dict[str, Any]:
        """The engine's method that decides each kind of event."""
        return self._mirror.seams

    @property
    def timeline(self) -> Timeline:
        """The recording of the engine's events."""
        return self._mirror.timeline

    @property
    def is_contradicted(self) -> bool:
        """True while the events of the open step do not lead to the engine's state."""
        return self._mirror.is_contradicted

    @property
    def workload(self) -> dict[str, Any]:
        """The settings and the calls so far, for a script."""
        return workload_of(self._settings, self._calls, caches_all=self._model.driven.name == "nano-vllm")

    def record(self, event: Event) -> None:
        """Record an event that is not the engine's, such as a violation, and tell its listeners."""
        self._mirror.record(event)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def queue(self, *requests: Request, leader_id: int | None = None) -> None:
        """Queue new requests, each by itself."""
        self.refuse_while_busy("add()")
        for request in requests if leader_id is not None else requests[1:]:
            leader = requests[0] if leader_id is None else self.requests[leader_id]
            request.arrival = leader.arrival
        operations = [add_operation(request, self._model.driven.engine.options) for request in requests]
        for request, operation in zip(requests, operations, strict=True):
            self.requests[request.request_id] = request
            try:
                self._call(operation)
            except BaseException:
                del self.requests[request.request_id]
                raise
            self.num_added += 1

    def abort(self, request_id: int) -> bool:
        """End a request; return False if it has already finished."""
        self.refuse_while_busy("abort()")
        self._model.driven.refuse_operation("abort")
        if self.requests[request_id].status is RequestStatus.FINISHED:
            return False
        self._call(["abort", request_id])
        return True

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content; return False while a request holds blocks."""
        self.refuse_while_busy("reset_prefix_cache()")
        self._model.driven.refuse_operation("reset")
        if any(request.has_blocks for request in self.requests.values()):
            return False
        self._call(["reset"])
        return True

    @rolls_back
    def phases(self) -> Generator[Phase]:
        """Take one whole step, and yield once: the engine does not stop inside it."""
        self.refuse_while_busy("step()")
        if self.scheduler.is_idle:
            self.report = StepReport(self.step_number)
            return
        self.failure = self.reached = None
        before = self._mirror.fold.copy()  # the events of a step move it
        report = self._call(["step"])
        self.report = replace(report, peak_used_blocks=self._mirror.used_blocks(before))
        self._owes_drafts = self.proposer is not None
        self._tell_drafts()
        yield "update"

    def _tell_drafts(self) -> None:
        """Have the proposer guess the next tokens of the requests that have sampled, and tell the engine.

        If an exception or an interrupt ends this, the next step begins with it.
        """
        if self.proposer is None or not self._owes_drafts:
            return
        drafts: dict[str, list[int]] = {}
        for request_id in self.report.sampled:
            request = self.requests.get(request_id)
            if request is not None and (num_wanted := self.scheduler.drafts.num_wanted(request)):
                found = self.proposer.propose(tuple(request.token_ids), num_wanted)
                drafts |= {str(request_id): list(found)} if found else {}
        if drafts:
            self._call(["draft", drafts])
        self._owes_drafts = False

    def _call(self, operation: list[Any]) -> StepReport:
        """Have the engine do one operation, and follow its events; return the report on the step, if it was one.

        Raises EngineRaisedError if it fails. An interrupt ends the process.
        """
        is_step = operation[0] == "step"
        if is_step:
            self._tell_drafts()
        self._mirror.begin_call()
        try:
            with self._model.exclusive() as process_number:
                if self._must_repeat or self._process_number != process_number:
                    self._repeat()
                self._must_repeat, self._process_number = True, process_number
                return self._followed(operation, self._ask([operation]), is_step)
        except EngineRaisedError as error:
            self._fail(error, is_step)
        except EngineLostError as lost:
            self._fail(self._lost(lost, is_step=is_step), is_step)

    def _followed(self, operation: list[Any], answer: dict[str, Any], is_step: bool) -> StepReport:
        """Follow an answer; return the report. Raises EngineRaisedError and EngineLostError."""
        if answer["error"] is not None:
            if is_step:
                with suppress(EngineLostError):
                    self._mirror.take(answer)
            raise raised_in(self.step_number + is_step, answer["error"])
        report = self._mirror.take(answer)
        self._calls.append(operation)
        self._must_repeat = False
        self._show()
        return report

    def _fail(self, error: EngineRaisedError, is_step: bool) -> NoReturn:
        """Report a failed call; only steps have events for it."""
        if is_step:
            self.failure = error
            self._mirror.fail(error.failed)
            self._show()
        raise error

    def _lost(self, lost: EngineLostError, *, is_step: bool = False) -> EngineRaisedError:
        return lost_in(self.step_number + is_step, lost, self._model.driven.patches)

    def _repeat(self) -> None:
        """Repeat all calls on a new engine."""
        self._mirror.repeat(self._repeated())

    def _repeated(self) -> Iterator[dict[str, Any]]:
        yield self._done([], settings=self._settings)
        for first in range(0, len(self._calls), CALLS_AT_ONCE):
            yield self._done(self._calls[first : first + CALLS_AT_ONCE])

    def _done(self, operations: list[list[Any]], **more: Any) -> dict[str, Any]:
        """Return the answer to operations that have to succeed. Raises EngineRaisedError and EngineLostError."""
        answer = self._ask(operations, **more)
        if answer["error"]:
            raise raised_in(self.step_number, answer["error"])
        return answer

    def _ask(self, operations: list[list[Any]], **more: Any) -> dict[str, Any]:
        """Return the answer. Raises EngineLostError, also for one that the engine has damaged."""
        answer = self._model.ask({"operations": operations, "goes_on": True, **more})
        if not is_answer(answer):
            self._model.restart()
            raise EngineLostError("its driver's answer is damaged")
        if answer["error"] and ("settings" in more or _is_lasting(answer["error"])):
            self._model.restart()
        return {**answer, "operations": operations}

    # -- the state -----------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        self._mirror.show_in(self.requests)
        self.step_number = self._mirror.fold.step
        open_ = [one for one in self.requests.values() if one.status is not RequestStatus.FINISHED]
        self.scheduler.running[:] = open_

    def snapshot(self) -> Snapshot:
        """Return the state after the newest call."""
        return self._mirror.fold.snapshot()

    @property
    def num_used_blocks(self) -> int:
        """Blocks held by at least one request."""
        fold = self._mirror.fold
        return sum(count > 0 for block_id, count in enumerate(fold.ref_counts) if block_id != fold.null_block)


def _is_lasting(error: Sequence[str]) -> bool:
    """Return True if another engine in the same process may fail as well: memory stays full, or the driver broken."""
    return error[0] == "MemoryError" or error[4] == "the driver"
