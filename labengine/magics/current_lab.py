"""The lab that %lab acts on: the variable `lab`, or the engines that %lab bug or %%lab patch opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.error import UsageError

from labengine.core.proposer import FixedDrafts, Proposer
from labengine.driven.driven import Driven
from labengine.engine.draft_model import DraftModel
from labengine.engine.loaded_model import is_provided
from labengine.engine.sources import model_path
from labengine.engine.step_report import StepReport
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison
from labengine.session.saved.viewed_recording import ViewedRecording
from labengine.session.settings import LabSettings
from labengine.vllm.cache_events.prefixes import CachedPrefixes
from labengine.vllm.stream.live import LiveStream
from labengine.vllm.stream.ranks import Ranks

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

Opened = TypeVar("Opened", "Comparison", Lab)


class CurrentLab:
    """The lab (or comparison) that one notebook's commands act on.

    It is the lab called `lab`, made in a cell or by %lab start. After %lab bug or %%lab patch it is the opened
    comparison or lab, until that is closed or `lab` becomes another lab; the variable `lab` is not changed.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._started: Lab | None = None
        self._opened: Comparison | Lab | None = None
        self._beside: Lab | None = None
        """The lab called `lab` when %lab bug or %%lab patch opened its engines."""
        self._trace: ViewedRecording | None = None
        self._forks: dict[str, Lab] = {}

    @property
    def lab(self) -> Lab:
        """The lab to act on, or the left lab of a comparison. Raises UsageError if there is none."""
        opened = self.opened
        if opened is not None:
            left = opened if isinstance(opened, Lab) else opened.left
            assert isinstance(left, Lab)
            return left
        lab = self._own_lab
        if lab is None:
            raise UsageError("no lab yet: start one with %lab start --model smollm2 --blocks 32 --block-size 4")
        return lab

    @property
    def _own_lab(self) -> Lab | None:
        """The lab called `lab`, or the one that %lab start made."""
        named = self._shell.user_ns.get("lab")
        return named if isinstance(named, Lab) else self._started

    @property
    def has_own_lab(self) -> bool:
        """True if there is a lab called `lab`, or started."""
        return self._own_lab is not None

    @property
    def has_lab(self) -> bool:
        """True if there is a lab to act on."""
        return self.opened is not None or self._own_lab is not None

    @property
    def opened(self) -> Comparison | Lab | None:
        """The comparison or lab that %lab bug or %%lab patch opened; None once it is closed or `lab` is another lab."""
        return self._opened if self._own_lab is self._beside else None

    @property
    def comparison(self) -> Comparison | None:
        """The comparison that %lab bug or %%lab patch opened; None without one."""
        opened = self.opened
        return None if isinstance(opened, Lab) else opened

    @property
    def target(self) -> Lab | Comparison:
        """The object that takes steps and requests: the comparison, or else the lab."""
        return self.comparison or self.lab

    @property
    def recorded(self) -> Lab | ViewedRecording:
        """The recording to look at: the lab's, or without a lab the trace opened by %lab open."""
        return self.lab if self.has_lab or self._trace is None else self._trace

    @property
    def labs(self) -> tuple[Lab, ...]:
        """Both labs of the comparison, or else the one lab."""
        compared = self.comparison
        sides = (self.lab,) if compared is None else compared.sides
        return tuple(side for side in sides if isinstance(side, Lab))

    @property
    def shown(self) -> Lab | ViewedRecording | Comparison:
        """The object to look at: the comparison, or else the lab or the trace."""
        return self.comparison or self.recorded

    def is_played(self, report: StepReport) -> bool:
        """Return True if a picture in the notebook plays this report's step and has not shown all of it yet."""
        if not hasattr(self._shell, "kernel"):  # a terminal shows no pictures
            return False
        beside = [] if self._own_lab is None else [self._own_lab]
        labs = [lab for lab in (*self.labs, *beside) if _is_newest(report, lab)]
        compared = self.comparison
        is_compared = compared is not None and compared.has_view
        return any(lab.has_dashboard or (is_compared and lab in self.labs) for lab in labs)

    @property
    def names(self) -> Mapping[str, Any]:
        """The variables of the notebook."""
        names: Mapping[str, Any] = self._shell.user_ns
        return names

    def open_cell(self, text: str) -> None:
        """Put a text into a new cell, or into a terminal's next prompt."""
        self._shell.set_next_input(text)

    def name(self, name: str, lab: Lab) -> Lab:
        """Store a lab in a variable, and close a fork stored there before."""
        former = self._forks.pop(name, None)
        if former is not None and former is self._shell.user_ns.get(name):
            former.close()
        self._forks[name] = self._shell.user_ns[name] = lab
        return lab

    def store(self, name: str, value: Any) -> None:
        """Store a value in a notebook variable. A running vLLM attached under this name is detached."""
        former = self._shell.user_ns.get(name)
        if isinstance(former, LiveStream | Ranks | CachedPrefixes):
            former.close()
        self._shell.user_ns[name] = value

    def look_at(self, name: str, recording: ViewedRecording) -> None:
        """Store a recording in a variable; the commands look at it if there is no lab."""
        self.store(name, recording)
        self._trace = recording

    def start(self, settings: dict[str, Any]) -> Lab:
        """Close the started or opened engines, make a lab, and store it as `lab`. Wrong settings close nothing."""
        if self._started is not None or self._opened is not None:
            _rehearse(**settings)
        for former in (self._started, self._opened):
            if former is not None:
                former.close()
        self._opened = None
        self._started = self._shell.user_ns["lab"] = Lab(**settings)
        return self._started

    def open(self, name: str, opened: Opened) -> Opened:
        """Store a report's or a patch's engines in a variable and act on them from now on; close those opened before.

        `lab` is not changed.
        """
        if self._opened is not None:
            self._opened.close()
        self._opened, self._beside = opened, self._own_lab
        self._shell.user_ns[name] = opened
        return opened

    def close(self) -> str:
        """Close the object that the commands act on; return a sentence on the object they act on next."""
        is_opened = self.opened is not None
        self.target.close()
        if is_opened and self._own_lab is not None:
            self._opened = None
            return "closed; commands act on `lab` again, which has not changed"
        return "closed; you can still view the recording (%lab show, back, goto, why), and %lab start makes a new lab"


def _is_newest(report: StepReport, lab: Lab) -> bool:
    """Return True for the report of a lab's newest step. A later attempt without work leaves an empty report."""
    newest = lab.session.stepper.engine.report
    return newest is report or (not newest and newest.step == report.step)


def _rehearse(model: str | Driven = "smollm2", speculation: Proposer | None = None, **settings: Any) -> None:
    """Raise ConfigError for wrong settings before any weights are loaded."""
    if isinstance(model, Driven):
        LabSettings(model, **settings).engine_config()
        return
    models = [model]
    if model != "simulated":  # which has no attention, no layers, and no KV whose blocks have to fit into memory
        settings = {name: value for name, value in settings.items() if name != "attention" and value != "auto"}
        if isinstance(speculation, DraftModel):
            models.insert(0, speculation.model or model)
            speculation = FixedDrafts((), speculation.num_drafts, speculation.drafter)
    Lab("simulated", speculation=speculation, **settings).close()
    for name in models:
        if name != "simulated" and not is_provided(name):
            model_path(name)
