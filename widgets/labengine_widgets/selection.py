"""The selection of all views of a lab: one block, request, hash, node or event."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from operator import index
from typing import Any, Literal, get_args

from labengine.config import is_single_int

SelectionKind = Literal["block", "request", "hash", "node", "event"]


@dataclass(frozen=True, slots=True)
class Selection:
    """A block, request, hash, node of the prefix tree, or event. id: its number; for a hash "group:hex".

    Integers of numpy and torch become Python's. ValueError for another kind, TypeError for an id of the wrong type.
    """

    kind: SelectionKind
    id: int | str

    def __post_init__(self) -> None:
        if self.kind not in get_args(SelectionKind):
            raise ValueError(f"a selection must be a block, a request, a hash, a node or an event, got {self.kind!r}")
        if self.kind != "hash" and is_single_int(self.id):
            with suppress(TypeError):  # numpy and torch give fractions an __index__ too, which raises
                object.__setattr__(self, "id", index(self.id))  # type: ignore[arg-type]  # or a TypeError
        if isinstance(self.id, bool) or not isinstance(self.id, str if self.kind == "hash" else int):
            wanted = 'a string "group:hex"' if self.kind == "hash" else "an integer"
            raise TypeError(f"the id of a {self.kind} must be {wanted}, got {self.id!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the selection serialised for the browser (JSON types only)."""
        return {"kind": self.kind, "id": self.id}


def is_selection(message: object) -> bool:
    """True if a message selects something valid or nothing; False for an impossible selection."""
    is_nothing = message is None or (isinstance(message, dict) and message.get("kind", 0) is None)
    return is_nothing or selection_of(message) is not None


def selection_of(message: object) -> Selection | None:
    """Return the selection of a message; None for no selection and for an impossible one."""
    if not isinstance(message, dict) or message.get("kind") is None:
        return None
    try:
        return Selection(message["kind"], message.get("id"))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
