"""A report in a terminal: the answer first, in at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterator

from labengine.prefix_doctor.causes.finding import Example, Finding
from labengine.prefix_doctor.look_ups.look_up import MAX_NAME
from labengine.prefix_doctor.report.columns import WIDTH, cut, cut_before, padded, table, width_of, wrapped
from labengine.prefix_doctor.report.report import Report
from labengine.prefix_doctor.report.words import (
    answer,
    capitalized,
    cost,
    cure_words,
    curve_rows,
    curve_title,
    effect,
    flat_sentence,
    how_to_show,
    is_flat,
    rest,
    settings_line,
    tenant_rows,
)
from labengine.record.wording import counted, readable

MAX_LOOK_UPS = 30
"""Most look-ups printed."""
MAX_IN_FULL = 5
"""Findings printed with sentence, example and cure; of the others, one line each."""
MAX_TENANTS = 8
MAX_TEXT = 400
"""Most characters of a sentence with text from prompts."""
BEFORE, DIFFERENT = 28, 20
"""Most columns of an example's text before the divergence, and of the text that differs."""


def text_of(report: Report) -> str:
    """Return the report as printed in a terminal."""
    parts = (_head, _findings, _sums, _curves, _tenants, _look_ups, _notes)
    return "\n\n".join("\n".join(line.rstrip() for line in lines) for part in parts if (lines := [*part(report)]))


def _head(report: Report) -> Iterator[str]:
    for line in (report.title, settings_line(report)):
        yield from wrapped(readable(line, MAX_TEXT))
    yield ""
    for sentence in answer(report):
        yield from wrapped(readable(sentence, MAX_TEXT), others="  ")


def _findings(report: Report) -> Iterator[str]:
    yield from ["Causes, costliest first:"] * bool(report.findings)
    for number, finding in enumerate(report.findings[:MAX_IN_FULL], 1):
        yield ""
        yield from _finding(finding, number, report)
    for number, finding in enumerate(report.findings[MAX_IN_FULL:], MAX_IN_FULL + 1):
        yield from [""] * (number == MAX_IN_FULL + 1)
        yield from wrapped(_title(finding, report), f"{number}. ")


def _finding(finding: Finding, number: int, report: Report) -> Iterator[str]:
    mark = f"{number}. "
    indent = " " * len(mark)
    yield from wrapped(_title(finding, report), mark)
    yield from wrapped(readable(finding.sentence, MAX_TEXT), indent)
    if finding.where:
        yield from wrapped(readable(finding.where, MAX_TEXT), f"{indent}Where: ")
    for example in finding.examples[:1]:
        yield from example_lines(example, f"{indent}  ")
    if finding.cure is not None:
        yield from wrapped(f"{readable(cure_words(finding.cure), MAX_TEXT)}:", f"{indent}Cure: ")
        yield from wrapped(effect(finding.cure), f"{indent}      ")
    if finding.shown:
        yield from wrapped(how_to_show(report, number), f"{indent}See it happen: ")


def _title(finding: Finding, report: Report) -> str:
    title = capitalized(readable(finding.title))
    return f"{title}, in {counted(finding.num_prompts, 'prompt')}: {cost(finding, report)}"


def example_lines(example: Example, indent: str) -> Iterator[str]:
    """Yield two prompts, one above the other, with the different text between bars and marked below."""
    names = [cut(readable(one), MAX_NAME) for one in (example.name, example.other)]
    begin = indent + " " * (max(map(width_of, names)) + 2)
    before = cut_before(readable(example.before[-MAX_TEXT:], MAX_TEXT), BEFORE)
    texts = [cut(readable(one, MAX_TEXT), DIFFERENT) for one in (example.mine, example.its)]
    for name, text in zip(names, texts, strict=True):
        line = f"{indent}{padded(name, len(begin) - len(indent))}{before}│{text}{'│' * any(texts)}"
        yield line + cut(readable(example.again, MAX_TEXT), WIDTH - width_of(line))
    yield begin + " " * (width_of(before) + 1) + "^" * max(1, *map(width_of, texts))


def _sums(report: Report) -> Iterator[str]:
    sums = report.sums
    yield f"All {counted(sums.num_tokens, 'prompt token')}:"
    for words, number in sums.rows:
        yield from wrapped(words, f"{number:>14,}  {sums.share(number):>7}  ")


def _curves(report: Report) -> Iterator[str]:
    for number, curve in enumerate(one for one in report.curves if one.points):
        yield from [""] * (number > 0)
        if is_flat(curve):
            yield from wrapped(flat_sentence(curve))
            continue
        yield f"{curve_title(curve)}:"
        yield from table(curve_rows(curve))


def _tenants(report: Report) -> Iterator[str]:
    if len(report.by_tenant) < 2:
        return
    yield "Tenants that lost the most tokens:"
    heads, *most = tenant_rows(report)
    rows = [heads, *most[:MAX_TENANTS]]
    for numbers, (name, *_) in zip(table([row[1:] for row in rows]), rows, strict=True):
        yield f"{numbers}  {cut(readable(name), WIDTH // 2)}"


def _look_ups(report: Report) -> Iterator[str]:
    found = report.look_ups
    if len(found) > MAX_LOOK_UPS:
        yield from wrapped(f"{counted(len(found), 'look-up')}: too many to print; --json has them all.")
        return
    names = [cut(readable(one.name), MAX_NAME) for one in found]
    width = max(map(width_of, names), default=0)
    for name, one in zip(names, found, strict=True):
        yield from wrapped(readable(one.sentence, MAX_TEXT), f"{padded(name, width)}  step {one.step:<5} ")


def _notes(report: Report) -> Iterator[str]:
    for note in rest(report):
        yield from wrapped(readable(note, MAX_TEXT))
