"""What %lab acts on: the variable `lab`, which cells and magics share, or what %lab bug has opened beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core.error import UsageError

from labengine.engine.sources import model_path
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison
from labengine.session.saved.trace import Trace

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

Opened = TypeVar("Opened", "Comparison", Lab)


class CurrentLab:
    """What one notebook's commands act on.

    It is the lab called `lab`, made by hand or by %lab start. After %lab bug it is what that has opened, until it is
    closed or `lab` becomes another lab; the variable `lab` stays as it is.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._started: Lab | None = None
        self._opened: Comparison | Lab | None = None
        self._beside: Lab | None = None
        """The lab called `lab` when %lab bug opened something."""
        self._trace: Trace | None = None
        self._forks: dict[str, Lab] = {}

    @property
    def lab(self) -> Lab:
        """The lab to work on; of two that are compared the left one. UsageError when there is none."""
        opened = self.opened
        if opened is not None:
            left = opened if isinstance(opened, Lab) else opened.left
            assert isinstance(left, Lab)
            return left
        lab = self._own_lab
        if lab is None:
            raise UsageError("there is no lab yet: %lab start --model smollm2 --blocks 32 --block-size 4 makes one")
        return lab

    @property
    def _own_lab(self) -> Lab | None:
        """The lab called `lab`, or the one that %lab start has made."""
        named = self._shell.user_ns.get("lab")
        return named if isinstance(named, Lab) else self._started

    @property
    def has_own_lab(self) -> bool:
        """True if there is a lab called `lab`, or started."""
        return self._own_lab is not None

    @property
    def has_lab(self) -> bool:
        """False before the first one is made."""
        return self.opened is not None or self._own_lab is not None

    @property
    def opened(self) -> Comparison | Lab | None:
        """What %lab bug has opened; None once it is closed, or `lab` is another lab than before."""
        return self._opened if self._own_lab is self._beside else None

    @property
    def comparison(self) -> Comparison | None:
        """Both engines that %lab bug has opened."""
        opened = self.opened
        return None if isinstance(opened, Lab) else opened

    @property
    def target(self) -> Lab | Comparison:
        """Where to step and to add: at both labs that are compared, or else at the one lab."""
        return self.comparison or self.lab

    @property
    def recorded(self) -> Lab | Trace:
        """Where to look: at the lab, or, when there is none, at what %lab open has opened."""
        return self.lab if self.has_lab or self._trace is None else self._trace

    @property
    def labs(self) -> tuple[Lab, ...]:
        """Both labs that are compared, or else the one."""
        compared = self.comparison
        sides = (self.lab,) if compared is None else compared.sides
        return tuple(side for side in sides if isinstance(side, Lab))

    @property
    def shown(self) -> Lab | Trace | Comparison:
        """What is looked at: both labs that are compared, or else the one lab, or the trace."""
        return self.comparison or self.recorded

    def name(self, name: str, lab: Lab) -> Lab:
        """Give a lab a variable of its own. One that %lab fork has made before under this name is closed."""
        former = self._forks.pop(name, None)
        if former is not None and former is self._shell.user_ns.get(name):
            former.close()
        self._forks[name] = self._shell.user_ns[name] = lab
        return lab

    def open_trace(self, name: str, trace: Trace) -> Trace:
        """Give an opened trace a variable."""
        self._trace = self._shell.user_ns[name] = trace
        return trace

    def start(self, settings: dict[str, Any]) -> Lab:
        """Close what was started or opened before, make a lab, and call it `lab`. Bad settings close nothing."""
        if self._started is not None or self._opened is not None:
            _rehearse(**settings)
        for former in (self._started, self._opened):
            if former is not None:
                former.close()
        self._opened = None
        self._started = self._shell.user_ns["lab"] = Lab(**settings)
        return self._started

    def open(self, name: str, opened: Opened) -> Opened:
        """Give a report's engines a variable of their own, and act on them from now on. What was opened before closes.

        `lab` stays what it is.
        """
        if self._opened is not None:
            self._opened.close()
        self._opened, self._beside = opened, self._own_lab
        self._shell.user_ns[name] = opened
        return opened

    def close(self) -> str:
        """Close what the commands act on; returns what they act on next, in a sentence."""
        is_opened = self.opened is not None
        self.target.close()
        if is_opened and self._own_lab is not None:
            self._opened = None
            return "closed; the commands act on `lab` again, which is as it was"
        return "closed; the recording can still be looked at (%lab show, back, goto, why), %lab start makes a new lab"


def _rehearse(model: str = "smollm2", **settings: Any) -> None:
    """Raise ConfigError for settings that cannot work, before any weights are loaded."""
    Lab("simulated", **settings).close()
    if model != "simulated":
        model_path(model)
