"""Single wrong overrides, drawn by a fixed seed over every public method of the core's parts.

Each is one method of a subclass, as a user writes it in a cell; the class has its source. The draw is of the methods as
they are now: a change of one method changes what is drawn for it, and for no other.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random
from types import FunctionType
from typing import Any

from labengine.core.connector import Connector
from labengine.core.editions import EDITIONS
from labengine.core.external_loads import ExternalLoads
from labengine.core.part_methods import definers
from labengine.core.parts import Parts, base_classes
from labengine.engine.external.host import HostStore
from labengine.session.patch.cell import _made, _namespace, cell_text, parts_from_cell
from labengine.session.patch.seams import PartSeam, seams_in_use
from mutants.changes import Change, changes_of

SEED = 40
ROUNDS = 3

_KINDS = ("full", "sliding_window")
_TIER_EDITIONS = ("labengine", "vllm")
_ALWAYS_SILENT = ("bind", "close", "describe", "wait", "num_bytes")
"""Methods of a store that decide nothing about KV."""


@dataclass(frozen=True)
class Override:
    """One wrong override of a seam, for the editions that use it."""

    number: int
    family: str
    """The base class of the part: BlockPool."""
    seam: PartSeam
    editions: tuple[str, ...]
    change: Change

    @property
    def words(self) -> str:
        """The wrong change, in one line."""
        return f"{self.seam}: {self.change.kind}: {self.change.words}"

    @property
    def is_of_the_tier(self) -> bool:
        """True for a method of a store."""
        return issubclass(self.seam.owner, Connector)

    def parts(self, edition: str) -> Parts:
        """Return the edition's parts with the override; unchanged if it overrides the tier."""
        parts = EDITIONS[edition]
        if self.is_of_the_tier or edition not in self.editions:
            return parts
        # The seam of this edition: its fields are those whose classes use it here.
        [seam] = [one for one in seams_in_use(parts, _KINDS) if _key(one) == _key(self.seam)]
        return parts_from_cell(seam, self.change.text, parts, {})

    @cached_property
    def cls(self) -> type:
        """The subclass of the store, which Parts do not name."""
        return _made(HostStore, self.seam, "", f"\n{self.change.text}", _namespace(self.seam))

    @property
    def make_store(self) -> Callable[[], Connector]:
        """The class of the host tier's store."""
        return self.cls if self.is_of_the_tier else HostStore


def overrides(seed: int = SEED, rounds: int = ROUNDS) -> list[Override]:
    """Return the overrides in rounds, one of each seam that has some left."""
    seams = all_seams()
    draws = {_key(seam): _drawn(seed, seam) for seam, _, _ in seams}
    Random(seed).shuffle(seams)
    found: list[Override] = []
    for _ in range(rounds):
        for seam, family, editions in seams:
            if (change := next(draws[_key(seam)], None)) is not None:
                found.append(Override(len(found), family, seam, editions, change))
    return found


def digest(drawn: list[Override]) -> str:
    """Return a checksum over the words and texts of overrides."""
    lines = (f"{one.number} {one.words}\n{one.change.text}\n" for one in drawn)
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _drawn(seed: int, seam: PartSeam) -> Iterator[Change]:
    """Yield the changes of a seam in random order: first the kind is drawn, then one of that kind."""
    random = Random(f"{seed} {seam}")
    by_kind: dict[str, list[Change]] = {}
    for change in changes_of(cell_text(seam)):
        by_kind.setdefault(change.kind, []).append(change)
    while by_kind:
        kind = random.choice([*by_kind])
        yield by_kind[kind].pop(random.randrange(len(by_kind[kind])))
        if not by_kind[kind]:
            del by_kind[kind]


# -- seams -------------------------------------------------------------------------------------------------------------


@cache
def _every_seam() -> tuple[tuple[PartSeam, str, tuple[str, ...]], ...]:
    found: dict[tuple[type, str], tuple[PartSeam, str, tuple[str, ...]]] = {}
    for name, parts in EDITIONS.items():
        for seam in _seams_of(name, parts):
            _, family, editions = found.get(_key(seam), (seam, _family(seam), ()))
            found[_key(seam)] = (found.get(_key(seam), (seam,))[0], family, (*editions, name))
    return tuple(found.values())


def all_seams() -> list[tuple[PartSeam, str, tuple[str, ...]]]:
    """Return every public method that a part of an edition uses, with its family and the editions that use it.

    Those in which nothing can be changed are left out: they have one statement, or none.
    """
    return [one for one in _every_seam() if changes_of(cell_text(one[0]))]


def _seams_of(name: str, parts: Parts) -> Iterator[PartSeam]:
    has_tier = name in _TIER_EDITIONS
    for seam in seams_in_use(parts, _KINDS):
        if _is_code(seam.owner, seam.name) and (has_tier or not issubclass(seam.owner, ExternalLoads)):
            yield seam
    if has_tier:
        yield from (seam for seam in _public(HostStore, Connector) if seam.name not in _ALWAYS_SILENT)


def _public(part: type, base: type) -> Iterator[PartSeam]:
    for name in dict.fromkeys([*vars(base), *dir(part)]):
        if not name.startswith("_") and hasattr(part, name) and _is_code(part, name) and definers(part, name):
            yield PartSeam(definers(part, name)[0], name, ())


def _is_code(owner: type, name: str) -> bool:
    value: Any = inspect.getattr_static(owner, name)
    return isinstance(getattr(value, "fget", getattr(value, "func", value)), FunctionType)


def _family(seam: PartSeam) -> str:
    bases = (*base_classes().values(), Connector)
    return next(base.__name__ for base in bases if issubclass(seam.owner, base) or issubclass(base, seam.owner))


def _key(seam: PartSeam) -> tuple[type, str]:
    return seam.owner, seam.name
