"""The parameters of the methods that the tap wraps, in releases of vLLM: read from source files, kept, and judged."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from labengine_vllm.engine import GROUP_KINDS, METHODS, difference

PATH = Path(__file__).resolve().parent.parent / "golden" / "vllm-signatures.json"

FOLDER = "vllm/v1/core/"
"""Where a wheel of vLLM has the classes."""

CLASSES = {
    "scheduler": ("Scheduler", "AsyncScheduler"),
    "manager": ("KVCacheManager",),
    "pool": ("BlockPool",),
    "queue": ("FreeKVCacheBlockQueue",),
    "group": tuple(GROUP_KINDS),
    "state": tuple(name for name, kind in GROUP_KINDS.items() if kind == "state"),
}
"""The classes of vLLM whose instances the tap observes, by role."""

Signatures = dict[str, list[str] | None]
"""Parameter names without self, by "Class.method"; None for a method that the class does not have."""


def wrapped_methods() -> Iterator[tuple[str, str, list[str]]]:
    """Yield (class, method, parameters that it must begin with) for each method that the tap wraps."""
    for role, methods in METHODS.items():
        for owner in CLASSES[role]:
            yield from ((owner, name, wanted.split()) for name, wanted in methods.items())


def signatures_in(sources: Iterable[str]) -> Signatures:
    """Return the parameters of the wrapped methods, from the source texts of vLLM's core; nothing is imported."""
    classes = {
        node.name: node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)
    }
    return {f"{owner}.{name}": _parameters(classes, owner, name) for owner, name, _ in wrapped_methods()}


def _parameters(classes: Mapping[str, ast.ClassDef], owner: str, name: str) -> list[str] | None:
    """Return a method's parameters as inspect.signature orders them; inherited ones are found in the base classes."""
    if owner not in classes:
        return None
    for node in classes[owner].body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return _names(node.args)[1:]
    bases = (base.id for base in classes[owner].bases if isinstance(base, ast.Name))
    return next((found for base in bases if (found := _parameters(classes, base, name)) is not None), None)


def _names(arguments: ast.arguments) -> list[str]:
    found = [*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg]
    return [argument.arg for argument in found if argument is not None]


def write(header: Mapping[str, str], releases: Mapping[str, Signatures]) -> None:
    """Keep the parameters of each release; parameters are words of one string, to be read as a table."""
    rows = {
        release: {method: None if found is None else " ".join(found) for method, found in signatures.items()}
        for release, signatures in releases.items()
    }
    PATH.write_text(json.dumps({**header, "releases": rows}, indent=1) + "\n")


def read() -> dict[str, Signatures]:
    """Return what was kept, by release."""
    releases = json.loads(PATH.read_text())["releases"]
    return {
        release: {method: None if found is None else found.split() for method, found in signatures.items()}
        for release, signatures in releases.items()
    }


def refusals(signatures: Signatures) -> dict[str, str]:
    """Return the tap's reasons to refuse a release, in its own words, by method; it taps a release without any."""
    texts = {
        f"{owner}.{name}": difference(owner, name, signatures[f"{owner}.{name}"], wanted)
        for owner, name, wanted in wrapped_methods()
    }
    return {method: text for method, text in texts.items() if text is not None}


def others(signatures: Signatures, known: Signatures) -> dict[str, str]:
    """Return the parameters of the methods that the tap accepts although a release that it knows has other ones."""
    refused = refusals(signatures)
    return {
        method: f"{method} takes ({', '.join(found)})"
        for method, found in signatures.items()
        if found is not None and found != known[method] and method not in refused
    }


def table_row(release: str, signatures: Signatures, known: Signatures) -> str:
    """Return a release's row of the table: how many methods are the same, other and accepted, refused, absent."""
    refused, other = refusals(signatures), others(signatures, known)
    absent = sum(signatures[method] is None for method in refused)
    same = len(signatures) - len(other) - len(refused)
    return f"| {release} | {same} | {len(other)} | {len(refused) - absent} | {absent} |"
