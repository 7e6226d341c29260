"""What a lab is made of: a model, an engine, its recording and its checks, put together from settings."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from labengine.check.watch import Watch
from labengine.config import ConfigError, EngineConfig, shown
from labengine.core.connector import Connector
from labengine.core.prefix_cache import HashChain
from labengine.engine.loaded_model import LoadedModel, load_model
from labengine.engine.overlap import choose_engine
from labengine.events import ViolationFound
from labengine.hooks import Hooks
from labengine.session.intake import Intake
from labengine.session.stats import StatsListener
from labengine.session.stepper import Stepper
from labengine.session.time.breakpoints import Breakpoints
from labengine.session.time.conditions import Condition
from labengine.session.time.crash import Crashes
from labengine.session.time.inputs import Inputs
from labengine.session.violation_warnings import ViolationWarnings
from labengine.timeline import Timeline

if TYPE_CHECKING:
    from labengine.core.parts import Parts
    from labengine.engine.engine import Engine
    from labengine.events import Event
    from labengine.session.settings import LabSettings
    from labengine.session.time.breakpoints import Stop

_numbers = count(1)


class Assembled:
    """The ground of a Lab, on which the themes of its desk stand."""

    settings: LabSettings
    """What the lab was made with."""
    parts: Parts
    config: EngineConfig
    hooks: Hooks
    timeline: Timeline | None
    external: Connector | None

    def _assemble(self, settings: LabSettings, model: LoadedModel | None = None) -> None:
        """Load the model, unless there is one, and put an empty engine on it. ConfigError for what cannot work."""
        self.settings, self.parts = settings, settings.all_parts
        config = settings.engine_config()
        self.lab_id = f"lab {next(_numbers)}"
        """A name that no other lab in this process has."""
        self.hooks = Hooks()
        self.timeline = _timeline(settings.record)
        if self.timeline is not None:
            self.hooks.subscribe(self.timeline.record)
        self._watch = Watch(self.hooks, self.timeline) if settings.check else None
        self._violation_warnings = ViolationWarnings(self.hooks)
        self._stats = StatsListener()
        self._stats.subscribe(self.hooks)
        self._model = load_model(settings.model, config, settings.model_options()) if model is None else model
        self.config = self._model.config
        self._engine_class, self._scheduling = choose_engine(
            settings.overlap,
            self.parts,
            self._model.runner,
            has_external=settings.external is not None,
            is_watched=bool(settings.check),
        )
        self.external = self._open_external()
        self._tier_was_used = False
        """True once reset() has begun anew on a tier that may hold blocks."""
        self._owns_external = self.external is not settings.external
        self._breakpoints = Breakpoints(self.hooks, self.timeline, lambda: self._stepper.engine.step_number)
        self._stepper = Stepper(self._make_engine, self._breakpoints)
        self._inputs = Inputs(self._stepper, self.hooks)
        self._crashes = Crashes(self.hooks, self.timeline, lambda: self._stepper.engine.failure)
        self._intake = Intake(self._model, self._stepper, self._inputs)
        self._breakpoints.on_stop = self._stopped
        if settings.check == "stop":
            self._breakpoints.add(Condition((ViolationFound,), {}, None, 'the first violation (check="stop")'))

    def _stopped(self, stop: Stop) -> None:
        """A run has met a breakpoint."""

    def _make_engine(self) -> tuple[Engine, list[Event]]:
        """An empty engine, and what it has to tell once it is the lab's own."""
        watch, runner = self._watch, self._model.runner
        with self.hooks.held() as events:
            engine = self._engine_class(
                self.config, runner if watch is None else watch.wrap(runner), self.parts, self.hooks, self.external
            )
        if watch is not None:
            watch.follow(engine)
        return engine, events

    def _open_external(self) -> Connector | None:
        """The tier that was asked for, told whose KV it will hold, and who names it."""
        if self.settings.external is None:
            return None
        from labengine.engine.external import open_store

        tier = open_store(self.settings.external)
        tier.bind(self._tier_name)
        return tier

    @property
    def _tier_name(self) -> str:
        """What KV in the external tier depends on besides tokens, and who names it there."""
        chain = "" if self.parts.hash_chain is HashChain else f"-{self.parts.hash_chain.__name__}"
        return f"{self._model.fingerprint}{chain}"


def _timeline(record: bool | int) -> Timeline | None:
    if record is False:
        return None
    if not isinstance(record, int) or record < 1:
        raise ConfigError(f"record must be True, False, or a number of events from 1, got {shown(record)}")
    return Timeline() if record is True else Timeline(max_events=record)
