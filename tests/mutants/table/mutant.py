"""One wrong change to a line of labengine's source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["state", "stream", "journal", "reads", "tier", "policy"]


@dataclass(frozen=True)
class Mutant:
    """One change: in this file of labengine, `old` becomes `new`. missed: why the live checks cannot see it."""

    name: str
    kind: Kind
    file: str
    old: str
    new: str
    missed: str = ""
