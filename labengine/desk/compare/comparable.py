"""What can be put side by side, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from labengine.config import ConfigError
from labengine.snapshot import Snapshot


class Recorded(Protocol):
    """What can be compared: a lab, or an opened trace."""

    timeline: Any

    @property
    def title(self) -> str:
        """One line."""

    def snapshot(self) -> Snapshot:
        """The newest state."""

    def token_text(self, token_id: int) -> str:
        """One token as text."""

    def bench(self) -> Any:
        """What a view may see of it."""


def names_of(left: Any, right: Any) -> tuple[str, str]:
    """What to call the sides: their editions."""
    one, other = (_edition(side) for side in (left, right))
    return (f"{one}, left", f"{other}, right") if one == other else (one, other)


def _edition(side: Any) -> str:
    parts = getattr(side, "parts", None)
    return str(parts.name if parts is not None else getattr(side, "edition", None) or side.title)


def refuse_unrecorded(sides: Sequence[Any]) -> None:
    """ConfigError when a side records nothing."""
    if any(side.timeline is None for side in sides):
        raise ConfigError("a lab made with record=False cannot be compared: nothing of it is recorded")


def refuse_strangers(left: Snapshot, right: Snapshot) -> None:
    """ConfigError for labs that have not seen the same requests, or do not stand after the same step."""
    prompts = [
        {i: request.token_ids[: request.num_prompt_tokens] for i, request in side.requests.items()}
        for side in (left, right)
    ]
    if prompts[0] != prompts[1]:
        raise ConfigError(
            f"the left lab was given {len(prompts[0])} requests, the right one {len(prompts[1])}, and not the same: "
            f"compare labs that have seen the same requests, or empty ones"
        )
    if left.step != right.step:
        raise ConfigError(
            f"the left lab stands after step {left.step}, the right one after {right.step}: step it first"
        )
