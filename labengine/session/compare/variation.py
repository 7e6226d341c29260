"""labengine.vary: a recorded workload repeated with other numbers of blocks, block sizes and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError, checked_bool, checked_int, shown
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.loaded_model import SimulatedModel
from labengine.engine.recorded_model import RecordedRequest
from labengine.record.figures import counted
from labengine.record.wording import request_name
from labengine.session.compare.comparison import Comparison
from labengine.session.compare.sides import LiveSide, session_of, timeline_of
from labengine.session.history.history import History
from labengine.session.history.inputs import AddInput, Input
from labengine.session.history.repeating import rerun
from labengine.session.history.workload import Workload
from labengine.session.session import Session
from labengine.session.settings import refuse_unknown

if TYPE_CHECKING:  # widgets are imported for views only
    from labengine_widgets.vary import VaryView
    from labengine_widgets.view_source import PairViewSource, ViewSource

_MOST_STEPS = 2_000
"""Most steps of a run to the end of its work: a limit for parts that never finish a request."""
_LEAST_RANGE = 16
"""The end of a slider, unless twice the recorded figure is more."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the workload that can be changed. recorded: its recorded value; most: the slider's end (from 1)."""

    name: str
    label: str
    recorded: int

    @property
    def most(self) -> int:
        """The end of its slider."""
        return max(_LEAST_RANGE, 2 * self.recorded)


class Variation:
    """Sliders for blocks, block size and copies over the workload of a lab, or of a comparison of two labs.

    The widget shows pool and figures; each move of a slider repeats the recorded inputs and steps from the beginning,
    on new labs. on_weights: recompute each run with the real model; by default requests sample their recorded tokens,
    and made-up ones after these, so that no weights are needed. plain: draw the pool as lab.view("pool", plain=True).
    Raises ConfigError for a workload that cannot be repeated: a recording alone, no requests, a tier that cannot be
    emptied.
    """

    def __init__(self, of: object, *, on_weights: bool = False, plain: bool = False) -> None:
        self.is_plain = checked_bool("plain", plain)
        self._comparison = of if isinstance(of, Comparison) else None
        self._sides = [
            VariedSide(_lab(side), on_weights) for side in (of.sides if isinstance(of, Comparison) else [of])
        ]
        session, self._workload = self._sides[0].session, self._sides[0].workload
        copied = self._workload.copied
        self.figures = (
            Figure("num_blocks", "blocks in the pool", session.config.num_blocks),
            Figure("block_size", "tokens in a block", session.config.groups[0].block_size),
            Figure("copies", f"copies of {request_name(copied.start)}", self._workload.num_copies),
        )
        self.values = {figure.name: figure.recorded for figure in self.figures}
        """The figures of the shown run, by name."""
        self._outcome: list[dict[str, Any]] = []
        self._view: VaryView | None = None

    def run(self, num_blocks: int | None = None, block_size: int | None = None, copies: int | None = None) -> Any:
        """Return a new lab, or comparison, after the workload with these figures; close it when done.

        None: as recorded. Raises ConfigError, naming the reason, for figures with which the workload cannot run.
        """
        asked = {"num_blocks": num_blocks, "block_size": block_size, "copies": copies}
        values = {one.name: _checked(one, asked[one.name]) for one in self.figures}
        with ExitStack() as made:
            labs = [side.empty_lab(**values) for side in self._sides]
            for lab in labs:
                made.callback(lab.close)
            done = labs[0] if self._comparison is None else _beside(self._comparison, labs)
            self._play(done, values["copies"])
            made.pop_all()
        return done

    def _play(self, done: Any, copies: int) -> None:
        inputs, first = tuple(self._workload.inputs_with(copies)), self._sides[0]
        most = _MOST_STEPS if all(side.was_idle for side in self._sides) else first.num_steps
        if not isinstance(done, Comparison):
            return first.play(done.session, inputs, most)
        done.repetition.repeat(inputs, first.num_steps)
        if most > first.num_steps:
            done.repetition.finish(most)
        return None

    # -- the widget ----------------------------------------------------------------------------------------------------

    def change(self, changes: Mapping[str, int]) -> ViewSource | PairViewSource:
        """Run the workload with these figures; return the run to show, closed. After an error nothing has changed.

        Raises ConfigError and TypeError as run() does.
        """
        done = self.changed(changes)
        done.close()
        run: ViewSource | PairViewSource = done if isinstance(done, Comparison) else done.view_source()
        return run

    def changed(self, changes: Mapping[str, int]) -> Any:
        """Run the workload as run() does, with the newest run's figures by default, and keep its outcome to show."""
        refuse_unknown("vary", changes, self.run)
        values = {**self.values, **changes}
        done = self.run(**values)
        self.values = values
        self.note_outcome(done)
        return done

    def note_outcome(self, done: Any) -> None:
        """Keep the figures of a lab or comparison that has done the workload, to show them."""
        sides = zip(done.names, done.sides, strict=True) if isinstance(done, Comparison) else [(done.parts.name, done)]
        self._outcome = [outcome_of(name, side) for name, side in sides]

    def to_dict(self) -> dict[str, Any]:
        """Return figures, values, outcome and note as JSON types, for the browser."""
        return {
            "figures": [
                {"name": one.name, "label": one.label, "value": self.values[one.name], "most": one.most}
                for one in self.figures
            ],
            "outcome": self._outcome,
            "note": self._sides[0].note,
        }

    def show(self) -> VaryView:
        """Return the widget, always the same one."""
        with interrupts_deferred():
            from labengine_widgets.vary import view_of

            if self._view is None:
                self._view = view_of(self)
        return self._view

    def close(self) -> None:
        """Remove the widget."""
        if self._view is not None:
            self._view.close()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"<sliders over {len(self._workload.inputs)} inputs of {self._sides[0].session.lab_id}: {values}>"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.show()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        self.show()._ipython_display_()


