"""Where the magics find their lab: under the name `lab` in the user's namespace, so that cells and magics share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from labengine.config import ConfigError
from labengine.desk.background import LabClosedError
from labengine.engine.sources import model_path
from labengine.lab import Lab

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from labengine.desk.compare.comparison import Comparison
    from labengine.desk.saved.opened import Trace


class CurrentLab:
    """One notebook's lab. A lab that the user made by hand and called `lab` comes before one that %lab start made."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._started: Lab | None = None
        self._compared: Comparison | None = None
        self._trace: Trace | None = None
        self._forks: dict[str, Lab] = {}

    @property
    def lab(self) -> Lab:
        """The lab to work on. UsageError when there is none."""
        named = self._shell.user_ns.get("lab")
        lab = named if isinstance(named, Lab) else self._started
        if lab is None:
            raise UsageError("there is no lab yet: %lab start --model smollm2 --blocks 32 --block-size 16 makes one")
        return lab

    @property
    def has_lab(self) -> bool:
        """False before the first one is made."""
        return isinstance(self._shell.user_ns.get("lab"), Lab) or self._started is not None

    @property
    def comparison(self) -> Comparison | None:
        """What %lab bug has opened last, as long as the left one of its labs is `lab`."""
        compared = self._compared
        is_current = compared is not None and self.has_lab and self.lab is compared.left
        return compared if is_current else None

    @property
    def desk(self) -> Lab | Comparison:
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
        """Close the lab that was started before, make a new one, and call it `lab`. Bad settings close nothing."""
        if self._started is not None:
            _rehearse(**settings)
            self._started.close()
        return self._call_lab(Lab(**settings))

    def adopt(self, lab: Lab) -> Lab:
        """Close the lab that was started before, and call this one `lab`."""
        if self._started is not None:
            self._started.close()
        return self._call_lab(lab)

    def adopt_comparison(self, comparison: Comparison) -> Comparison:
        """Close what was started before; call this one `comparison`, and its left side `lab`."""
        left = comparison.left
        assert isinstance(left, Lab)
        self.adopt(left)
        self._compared = self._shell.user_ns["comparison"] = comparison
        return comparison

    def _call_lab(self, lab: Lab) -> Lab:
        if self._compared is not None:
            self._compared.close()
            self._compared = None
        self._started = self._shell.user_ns["lab"] = lab
        return lab


def _rehearse(model: str = "smollm2", **settings: Any) -> None:
    """ConfigError for settings that cannot work, before any weights are loaded."""
    Lab("simulated", **settings).close()
    if model != "simulated":
        model_path(model)


@contextmanager
def told_plainly(call: str) -> Iterator[None]:
    """What goes wrong inside becomes a UsageError: a sentence for the user, without a traceback."""
    try:
        yield
    except UsageError:
        raise
    except (ConfigError, KeyError, LabClosedError) as error:
        raise UsageError(str(error.args[0])) from error
    except Exception as error:
        place = extract_tb(error.__traceback__)[-1]
        where = f"in {place.name}, line {place.lineno} of {Path(place.filename).name}"
        raise UsageError(f"{call}: {error or type(error).__name__} ({type(error).__name__} {where})") from error
