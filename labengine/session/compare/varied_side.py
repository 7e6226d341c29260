"""One lab whose workload is varied: what it was given, and new labs that are given the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from labengine.config import ConfigError
from labengine.engine.loaded_model import SimulatedModel
from labengine.engine.recorded_model import RecordedRequest
from labengine.session.compare.sides import LiveSide
from labengine.session.history.history import History
from labengine.session.history.inputs import AddInput, Input
from labengine.session.history.repeating import rerun
from labengine.session.history.workload import Workload
from labengine.session.session import Session


class VariedSide:
    """A lab's inputs, steps and tokens at this moment. ConfigError for a lab without requests.

    on_weights: its real model computes again; otherwise its recorded tokens are sampled.
    """

    def __init__(self, lab: Any, on_weights: bool) -> None:
        self.session: Session = lab.session
        self._lab_of, self._history = type(lab)._of, History(lab.session)
        self._history.refuse_lasting_tier("vary")
        inputs, self.num_steps = self._history.past
        if not any(isinstance(one, AddInput) for one in inputs):
            raise ConfigError("there is no workload to run again: add a request to the lab first")
        self.workload = Workload.of(inputs)
        with self.session.stepper.reading():
            engine = self.session.stepper.engine
            self.was_idle = engine.scheduler.is_idle
            self._recorded = {
                request_id: RecordedRequest((*request.token_ids,), request.num_prompt_tokens)
                for request_id, request in engine.requests.items()
            }
        self.num_steps += self._history.is_at_crash
        self._is_recorded = not (on_weights or isinstance(self.session.model, SimulatedModel))
        if self._is_recorded and any(isinstance(one, AddInput) and one.options.sampling.beams > 1 for one in inputs):
            raise ConfigError(
                "recorded tokens do not say how the beams of a search would have gone on: vary a lab without one, or "
                "repeat the search by fork(num_blocks=...)"
            )

    @property
    def note(self) -> str:
        """What a reader has to know of the runs' tokens; empty for a simulated model."""
        if not self._is_recorded:
            return ""
        name = self.session.model.name
        return f"{name} is not asked again: requests sample the tokens that were recorded, and past these made-up ones."

    def empty_lab(self, num_blocks: int, block_size: int, copies: int) -> LiveSide:
        """Return a new lab with this pool, in which `copies` of a request are to be played."""
        sizes: dict[str, Any] = {"num_blocks": num_blocks, "block_size": block_size}
        if (groups := self.session.settings.groups) is not None:
            sizes |= {
                "groups": [
                    group if group.kind == "state" else replace(group, block_size=block_size) for group in groups
                ]
            }
        recorded = partial(self._request, copies) if self._is_recorded else None
        session = self._history.varied_fork(recorded, **sizes)
        session.violation_warnings.is_silent = True  # the figures count the rules that are broken
        lab: LiveSide = self._lab_of(session)
        return lab

    def play(self, session: Session, inputs: Sequence[Input], most: int) -> None:
        """Do the inputs and take `most` steps, or as many as there are. A session whose part raises stays there."""
        engine = session.stepper.engine
        with session.stepper.exclusive():
            session.inputs.expect(tuple(inputs))
            try:
                while (before := engine.num_finished_steps) < most:
                    due = session.inputs.next
                    is_waiting = due is not None and engine.scheduler.is_idle
                    rerun(session.stepper, session.inputs, max(before + 1, due.num_steps if is_waiting and due else 0))
                    if engine.num_finished_steps == before:
                        return
                rerun(session.stepper, session.inputs, engine.num_finished_steps)  # what comes after the last step
            except Exception as error:
                if engine.failure is not error:
                    raise

    def _request(self, copies: int, request_id: int) -> RecordedRequest:
        """Return what a request of such a run repeats. The tokens of one that the lab has forgotten are made up."""
        source = self.workload.source(request_id, copies)
        return self._recorded.get(source) or RecordedRequest((source,), 0)
