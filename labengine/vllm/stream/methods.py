"""vLLM's methods that decide each kind of event, in the form in which views and answers read them."""

from __future__ import annotations

from typing import Any

from labengine.events import EVENT_KINDS
from labengine.record.wording import readable

REASONS = {
    f"{kind.__name__}:{variant}".rstrip(":"): one.reason
    for kind in EVENT_KINDS
    for variant, one in kind.in_vllm.items()
}
"""What each method decides, in labengine's words."""


def code_of(methods: dict[str, Any], engine: str) -> dict[str, Any]:
    """Return facts["code"] of a stream: the seam of each kind of event. What is not well formed is left out."""
    known = {kind: place for kind, place in methods.items() if kind in REASONS and _is_place(place)}
    return {kind: _seam(kind, place, engine) for kind, place in known.items()}


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
