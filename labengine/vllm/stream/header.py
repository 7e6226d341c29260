"""The first line of each file of a stream: which engine it comes from, and what the rows' numbers mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from labengine.events import EVENT_KINDS
from labengine.record.files.codec import KINDS
from labengine.record.files.parsing import INT, TEXT, TraceError, array_of

FORMAT, VERSION = "labengine stream", 1

_NUMBERS = {tuple(kind): number for number, kind in enumerate(KINDS)}
_DEFAULTS: dict[str, list[Any]] = {
    kind.__name__: [[*f.default] if f.default == () else f.default for f in fields(kind) if f.default is not MISSING]
    for kind in EVENT_KINDS
}
"""Per kind, as JSON has them."""


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """One file's header. numbers: this labengine's number of each of the stream's kinds of rows."""

    stream: str
    file: int
    engine: str
    scheduler: str
    rank: int
    pid: int
    model: str
    numbers: Sequence[int]
    missing: Sequence[Sequence[Any]]
    """Per kind of rows: values of the fields that an earlier tap did not write."""
    methods: dict[str, Any]
    """{event kind: {class, method, module, line}}; not checked."""
    settings: dict[str, Any]
    """The scheduler's limits and features; empty for a tap that did not write them. Not checked."""
    has_tokens: bool
    """False if the tap left token ids out (LABENGINE_TAP_TOKENS=0)."""
    document: dict[str, Any]
    """All of it, as it came."""

    @property
    def checkpoint_alignment(self) -> int | None:
        """A chunk can leave a state at multiples of so many tokens behind its start; None for no such states."""
        found = self.settings.get("checkpoint_alignment")
        return found if type(found) is int and found > 0 else None


def header_of(document: dict[str, Any], where: str) -> StreamHeader:
    """Return the header of a line's JSON. Raises TraceError for another format, version or kind of row."""
    if document.get("format") != FORMAT:
        raise TraceError(f"{where} is no stream of labengine's tap: LABENGINE_TAP=file:DIR writes them")
    if document.get("version") != VERSION:
        raise TraceError(
            f"{where} has format {document.get('version')!r}, and this labengine reads {VERSION}: "
            "open it with the labengine of the tap's release"
        )
    try:
        texts = {name: TEXT(document[name]) for name in ("stream", "engine", "scheduler", "model")}
        counts = {name: INT(document[name]) for name in ("file", "rank", "pid")}
        kinds = array_of(array_of(TEXT))(document["kinds"])
        methods, settings = (
            found if isinstance(found, dict) else {} for found in (document["methods"], document.get("settings"))
        )
    except (LookupError, TypeError, ValueError) as error:
        raise TraceError(f"{where} has a damaged header ({error!r}): get it again") from None
    completed = [_completed(kind) for kind in kinds]
    if unknown := [kind for kind in completed if kind not in _NUMBERS]:
        raise TraceError(f"{where} has events that this labengine does not know, such as {str(unknown[0])[:80]}")
    return StreamHeader(
        **texts,
        **counts,
        numbers=[_NUMBERS[kind] for kind in completed],
        missing=[
            _last(_DEFAULTS[kind[0]], len(complete) - len(kind))
            for kind, complete in zip(kinds, completed, strict=True)
        ],
        methods=methods,
        settings=settings,
        has_tokens=document.get("has_tokens") is not False,
        document=document,
    )


def _completed(kind: tuple[str, ...]) -> tuple[str, ...]:
    """Return a kind with the fields that it lacks, where these have defaults; else the kind as it is."""
    for known in _NUMBERS:
        if kind and known[: len(kind)] == kind and len(known) - len(kind) <= len(_DEFAULTS[known[0]]):
            return known
    return kind


def _last(values: list[Any], number: int) -> list[Any]:
    return values[len(values) - number :]
