"""A scenario as a self-contained page: the report, the guided story, the verdict, and the override's source.

This module escapes all text. Comparison.export_html draws the two engines between intro and appendix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from html import escape
from os import PathLike
from pathlib import Path
from textwrap import dedent
from typing import Any

from labengine.lab import Lab
from labengine.record.violation import RULES
from labengine.scenarios.kinds import KINDS
from labengine.scenarios.report import Fact
from labengine.scenarios.texts import ScenarioTexts
from labengine.scenarios.verdict import Table, Verdict
from labengine.session.compare.comparison import Comparison
from labengine.session.reasons import method_of
from labengine.session.source_text import source_lines

STYLE = """
.bug { --bug-line: #d0d0d0; --bug-soft: #5f6368; --bug-link: #1967d2; --bug-code: #f5f5f5; max-width: 860px;
  font: 15px/1.55 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .bug { --bug-line: #4a4a4a; --bug-soft: #a6a6a6; --bug-link: #8ab4f8;
  --bug-code: #1c1c1c; } }
.bug h1 { margin: 4px 0 6px; font-size: 26px; line-height: 1.25; }
.bug h2 { margin: 28px 0 8px; font-size: 18px; }
.bug a { color: var(--bug-link); }
.bug .bug-where { margin: 0; color: var(--bug-soft); font-size: 13px; }
.bug .bug-claim { margin: 12px 0; padding-left: 12px; border-left: 3px solid var(--bug-line); }
.bug dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 16px; margin: 12px 0; }
.bug dt { color: var(--bug-soft); }
.bug dd { margin: 0; }
.bug li { margin: 3px 0; }
.bug dd ul { margin: 0; padding-left: 18px; }
.bug pre { box-sizing: border-box; width: max-content; min-width: 100%; max-width: calc(100vw - 64px);
  padding: 10px 12px; overflow-x: auto; background: var(--bug-code); border-radius: 4px; font-size: 13px; }
.bug table { margin: 8px 0 16px; border-collapse: collapse; font-variant-numeric: tabular-nums; }
.bug th, .bug td { padding: 3px 12px 3px 0; border-bottom: 1px solid var(--bug-line); font-weight: normal; }
.bug thead th { font-weight: 600; }
.bug td { text-align: right; }
@media (max-width: 560px) { .bug dl { grid-template-columns: 1fr; } .bug dd { margin-bottom: 6px; } }
"""


def export(
    scenario: ScenarioTexts, verdict: Verdict, comparison: Comparison, path: str | PathLike[str], home: str = ""
) -> Path:
    """Write the page of a scenario, with its broken and fixed sides played to the end; return its path.

    home: URL of a list of scenarios, for a link.
    """
    left, right = comparison.sides
    assert isinstance(left, Lab) and isinstance(right, Lab)
    intro = intro_of(scenario, verdict, home)
    appendix = appendix_of(scenario, verdict, _sources(scenario, left, right))
    return comparison.export_html(path, f"{scenario.id}  {scenario.title}", intro=intro, appendix=appendix)


def intro_of(scenario: ScenarioTexts, verdict: Verdict, home: str = "") -> str:
    """Return the markup above the two engines: the report, the defect, the conclusion, and each side's decision."""
    place = [f'<a href="{escape(home)}">All bugs</a>'] if home else []
    place.append(escape(scenario.engine))
    if scenario.kind in KINDS:
        place.append(f"{escape(scenario.kind)}: {escape(KINDS[scenario.kind])}")
    sides = zip(("Left", "Right"), scenario.columns[:2], scenario.roles, strict=True)
    facts = [
        *_report(scenario, verdict),
        ("What breaks here", escape(scenario.breaks)),
        ("How it is seen", _seen(scenario)),
        ("Reproduced", f"<strong>{escape(_reproduction(verdict))}</strong>"),
        *(
            (side, f"<b>{escape(column.name)}</b>, {escape(role)}. {escape(column.says)}")
            for side, column, role in sides
        ),
    ]
    return (
        f'<style>{STYLE}</style><header class="bug"><p class="bug-where">{" · ".join(place)}</p>'
        f'<h1>{escape(scenario.title)}</h1><p class="bug-claim">{escape(scenario.claim)}</p>{_pairs(facts)}'
        "<h2>Step through it</h2><p>Both engines get the same requests: A, B, C ... are the requests 0, 1, 2 ... "
        "of the checks. <b>n</b> goes to the next sentence of the story, <b>b</b> to the one before; <b>?</b> lists "
        "the other keys.</p></header>"
    )


def _link(url: str) -> str:
    return f'<a href="{escape(url)}">{escape(url)}</a>'


def prose(text: str) -> str:
    """Convert a sentence to markup; text between backticks becomes code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _pairs(facts: Iterable[Fact]) -> str:
    return f"<dl>{''.join(f'<dt>{name}</dt><dd>{text}</dd>' for name, text in facts)}</dl>"


def _report(scenario: ScenarioTexts, verdict: Verdict) -> Iterator[Fact]:
    """Yield the report and the conclusion on its claim as markup; nothing for a user's own workload."""
    if scenario.report is not None:
        label, text = next(scenario.report.facts())
        yield label, f"{prose(text)} {_link(scenario.report.url)}"
        yield "The claim", f"<strong>{prose(verdict.conclusion.sentence)}</strong>"


def _read(scenario: ScenarioTexts, verdict: Verdict) -> str:
    """Return the report's other facts and the evidence in upstream's code, as markup."""
    if scenario.report is None:
        return ""
    _, *facts = scenario.report.facts()
    return _pairs((label, prose(text)) for label, text in (*facts, *verdict.conclusion.facts()))


def _reproduction(verdict: Verdict) -> str:
    return verdict.reproduction("the left engine", "the right one")


def _seen(scenario: ScenarioTexts) -> str:
    rules = "".join(f"<li><b>{escape(rule)}</b>: {escape(RULES[rule])}</li>" for rule in scenario.seen_by)
    return f"The checks find these rules broken:<ul>{rules}</ul>" if rules else escape(scenario.how_seen)


def appendix_of(scenario: ScenarioTexts, verdict: Verdict, sources: str) -> str:
    """Return the markup below the two engines: the story in words, the verdict, the source, and commands to run it.

    sources: markup with the code that differs between the two sides.
    """
    story = "".join(f"<li>{escape(stop.sentence)}</li>" for stop in scenario.guide)
    parts = [
        ("The story in words", f"<ol>{story}</ol>" if story else _list(scenario.sentences)),
        ("The verdict", _verdict(scenario, verdict)),
        ("Versions and sources", _read(scenario, verdict)),
        ("Further experiments", "".join(_table(one.table()) for one in scenario.experiments.values())),
        ("The code", sources),
        ("Run it", f"<pre>{escape(_commands(scenario))}</pre>"),
    ]
    return f'<section class="bug">{"".join(f"<h2>{name}</h2>{text}" for name, text in parts if text)}</section>'


def _verdict(scenario: ScenarioTexts, verdict: Verdict) -> str:
    first = verdict.first_wrong_event
    wrong = f"<p>{escape(first.line)}</p>" if first is not None else ""
    others = _list(f"{column.name}: {column.says}" for column in scenario.columns[2:])
    judgement = f"{_reproduction(verdict)} {verdict.conclusion.sentence}"
    return (
        f"<p><strong>{prose(judgement)}</strong></p>{_table(scenario.table())}{others}{wrong}{_list(verdict.findings)}"
    )


def _table(table: Table) -> str:
    return f'<p class="bug-where">{escape(table.title)}</p>{Table("", table.columns)._repr_html_()}'


def _list(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _commands(scenario: ScenarioTexts) -> str:
    return (
        f"%lab bug {scenario.id}              in a notebook, after %load_ext labengine\n"
        f"python -m labengine bug {scenario.id}\n"
        f'labengine.bug("{scenario.id}").compare()'
    )


# -- the code that differs between the sides ---------------------------------------------------------------------------


def _sources(scenario: ScenarioTexts, left: Lab, right: Lab) -> str:
    """Return the classes that only one side has, each with the other side's counterpart."""
    names = (scenario.columns[0].name, scenario.columns[1].name)
    broken, fixed = _classes(left), _classes(right)
    shown: dict[type, str] = {}
    for role in broken | fixed:
        one, other = broken.get(role, object), fixed.get(role, object)
        own, others = _only_in(one, other), _only_in(other, one)
        shown |= {cls: _source(names, cls, other) for cls in own}
        shown |= {cls: _source(names[::-1], cls, one) for cls in others if not own}
    return "".join(shown.values())


def _only_in(cls: type, other: type) -> list[type]:
    return [base for base in cls.__mro__[:-1] if base not in other.__mro__ and base.__module__.startswith("labengine.")]


def _classes(lab: Lab) -> dict[str, type]:
    """Return the classes that take a side's decisions, by part."""
    found = {field.name: cls for field in fields(lab.parts) if isinstance(cls := getattr(lab.parts, field.name), type)}
    if lab.external is not None:
        found["external"] = type(lab.external)
    runner: Any = type(lab.session.model.runner)
    if hasattr(runner, "static_step"):  # a model with weights
        found |= {"runner": runner, "static step": runner.static_step, "attention": runner.attention or object}
    return found


def _source(names: tuple[str, str], cls: type, other: type) -> str:
    """Return a class's source, and the other side's definitions of its methods. names: its column's and the other's."""
    methods = (method_of(other, name, other.__name__) for name in vars(cls) if not name.startswith("_"))
    others = "".join(
        _code(f"{names[1]}: {method.owner.__name__} in {method.owner.__module__}", method.source)
        for method in methods
        if method is not None
    )
    return _code(f"{names[0]}: {cls.__module__}", dedent("".join(source_lines(cls)[0]))) + others


def _code(heading: str, text: str) -> str:
    return f'<p class="bug-where">{escape(heading)}</p><pre>{escape(text)}</pre>'
