"""The method that decides each kind of event: its source, its reason, and what it overrides. For views code and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labengine.check.watch import Watch
from labengine.core.part_methods import is_custom
from labengine.core.parts import Parts
from labengine.core.seams import DECIDED_BY, owners
from labengine.engine.engine import Engine
from labengine.engine.transfers import Transfers
from labengine.session.reasons.methods import Method, method_of

Seam = dict[str, Any]
"""JSON-able: seam "MergePolicy.merge_target", class (the one that decides), module, line, reason, source, base (what it
overrides: {class, source, reason}, or None), is_custom (the class is not one of labengine's own core or engine), and
methods: others that had a say, in the same shape, the one that emits the event last ("is_emitter")."""


def seams_of(parts: Parts) -> dict[str, Seam]:
    """Return what decides each kind of event with these parts: {"BlockMerged": seam, "BlockFreed:window": ...}.

    A method that the parts do not have (an edition that never preempts this way) is left out, and so is a kind for
    which none is left. Source that Python keeps no text of is described in its place.
    """
    classes = _classes(parts)
    found = {kind: _seam(list(_methods(names, classes))) for kind, names in DECIDED_BY.items()}
    return {kind: seam for kind, seam in found.items() if seam is not None}


def _classes(parts: Parts) -> dict[str, tuple[type, ...]]:
    return owners(parts) | {"Engine": (Engine,), "Transfers": (Transfers,), "Watch": (Watch,)}


def _methods(names: tuple[str, ...], classes: dict[str, tuple[type, ...]]) -> Iterator[Method]:
    """Yield the methods of the first class of each part, and those that a user replaced in another one."""
    for name in names:
        part, attribute = name.split(".")
        first, *others = (method_of(cls, attribute, part) for cls in classes[part])
        if first is not None:
            yield first
        yield from (method for method in others if method is not None and _replaces(method, first))


def _replaces(method: Method, first: Method | None) -> bool:
    return is_custom(method.owner) and (first is None or method.owner is not first.owner)


def _seam(methods: list[Method]) -> Seam | None:
    if not methods:
        return None
    found = [method.to_dict() for method in methods]
    found[-1]["is_emitter"] = True
    found.sort(key=lambda method: not method["is_custom"])  # what the user replaced comes first
    return found[0] | {"methods": found[1:]}
