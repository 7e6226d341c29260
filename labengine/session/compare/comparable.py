"""What can be put side by side, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from labengine.config import ConfigError
from labengine.session.compare.given import first_stranger, requests_of
from labengine.snapshot import Snapshot

if TYPE_CHECKING:
    from labengine.session.time.crash import Crash
    from labengine.timeline import Timeline

SAME_WAY = "compare labs that were given the same requests (lab.fork(edition=...) makes such a one), or empty ones"


class Recorded(Protocol):
    """What can be compared: a lab, or an opened trace."""

    timeline: Any
    selection: Any

    @property
    def feed(self) -> Any:
        """What all its views hang on."""

    @property
    def title(self) -> str:
        """One line."""

    @property
    def crash(self) -> Crash | None:
        """The newest exception that a part has raised inside a step."""

    def snapshot(self) -> Snapshot:
        """The newest state."""

    def token_text(self, token_id: int) -> str:
        """One token as text."""

    def view_source(self) -> Any:
        """What a view may see of it."""


def names_of(left: Any, right: Any) -> tuple[str, str]:
    """What to call the sides: their editions."""
    one, other = (_edition(side) for side in (left, right))
    return (f"{one}, left", f"{other}, right") if one == other else (one, other)


def _edition(side: Any) -> str:
    parts = getattr(side, "parts", None)
    return str(parts.name if parts is not None else getattr(side, "edition", None) or side.title)


def checked_names(names: object) -> tuple[str, str] | None:
    """Two texts, or None for the editions' own. ConfigError for anything else."""
    if names is None:
        return None
    if not isinstance(names, (tuple, list)) or len(names) != 2 or not all(isinstance(n, str) and n for n in names):
        raise ConfigError(f'names are what to call the two sides, such as names=("before", "after"); got {names!r}')
    return names[0], names[1]


def is_recorded(side: object) -> bool:
    """True for a lab and for an opened trace."""
    return all(hasattr(side, name) for name in ("timeline", "snapshot", "view_source", "token_text"))


def is_live(side: object) -> bool:
    """True for a lab, False for an opened trace."""
    return hasattr(side, "hooks") and hasattr(side, "step")


def refuse_incomparable(left: Any, right: Any) -> None:
    """ConfigError, before anything happens, for two sides between which there is nothing to compare."""
    for side in (left, right):
        if not is_recorded(side):
            raise ConfigError(f"a side is a lab or an opened trace; got {side!r}. {_instead(side)}")
    if any(side.timeline is None for side in (left, right)):
        raise ConfigError("a lab made with record=False cannot be compared: nothing of it is recorded")
    if left is right:
        raise ConfigError(
            "both sides are one and the same: lab.fork(edition=...) makes a second lab to compare with, and "
            "labengine.open(path) a recording of how it was"
        )
    refuse_strangers(left, right)


def _instead(side: object) -> str:
    if isinstance(side, str):
        return f"lab.fork(edition={side!r}) makes a lab of that edition that has gone the same way"
    return "lab.fork(edition=...) makes a second lab that has gone the same way"


def refuse_strangers(left: Any, right: Any) -> None:
    """ConfigError for sides that have not seen the same requests, and for labs that stand after different steps.

    Of recordings one may be shorter: it ends before the last requests of the other come.
    """
    are_live = is_live(left) and is_live(right)
    given = requests_of(left), requests_of(right)
    stranger = first_stranger(*given)
    if not stranger and are_live and len(given[0]) != len(given[1]):
        numbers = f"the left lab was given {len(given[0])} requests, the right one {len(given[1])}"
        raise ConfigError(f"{numbers}, and so not the same: {SAME_WAY}")
    if stranger:
        raise ConfigError(f"the two were not given the same requests: {stranger}. {SAME_WAY.capitalize()}")
    steps = left.snapshot().step, right.snapshot().step
    if are_live and steps[0] != steps[1]:
        raise ConfigError(
            f"the left lab stands after step {steps[0]}, the right one after step {steps[1]}: step the one that is "
            f"behind first, or lab.rewind({min(steps)}) the other"
        )


def generations(timelines: tuple[Timeline, Timeline]) -> tuple[int, int]:
    """Which recordings these are: a lab that was reset or rewound has begun another one."""
    return timelines[0].generation, timelines[1].generation
