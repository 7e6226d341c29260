"""The first line of each file of a stream: its engine, and the meaning of the rows' numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labengine.events import EVENT_KINDS
from labengine.record.files.codec import Row, renumbering
from labengine.record.files.parsing import INT, TEXT, TraceError
from labengine.record.files.shapes import shape_of
from labengine.record.wording import readable
from labengine.vllm.stream.written import InnerStates

FORMAT, VERSION = "labengine stream", 1

_KINDS = shape_of(tuple[tuple[str, ...], ...])


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """One file's header."""

    stream: str
    file: int
    engine: str
    scheduler: str
    rank: int
    pid: int
    model: str
    renumbered: Callable[[Any], Row]
    """Converts a row of the stream to a row of this labengine's kinds."""
    methods: dict[str, Any]
    """{event kind: {class, method, module, line}}; not checked."""
    settings: dict[str, Any]
    """The scheduler's limits and features; empty for a tap that did not write them. Not checked."""
    has_tokens: bool
    """False if the tap left out token ids (LABENGINE_TAP_TOKENS=0)."""
    document: dict[str, Any]
    """The complete header, unchanged."""

    @property
    def code(self) -> dict[str, Any]:
        """facts["code"] of a stream: the seam of each kind of event. Malformed entries are left out."""
        known = {kind: place for kind, place in self.methods.items() if kind in REASONS and _is_place(place)}
        return {kind: _seam(kind, place, self.engine) for kind, place in known.items()}

    @property
    def features(self) -> list[str] | None:
        """Names of features that affect the scheduler's decisions, such as "policy priority"; None if missing."""
        found = self.settings.get("features")
        return [one for one in found if isinstance(one, str)] if isinstance(found, list) else None

    @property
    def model_name(self) -> str:
        """The last part of the model's path."""
        return readable(self.model.rstrip("/").rpartition("/")[2])

    @property
    def inner_states(self) -> InnerStates | None:
        """Where a chunk can leave a state inside it; None without such states."""
        sizes = [self.settings.get(name) for name in ("checkpoint_alignment", "hash_block_size", "checkpoint_unit")]
        counts = [one for one in sizes if type(one) is int and one > 0]
        return InnerStates(*counts) if len(counts) == len(sizes) else None


REASONS = {
    f"{kind.__name__}:{variant}".rstrip(":"): one.reason
    for kind in EVENT_KINDS
    for variant, one in kind.in_vllm.items()
}
"""The decision of each method, in labengine's words."""


def _is_place(place: Any) -> bool:
    types = {"class": str, "method": str, "module": str, "line": int}
    return isinstance(place, dict) and all(type(place.get(name)) is kind for name, kind in types.items())


def _seam(kind: str, place: dict[str, Any], engine: str) -> dict[str, Any]:
    owner, method = readable(place["class"]), readable(place["method"])
    where = f"{readable(place['module']).replace('.', '/')}.py, line {place['line']}, {readable(engine)}"
    return {
        "seam": f"{owner}.{method}",
        "class": owner,
        "module": readable(place["module"]),
        "line": place["line"],
        "reason": REASONS[kind],
        "place": where,
        "source": f"# {where}",
        "base": None,
        "is_custom": False,
        "methods": [],
    }


def header_of(document: dict[str, Any], where: str) -> StreamHeader:
    """Return the header of a line's JSON. Raises TraceError for another format, version or kind of row."""
    if document.get("format") != FORMAT:
        raise TraceError(f"{where} is not a stream of labengine's tap: set LABENGINE_TAP=file:DIR to write one")
    if document.get("version") != VERSION:
        raise TraceError(
            f"{where} has format {document.get('version')!r}, but this labengine reads {VERSION}: "
            "open it with the labengine of the tap's release"
        )
    try:
        texts = {name: TEXT(document[name]) for name in ("stream", "engine", "scheduler", "model")}
        counts = {name: INT(document[name]) for name in ("file", "rank", "pid")}
        kinds = _KINDS(document["kinds"])
        methods, settings = (
            found if isinstance(found, dict) else {} for found in (document["methods"], document.get("settings"))
        )
    except (LookupError, TypeError, ValueError) as error:
        raise TraceError(f"{where} has a damaged header ({error!r}): download it again") from None
    try:
        renumbered = renumbering(kinds)
    except TraceError as error:
        raise TraceError(f"{where} cannot be read: {error}") from None
    return StreamHeader(
        **texts,
        **counts,
        renumbered=renumbered,
        methods=methods,
        settings=settings,
        has_tokens=document.get("has_tokens") is not False,
        document=document,
    )
