"""A folder of pages: one for each scenario, and index.html, which lists them by kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from labengine.config import ConfigError
from labengine.record.files.file_access import replace_file
from labengine.scenarios.bug_page import STYLE, prose
from labengine.scenarios.kinds import KINDS

if TYPE_CHECKING:
    from labengine.scenarios.scenario import Scenario

INDEX = "index.html"

_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 20px; max-width: 900px; background: #fff; color: #212121; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #e6e6e6; } }
.bug article { padding: 10px 0; border-bottom: 1px solid var(--bug-line); }
.bug h3 { margin: 0; font-size: 16px; font-weight: 600; }
.bug article p { margin: 2px 0; }
"""


def write_gallery(
    scenarios: Sequence[Scenario], folder: str | PathLike[str], on_page: Callable[[Path], object] = lambda page: None
) -> Path:
    """Write a page for each scenario, and index.html; return the path of index.html.

    on_page: called after each page, with its path. Raises ConfigError if the folder cannot be created.
    """
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the pages cannot be written to {folder}: {error}") from None
    for scenario in scenarios:
        on_page(scenario.export(target / file_name(scenario), home=INDEX))
    index = target / INDEX
    replace_file(index, index_page(scenarios).encode())
    return index


def file_name(scenario: Scenario) -> str:
    """Return the name of a scenario's page in the folder."""
    return f"{scenario.id}.html"


def index_page(scenarios: Sequence[Scenario]) -> str:
    """Return the page that lists scenarios by kind, each with a link to its page."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    kinds = "".join(_kind(kind, [one for one in scenarios if one.kind == kind]) for kind in KINDS)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{policy}"><meta name="viewport" content="width=device-width"><title>KV-cache bugs that run</title>'
        f'<style>{STYLE}{_STYLE}</style></head><body><main class="bug"><h1>KV-cache bugs that run</h1>'
        f"<p>{len(scenarios)} upstream reports, each reproduced by one override of labengine's code, and judged: what "
        "goes wrong here, what was seen in upstream's own code, and whether the claim follows. Each page steps through "
        "both engines side by side.</p>"
        f"{kinds}</main></body></html>\n"
    )


def _kind(kind: str, scenarios: Sequence[Scenario]) -> str:
    if not scenarios:
        return ""
    entries = "".join(map(_entry, scenarios))
    return f'<h2>{escape(kind)}</h2><p class="bug-where">{escape(KINDS[kind])}</p>{entries}'


def _entry(scenario: Scenario) -> str:
    facts = [] if scenario.report is None else scenario.report.facts()
    report = "".join(f'<p class="bug-where">{escape(f"{label}: {text}")}</p>' for label, text in facts)
    return (
        f'<article><h3><a href="{escape(file_name(scenario))}">{escape(scenario.title)}</a></h3>'
        f'<p class="bug-where">{escape(scenario.id)}</p><p>{escape(scenario.breaks)}</p>'
        f'<p class="bug-where">{escape(scenario.how_seen)}</p><p>{prose(scenario.conclusion.sentence)}</p>'
        f"{report}</article>"
    )
