"""A session as a script that makes the lab and repeats every input at its step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from labengine.record.files.parsing import TraceError
from labengine.session.saved.definitions import (
    External,
    checked_source,
    definition_lines,
    import_lines,
    lab_arguments,
    maker_of,
    parts_text,
    texts_of,
)
from labengine.session.saved.input_lines import NoScriptError, TokenText, input_lines
from labengine.session.saved.layout import call_lines, in_a_line

_PHASES = ("schedule", "forward", "sample")


def to_code(
    facts: Mapping[str, Any],
    token_text: TokenText | None = None,
    body: Sequence[str] | None = None,
    external: External | None = None,
) -> str:
    """Return a script that repeats a session. facts: see labengine.session.saved.facts.

    token_text puts the beginning of each prompt beside its token ids. A comment names everything without a source: a
    user's connector, a class without source, or a name that a class uses; the script checks for these first. body:
    lines instead of the inputs, with functions of labengine.scripts. external: Python that makes the tier, if it is not
    a setting. TraceError for facts that are not a session's, ConfigError for code with hidden text.
    """
    try:
        lines = list(_lines(facts, token_text, body, external))
    except NoScriptError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraceError(f"this trace has no code: its lab's inputs cannot be read ({error!r})") from None
    return checked_source("\n".join(lines) + "\n")


def _lines(
    facts: Mapping[str, Any], token_text: TokenText | None, body: Sequence[str] | None, external: External | None
) -> Iterator[str]:
    lines = [*input_lines(facts, token_text)] if body is None else body
    yield f"# {in_a_line(facts['title'])}: a session, written by to_code()."
    texts = texts_of(facts, external)
    yield from (*import_lines(texts, lines, external), *definition_lines(texts))
    comments, arguments = lab_arguments(facts, external)
    if facts["parts"] is not None:
        arguments.append(f"parts={parts_text(facts['parts'])}")
    yield from (*comments, *call_lines(f"lab = {maker_of(facts)}", arguments), "")
    yield from lines
    yield from _open_step(facts.get("open_step"))
    yield "print(lab)"


def _open_step(reached: str | None) -> Iterator[str]:
    """Yield the phases of a step that was left open."""
    for phase in _PHASES[: _PHASES.index(reached) + 1] if reached is not None else ():
        yield f"lab.next_phase()  # {phase}"


def to_definitions(
    facts: Mapping[str, Any], body: Sequence[str], external: External | None = None
) -> tuple[str, list[str]]:
    """Return Python that imports what the body needs and defines PARTS, and Lab's arguments without the parts."""
    comments, arguments = lab_arguments(facts, external)
    texts = texts_of(facts, external)
    lines = [*import_lines(texts, body, external), *definition_lines(texts), *comments]
    lines.append(f"PARTS = {parts_text(facts['parts'])}")
    return checked_source("\n".join(lines)), arguments
