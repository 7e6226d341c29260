"""The gallery of bugs: one page that lists all scenarios, and a page for each, in which both engines scrub."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from labengine.scenarios.gallery import file_name
from labengine.scenarios.kinds import KINDS
from labengine.scenarios.report import UPSTREAM_READ, how_seen
from labengine.scenarios.scenario import Scenario
from labengine.scenarios.tiny_model import TinyModelScenario
from labengine.scenarios.verdict import Verdict

INTRO = """\
# Bugs that run

{number} upstream reports about KV caches. Each is reproduced by one override of labengine's code, and judged: does it
go wrong as reported, and does the fix hold? The title leads to a page in which both engines scrub side by side; *live*
opens the same two engines in <a href="../../index.html">the live lab</a>, where you step them. In a notebook,
`%lab bug ID` does so, and [your own](../your_bug.md) takes five minutes.
"""


def write_bugs(folder: Path, scenarios: Sequence[Scenario]) -> str:
    """Write a page for each scenario into a folder; return the gallery's page in Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    for scenario in scenarios:
        scenario.export(folder / file_name(scenario), home="index.html")
    verdicts = {scenario.id: scenario.verdict() for scenario in scenarios}
    kinds = [_kind(kind, [one for one in scenarios if one.kind == kind], verdicts) for kind in KINDS]
    return INTRO.format(number=len(scenarios)) + "".join(kinds)


def _kind(kind: str, scenarios: Sequence[Scenario], verdicts: dict[str, Verdict]) -> str:
    if not scenarios:
        return ""
    entries = "\n".join(_entry(one, verdicts[one.id]) for one in scenarios)
    title, says = (text[0].upper() + text[1:] for text in (kind, KINDS[kind]))
    return f'\n## {escape(title)}\n\n<div class="bugs"><p>{escape(says)}.</p>\n{entries}</div>\n'


def _entry(scenario: Scenario, verdict: Verdict) -> str:
    page = escape(file_name(scenario))
    facts = f"{escape(scenario.engine)} · {_report(scenario)} · {escape(scenario.kind)}{_live(scenario)}"
    upstream = f"Upstream, as of {UPSTREAM_READ}: {scenario.upstream}" if scenario.upstream else ""
    return (
        f'<article id="{escape(scenario.id)}"><h3><a href="{page}">{escape(scenario.title)}</a></h3>'
        f'<p class="bug-facts">{facts}</p>'
        f"<p>{escape(scenario.claim)}</p>"
        f'<p class="bug-verdict">{escape(judged(verdict))} {escape(how_seen(scenario))}</p>'
        + (f'<p class="bug-facts">{escape(upstream)}</p>' if upstream else "")
        + "</article>"
    )


def judged(verdict: Verdict) -> str:
    """Return the three answers of a verdict in words for a list."""
    claim = "The claim holds" if verdict.claim_holds else "The claim does not hold"
    broken = "reproduced" if verdict.reproduced else "not reproduced"
    fixed = "the fix works" if verdict.fixed else "the fix does not work"
    return f"{claim}: {broken}, {fixed}."


def _report(scenario: Scenario) -> str:
    if not scenario.url.startswith("https://"):
        return escape(scenario.id)
    return f'<a href="{escape(scenario.url)}">{escape(scenario.id)}</a>'


def _live(scenario: Scenario) -> str:
    """Return a link to the live page, which has all scenarios that compute with no weights."""
    if isinstance(scenario, TinyModelScenario):
        return ""
    return f' · <a class="bug-live" href="../../index.html?bug={escape(scenario.id)}">live</a>'
