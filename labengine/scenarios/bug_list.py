"""A list of scenarios that prints as a table: the report, the defect, and the checks that see it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labengine.scenarios.scenario import Scenario

_WIDTH = 100
_HEADINGS = ("id", "title", "kind", "what breaks", "how it is seen")


class BugList(list["Scenario"]):
    """Scenarios in the order of their ids. A terminal prints text; a notebook shows a table."""

    def __init__(self, scenarios: Iterable[Scenario] = ()) -> None:
        super().__init__(scenarios)

    def __repr__(self) -> str:
        return "\n\n".join(map(_text, self)) or "no scenarios"

    def _repr_html_(self) -> str:
        cells = "".join(f'<th style="text-align:left">{heading}</th>' for heading in _HEADINGS)
        rows = "".join(f"<tr>{_html_cells(scenario)}</tr>" for scenario in self)
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"


def _text(scenario: Scenario) -> str:
    lines = (scenario.breaks, scenario.how_seen)
    indented = (fill(line, _WIDTH, initial_indent="    ", subsequent_indent="    ") for line in lines)
    return "\n".join([f"{scenario.id}  {scenario.title} ({scenario.kind})", *indented])


def _html_cells(scenario: Scenario) -> str:
    id = escape(scenario.id)
    link = id if scenario.report is None else f'<a href="{escape(scenario.report.url)}">{id}</a>'
    others = map(escape, (scenario.title, scenario.kind, scenario.breaks, scenario.how_seen))
    return "".join(
        f'<td style="text-align:left;vertical-align:top">{cell}</td>'
        for cell in (f'<span style="white-space:nowrap">{link}</span>', *others)
    )
