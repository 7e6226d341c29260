"""The gallery of bugs: one page that lists all scenarios, and a page for each with both engines to scrub."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from labengine.scenarios.gallery import file_name
from labengine.scenarios.kinds import KINDS
from labengine.scenarios.scenario import Scenario
from labengine.scenarios.tiny_model import TinyModelScenario
from labengine.scenarios.verdict import Verdict

INTRO = """\
# Bugs that run

This page lists {number} upstream reports about KV caches. One override of labengine's code reproduces each report, and
a verdict judges it: the fault here, the evidence in upstream's own code, and whether the claim follows. The title leads
to a page with both engines side by side, to scrub; *live* opens the same two engines in
<a href="../../index.html">the live lab</a>, where you can step them. In a notebook, `%lab bug ID` does the same.
[Your own bug](../your_bug.md) takes five minutes.
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
    report = "" if scenario.report is None else " ".join(f"{label}: {text}" for label, text in scenario.report.facts())
    return (
        f'<article id="{escape(scenario.id)}"><h3><a href="{page}">{escape(scenario.title)}</a></h3>'
        f'<p class="bug-facts">{facts}</p>'
        f"<p>{escape(scenario.claim)}</p>"
        f'<p class="bug-verdict">{escape(judged(verdict))} {escape(scenario.how_seen)}</p>'
        f'<p class="bug-facts">{escape(report)}</p></article>'
    )


def judged(verdict: Verdict) -> str:
    """Return the fault here, the evidence upstream, and the conclusion on the claim, in words for a list."""
    here = verdict.reproduction("the override", "the fix")
    conclusion = verdict.conclusion
    return f"{here} Upstream's own code: {conclusion.upstream} {conclusion.sentence}"


def _report(scenario: Scenario) -> str:
    if scenario.report is None:
        return escape(scenario.id)
    return f'<a href="{escape(scenario.report.url)}">{escape(scenario.id)}</a>'


def _live(scenario: Scenario) -> str:
    """Return a link to the live page, which has all scenarios without weights."""
    if isinstance(scenario, TinyModelScenario):
        return ""
    return f' · <a class="bug-live" href="../../index.html?bug={escape(scenario.id)}">live</a>'