def vary(of: object, *, plain: bool = False) -> Variation:
    """Return sliders for block size, pool and copies over the inputs of a lab, or of a comparison of two labs, so far.

    The lab does not change; its later inputs are not part of the workload. See Variation.
    plain: draw one lab's pool as lab.view("pool", plain=True).
    """
    return Variation(of, plain=plain)


def _checked(figure: Figure, value: object) -> int:
    return figure.recorded if value is None else checked_int(figure.name, value, 1)


def _lab(side: Any) -> Any:
    """Return a lab that has a recorded workload. ConfigError for anything else."""
    if session_of(side) is None:
        raise ConfigError(
            f"vary() repeats a workload on an engine, and a recording has none: use a lab or a comparison of "
            f"two labs, got {shown(side)}"
        )
    timeline_of(side)
    return side


def _beside(recorded: Comparison, labs: Sequence[Any]) -> Comparison:
    left, right = labs
    return Comparison(left, right, names=recorded.names, roles=recorded.roles, title=recorded.title)


def outcome_of(name: str, lab: Any) -> dict[str, Any]:
    """Return a finished run's figures by name, and its errors in one line (empty without any), as JSON types."""
    snapshot, run = lab.snapshot(), counted(lab.timeline.events())
    figures = {
        "peak": lab.stats().peak_used_blocks,
        "used": snapshot.num_used_blocks,
        "lost": len(snapshot.lost_blocks),
        "computed": run.num_computed,
        "found": run.num_hit,
        "preemptions": run.num_preemptions,
        "steps": snapshot.step,
    }
    return {"name": name, "figures": figures, "wrong": _wrong(lab)}


def _wrong(lab: Any) -> str:
    rules = sorted({violation.rule for violation in lab.violations})
    broken = f"broken: {', '.join(rules)}" if rules else ""
    return "; ".join(filter(None, [broken, "" if lab.crash is None else str(lab.crash)]))


# -- one side ----------------------------------------------------------------------------------------------------------


class VariedSide:
    """A lab's inputs, steps and tokens at this moment. ConfigError for a lab without requests.

    on_weights: recompute with the real model; otherwise sample the recorded tokens.
    """

    def __init__(self, lab: Any, on_weights: bool) -> None:
        self.session: Session = lab.session
        self._lab_of, self._history = type(lab)._of, History(lab.session)
        self._history.refuse_lasting_tier("vary")
        inputs, self.num_steps = self._history.past
        if not any(isinstance(one, AddInput) for one in inputs):
            raise ConfigError("the lab has no workload to repeat: add a request first")
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
                "a beam search cannot be varied: recorded tokens do not show how other beams would continue. Vary "
                "a lab without beams, or repeat the search with fork(num_blocks=...)"
            )

    @property
    def note(self) -> str:
        """A note on the source of the runs' tokens; empty for a simulated model."""
        if not self._is_recorded:
            return ""
        name = self.session.model.name
        return f"{name} does not compute again: requests sample their recorded tokens, then made-up ones."

    def empty_lab(self, num_blocks: int, block_size: int, copies: int) -> LiveSide:
        """Return a new lab with this pool, to play `copies` of a request in."""
        sizes: dict[str, Any] = {"num_blocks": num_blocks, "block_size": block_size}
        if (groups := self.session.settings.groups) is not None:
            sizes |= {
                "groups": [
                    group if group.kind == "state" else replace(group, block_size=block_size) for group in groups
                ]
            }
        recorded = partial(self._request, copies) if self._is_recorded else None
        session = self._history.varied_fork(recorded, **sizes)
        session.violation_warnings.is_silent = True  # the figures count broken rules
        lab: LiveSide = self._lab_of(session)
        return lab

    def play(self, session: Session, inputs: Sequence[Input], most: int) -> None:
        """Do the inputs and take at most `most` steps. A session whose part raises stays there."""
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
        """Return the recorded request that a request of the run repeats; made-up tokens if the lab has forgotten it."""
        source = self.workload.source(request_id, copies)
        return self._recorded.get(source) or RecordedRequest((source,), 0)
