"""The parts of a session in a script: the values and classes that they need, and what nobody could write down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from labengine.session.saved.literals import checked_literal, checked_name, quoted


def definitions(parts: Mapping[str, Any]) -> Iterator[str]:
    """What the parts need: what nobody could write is asked for; then values, then classes, each once, bases first."""
    classes = list(parts["classes"].values())
    constants = _constants(classes)
    unclear = [name for name, texts in constants.items() if len(texts) > 1]
    yield from _wanted(dict.fromkeys(checked_name(name) for name in [*unclear, *_all(classes, "missing")]))
    yield from (f"{name} = {text}" for name, (text, *others) in constants.items() if not others)
    for text in _all(classes, "definitions"):
        yield from ("", *text.splitlines(), "")
    yield ""


def _all(classes: Sequence[Mapping[str, Any]], what: str) -> dict[str, None]:
    return dict.fromkeys(str(text) for told in classes for text in told[what])


def _constants(classes: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The values of each name: two classes from different modules may mean different things by it."""
    values: dict[str, list[str]] = {}
    for told in classes:
        for name, text in told.get("constants", {}).items():
            texts = values.setdefault(checked_name(name), [])
            if (written := checked_literal(text)) not in texts:
                texts.append(written)
    return values


def _wanted(names: Iterable[str]) -> Iterator[str]:
    """Better at the top, and in words, than a NameError in some step."""
    names = list(names)
    for name in names:
        yield f"# {name} is needed here; nobody knows where it can be imported from: define it above the next line."
    if names:
        yield f"if missing := {{{', '.join(map(quoted, names))}}} - globals().keys():"
        yield "    raise NameError(f\"define {', '.join(sorted(missing))} above: nobody could write it down\")"
        yield ""
