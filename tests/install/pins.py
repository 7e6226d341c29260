"""The pins of constraints.txt."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from checkout import ROOT

CONSTRAINTS = ROOT / "constraints.txt"


@dataclass(frozen=True)
class Pin:
    """A version, and the platforms and Pythons it is for."""

    version: str
    marker: str


def pins() -> dict[str, list[Pin]]:
    """Return the pins by canonical name: several where one version does not do everywhere."""
    found: dict[str, list[Pin]] = defaultdict(list)
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    for requirement in map(Requirement, lines):
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        found[canonicalize_name(requirement.name)].append(Pin(specifier.version, str(requirement.marker or "")))
    return dict(found)
