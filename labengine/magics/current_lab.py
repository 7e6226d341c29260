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


class CurrentLab:
    """One notebook's lab. A lab that the user made by hand and called `lab` comes before one that %lab start made."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._started: Lab | None = None

    @property
    def lab(self) -> Lab:
        """The lab to work on. UsageError when there is none."""
        named = self._shell.user_ns.get("lab")
        lab = named if isinstance(named, Lab) else self._started
        if lab is None:
            raise UsageError("there is no lab yet: %lab start --model smollm2 --blocks 32 --block-size 16 makes one")
        return lab

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

    def _call_lab(self, lab: Lab) -> Lab:
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
