"""A session: one engine on one model, with its recording, checks, inputs and lock. Lab is its public interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from labengine.check.watch import Watch
from labengine.config import ConfigError, EngineConfig, checked_int, shown
from labengine.core.connector import Connector
from labengine.core.hash_chain import HashChain
from labengine.core.parts import Parts
from labengine.driven.driven import Driven
from labengine.driven.engine import DrivenEngine
from labengine.driven.model import DrivenModel, EngineHost
from labengine.driven.watch import DrivenWatch
from labengine.engine.ahead import choose_engine
from labengine.engine.checked_proposer import CheckedProposer
from labengine.engine.draft_model import bound
from labengine.engine.engine import Engine
from labengine.engine.external import KVStore, open_store
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.loaded_model import LoadedModel, load_model
from labengine.events import Event, ViolationFound
from labengine.record.files.shapes import PoolSize
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline
from labengine.session.elsewhere import Filling
from labengine.session.history.breakpoints import Breakpoint, Breakpoints
from labengine.session.history.conditions import Bounds, Condition, condition
from labengine.session.history.crash import Crashes
from labengine.session.history.inputs import Inputs
from labengine.session.inspection import Inspection
from labengine.session.origin import Origin
from labengine.session.outputs import Outputs
from labengine.session.question import Question
from labengine.session.reasons import Seam, seams_of
from labengine.session.requests import Requests
from labengine.session.runs import Runs
from labengine.session.settings import LabSettings
from labengine.session.stats import StatsListener
from labengine.session.stepper import Stepper
from labengine.session.violation_warnings import ViolationWarnings

_numbers = count(1)


class Session:
    """An engine and the parts beside it. Each part is an attribute, made of the parts above it.

    Two of them later call a part below: `stats` reads the stepper's newest report; `stepper` ends the background's
    step.

    settings: the keywords of Lab. model: a loaded model to use; None loads the one that the settings name.
    ConfigError for settings that cannot work.
    """

    def __init__(self, settings: LabSettings, model: LoadedModel | None = None) -> None:
        self.settings = settings
        self.parts: Parts = settings.all_parts
        config = settings.engine_config()
        self.number = next(_numbers)
        """The session's number in this process."""
        self.lab_id = f"lab {self.number}"
        self.hooks = Hooks()
        self.timeline = _timeline(settings.record)
        is_driven = isinstance(settings.model, Driven)
        if self.timeline is not None and not is_driven:
            self.hooks.subscribe(self.timeline.record)
        self.watch = self._make_watch(is_driven=is_driven) if settings.check else None
        """The checks; None with check=False."""
        self.violation_warnings = ViolationWarnings(self.hooks)
        self.hides_seams = False
        """True while views hide methods, because the reader is asked to find a wrong one."""
        self.stats = StatsListener(lambda: self.stepper.engine.report)
        self.stats.subscribe(self.hooks)
        self.model = _loaded(settings, config) if model is None else model
        try:
            self.config: EngineConfig = self.model.config
            self._engine_class, scheduling = choose_engine(
                settings.overlap,
                self.parts,
                self.model.runner,
                has_external=settings.external is not None,
                is_watched=bool(settings.check),
                speculates=settings.speculation is not None,
            )
            self.external = self._open_external()
            self._proposer = self._open_proposer()
            self.origin: Origin | None = None
            """Set by code that fills the tier by hand; None if the inputs record everything."""
            self.has_used_tier = False
            """True after a reset() on an external tier that may still hold blocks."""
            self.stepper = Stepper(self._make_engine, lambda: self.runs.background.end_step())
        except BaseException:
            if model is None:
                self.model.release()
            raise
        self.breakpoints = Breakpoints(self.hooks, self.timeline, lambda: self.stepper.engine.step_number)
        self.runs = Runs(self.stepper, self.breakpoints)
        self.question: Question | None = None
        """The question to the reader about the next step, or None."""
        self.filling = Filling(settings, self.model, self.parts, self.stepper)
        self.inputs = Inputs(self.stepper, self.hooks, self.filling.repeat, settings.keep_inputs)
        self.crashes = Crashes(self.hooks, self.timeline, lambda: self.stepper.engine.failure)
        self.requests = Requests(self.model, self.stepper, self.inputs)
        self.outputs = Outputs(self.model, self.stepper, self.requests, self.runs, self.breakpoints)
        self.inspection = Inspection(
            self.model, self.parts, self.stepper, self.runs, self.stats, self.watch, self.external, scheduling
        )
        if settings.check == "stop":
            self.breakpoints.add(Condition((ViolationFound,), {}, None, 'the first violation (check="stop")'))

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""
        return self.model.tokenizer.token_text(checked_int("token_id", token_id))

    def break_on(
        self, kind: type[Event] | str | Callable[[Event], object] | None, fields: Mapping[str, Any]
    ) -> Breakpoint:
        """Add a breakpoint for events of a kind with these fields. See Lab.break_on."""
        self.stepper.refuse_if_closed()
        wanted = condition(kind, fields, self._bounds)
        if wanted.kinds == (ViolationFound,) and self.watch is None:
            raise ConfigError("this lab was made with check=False, so it cannot find violations")
        return self.breakpoints.add(wanted)

    @property
    def seams(self) -> dict[str, Seam]:
        """The method that decides each kind of event: of the parts, or of the driven engine."""
        engine = self.stepper.engine
        if isinstance(engine, DrivenEngine):
            return engine.seams
        return seams_of(self.parts, self.settings.runner, self.external)

    def predict(self, prediction: object) -> None:
        """Take a view's prediction on the open question. Raises ConfigError without one, and for an invalid answer."""
        if self.question is None or not self.question.is_open:
            raise ConfigError("no question is open")
        self.question.accept(prediction)

    def wish(self, wish: object) -> None:
        """Do one of the question's offers: a hint, the step again ... Raises ConfigError for any other wish."""
        if self.question is None:
            raise ConfigError("no question is asked")
        self.question.ask_for(wish)

    def fill_external(self, prompt: str | None, token_ids: Sequence[int] | None) -> int:
        """Put the KV of a prompt's full blocks into the external tier. See Lab.fill_external."""
        return self.filling.fill(self.inputs.note, prompt, token_ids)

    @property
    def was_tier_written(self) -> bool:
        """True if the session's tier holds blocks that came neither from its engine nor from fill_external()."""
        tier, transfers = self.external, self.stepper.engine.transfers
        return isinstance(tier, KVStore) and not self.has_used_tier and tier.num_saved > transfers.num_saved

    def reset(self) -> None:
        """Reset: no requests, an empty pool, a new recording. Listeners and the external tier's blocks stay."""
        self.runs.pause()
        with self.stepper.exclusive():
            self.stepper.engine.transfers.stop()
            self.stepper.restart(self.inputs.clear, self.breakpoints.forget_hit, self.crashes.forget)
            self.origin = None
            self.has_used_tier = self.external is not None

    def restart(self) -> None:
        """Reset for a rerun, and empty the external tier. The caller holds the lock."""
        self.stepper.drop_open_step()
        if self.external is not None:
            self.external.close()
            self.external.bind(self._tier_name)
            self.external.take_changes()
        self.stepper.restart()

    def stop(self) -> None:
        """End the background, roll an open step back, and cancel loads. Twice is harmless."""
        self.runs.close()
        self.stepper.engine.transfers.stop()

    def release(self) -> None:
        """Release the model, and the external tier if the session made it."""
        if self._proposer is not None:
            self._proposer.close()
        self.model.release()
        if self.external is not None and self.external is not self.settings.external:
            self.external.close()

    def close(self) -> None:
        """Stop, and release. The recording stays readable."""
        with interrupts_deferred():
            self.stop()
            self.release()

    def _make_watch(self, *, is_driven: bool) -> Watch | DrivenWatch:
        return (DrivenWatch if is_driven else Watch)(self.hooks, self.timeline)

    def _make_engine(self) -> tuple[Engine, list[Event]]:
        """Return an empty engine, and the events to emit once it is in place."""
        watch, runner, proposer = self.watch, self.model.runner, self._proposer
        if isinstance(self.model, DrivenModel):
            return self._make_driven(self.model)
        assert not isinstance(watch, DrivenWatch)
        with self.hooks.held() as events:
            engine = self._engine_class(
                self.config,
                runner if watch is None else watch.wrap(runner),
                self.parts,
                self.hooks,
                self.external,
                proposer=proposer,
            )
        if watch is not None:
            watch.follow(engine)
        return engine, events

    def _make_driven(self, model: DrivenModel) -> tuple[Engine, list[Event]]:
        timeline = Timeline(1) if self.timeline is None else self.timeline
        with self.hooks.held() as events:
            engine = DrivenEngine(
                self.config, model, self.parts, self.hooks, timeline, self.settings.policy, self._proposer
            )
        if isinstance(self.watch, DrivenWatch):
            self.watch.follow(engine)
        return engine, events

    def _open_proposer(self) -> CheckedProposer | None:
        proposer = self.settings.speculation
        if proposer is None:
            return None
        return CheckedProposer(bound(proposer, self.model, self.settings.model_options()), self.model.checked_ids)

    def _open_external(self) -> Connector | None:
        if self.settings.external is None:
            return None
        tier = open_store(self.settings.external)
        tier.bind(self._tier_name)
        return tier

    @property
    def _bounds(self) -> Bounds:
        has_own_hashes = self.parts.hash_chain.link is not HashChain.link
        num_hash_digits = None if has_own_hashes else 2 * len(HashChain().link(b"", ()))
        return Bounds(PoolSize(self.config.num_blocks, len(self.config.groups)), num_hash_digits)

    @property
    def _tier_name(self) -> str:
        """The name of everything that determines KV besides tokens; a tier separates the KV of different names."""
        chain = "" if self.parts.hash_chain is HashChain else f"-{self.parts.hash_chain.__name__}"
        return f"{self.model.fingerprint}{chain}"


def _loaded(settings: LabSettings, config: EngineConfig) -> LoadedModel:
    if isinstance(settings.model, Driven):
        return DrivenModel(EngineHost(settings.model), config, settings.max_model_len)
    return load_model(settings.model, config, settings.model_options())


def _timeline(record: bool | int) -> Timeline | None:
    if record is False:
        return None
    if not isinstance(record, int) or record < 1:
        raise ConfigError(f"record must be True, False or a positive number of events, got {shown(record)}")
    return Timeline() if record is True else Timeline(max_events=record)
