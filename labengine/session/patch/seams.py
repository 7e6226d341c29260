"""The seams of a lab's parts, found by name: the methods and attributes that an override may replace."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from labengine.config import ConfigError
from labengine.core.overrides import seam_names
from labengine.core.part_methods import class_name, definers
from labengine.core.parts import Parts, base_classes
from labengine.session.reasons import Method, method_of

GROUP_FIELDS = {"full": "full_attention_group", "sliding_window": "sliding_window_group", "state": "state_group"}
"""Per kind of KV-cache group, the field of Parts that names its class."""


class AmbiguousSeamError(ConfigError):
    """Raised for a seam's name that several parts have; the message names them."""


@dataclass(frozen=True, slots=True)
class PartSeam:
    """A method or attribute of a part that the core uses. str() names it: BlockPool.touch.

    owner: the class that defines it, or inherits it last. fields: the fields of Parts whose classes use it.
    """

    owner: type
    name: str
    fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"{class_name(self.owner)}.{self.name}"

    @property
    def method(self) -> Method:
        """Its source, its position in its file, and the first sentence of its docstring."""
        found = method_of(self.owner, self.name, class_name(self.owner))
        assert found is not None, f"{self} is defined in {self.owner}"
        return found

    def is_called(self, text: str, parts: Parts) -> bool:
        """Return True for the seam's name, alone or after any class that the parts in use derive from."""
        qualifier, _, name = text.rpartition(".")
        classes = (cls for field in self.fields for cls in getattr(parts, field).__mro__[:-1])
        return name == self.name and (not qualifier or qualifier in map(class_name, classes))


def seams_in_use(parts: Parts, kinds: Collection[str]) -> list[PartSeam]:
    """Return every seam of a complete Parts, part by part, in the order of definition.

    kinds: the kinds of the lab's KV-cache groups. Omits classes for groups that the lab does not have.
    """
    unused = {field for kind, field in GROUP_FIELDS.items() if kind not in kinds}
    fields: dict[tuple[type, str], tuple[str, ...]] = {}
    for field, base in base_classes().items():
        for owner, name in _definitions(getattr(parts, field), base) if field not in unused else ():
            fields[owner, name] = (*fields.get((owner, name), ()), field)
    return [PartSeam(owner, name, used_by) for (owner, name), used_by in fields.items()]


def find_seam(text: str, parts: Parts, kinds: Collection[str]) -> PartSeam:
    """Return the seam of that name: "touch" where one part has it, or "BlockPool.touch".

    Raises ConfigError for an unknown name, naming the nearest seam, and for a name in several parts, naming them.
    """
    known = seams_in_use(parts, kinds)
    found = [seam for seam in known if seam.is_called(text, parts)]
    if len(found) == 1:
        return found[0]
    if found:
        raise AmbiguousSeamError(f"{text} is a seam of several parts: do you mean {' or '.join(map(str, found))}?")
    raise ConfigError(f"this lab's parts have no seam {text!r}; {_hint(text, known)}")


def _hint(text: str, known: list[PartSeam]) -> str:
    qualifier, _, name = text.rpartition(".")
    same_name = [str(seam) for seam in known if seam.name == name]
    near = same_name or get_close_matches(text, map(str, known), n=1, cutoff=0.8)
    if not near and not qualifier:
        names = get_close_matches(text, [seam.name for seam in known], n=1, cutoff=0.7)
        near = [str(seam) for seam in known if seam.name in names]
    return f"did you mean {' or '.join(near)}?" if near else "%lab seams lists them all"


def _definitions(part: type, base: type) -> Iterator[tuple[type, str]]:
    """Yield the seams of a class, each with the class that defines it; the base's first, in their order."""
    names = seam_names(part, base)
    ordered = dict.fromkeys(name for cls in reversed(part.__mro__) for name in vars(cls))
    for name in ordered:
        if name in names and (classes := definers(part, name)):
            yield classes[0], name
