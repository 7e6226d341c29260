"""The sections of a report as HTML, for a page and for a notebook. All text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from labengine.prefix_doctor.causes.finding import Cure, Example, Finding
from labengine.prefix_doctor.look_ups.look_up import CAUSES, MAX_NAME, Cause, LookUp
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.prefix_doctor.report.report import Report
from labengine.prefix_doctor.report.words import (
    answer,
    capitalized,
    cost,
    costliest,
    cure_words,
    effect,
    figure_rows,
    flat_sentence,
    how_to_show,
    is_flat,
    percent,
    rest,
    settings_line,
    tenant_rows,
)
from labengine.record.wording import counted, readable, visible

HIT, EXTERNAL = "#2a9d6f", "#7fb85c"

COLOURS: dict[Cause, str] = {
    "new": "#8a8f98",
    "short_of_a_block": "#5aa9e6",
    "tail": "#8a8f9866",
    "evicted": "#d9622b",
    "reset": "#c06c9c",
    "not_registered_yet": "#d9a62b",
    "never_registered": "#a8842c",
    "other_salt": "#8c6bc8",
    "other_replica": "#4f74c8",
    "dropped": "#3f8f8b",
    "passed_over": "#cf3a3a",
    "unknown": "repeating-linear-gradient(45deg, #8a8f98 0 2px, transparent 2px 5px)",
}
"""A background for each cause, always shown beside its words."""

MAX_BEFORE, MAX_AGAIN, MAX_DIFFERENT = 240, 600, 300
"""Most characters of an example's texts."""
MAX_SENTENCE = 1_000

CURVES_TITLE = "The same traffic with other settings, over time, and ages"

STYLE = """
.le-doctor { --soft: color-mix(in srgb, currentColor 72%, transparent);
  --hair: color-mix(in srgb, currentColor 20%, transparent); --mono: var(--jp-code-font-family, ui-monospace,
  "DejaVu Sans Mono", Menlo, Consolas, monospace); color: inherit; line-height: 1.5; max-width: 1180px;
  overflow-wrap: anywhere; }
.le-doctor h1, .le-doctor h2, .le-doctor h3 { line-height: 1.25; font-weight: 600; color: inherit; }
.le-doctor h1 { margin: 0; font-size: 1.25em; }
.le-doctor h2 { margin: 2em 0 .5em; font-size: 1.15em; }
.le-doctor h3 { margin: 1.2em 0 .4em; font-size: 1em; }
.le-doctor p { margin: .3em 0; }
.le-doctor .soft { color: var(--soft); font-size: .92em; }
.le-doctor .answer { border-left: 4px solid #2a9d6f; padding: .2em 0 .2em .9em; margin: 1em 0; font-size: 1.1em; }
.le-doctor .answer p:first-child { font-weight: 600; font-size: 1.2em; }
.le-doctor .bar { display: flex; gap: 1px; overflow: hidden; border-radius: 3px; height: 20px;
  print-color-adjust: exact; }
.le-doctor .bar > span { min-width: 1px; }
.le-doctor .swatch { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin-right: .5em;
  print-color-adjust: exact; }
.le-doctor .scroll { overflow-x: auto; }
.le-doctor table { border-collapse: collapse; margin: .5em 0; font-variant-numeric: tabular-nums; font-size: .95em; }
.le-doctor caption { text-align: left; color: var(--soft); }
.le-doctor th, .le-doctor td { padding: .2em 1.2em .2em 0; border: 0; border-bottom: 1px solid var(--hair);
  text-align: right; vertical-align: top; font-weight: normal; background: none; white-space: nowrap; }
.le-doctor thead th { color: var(--soft); }
.le-doctor table tr > :first-child, .le-doctor table tr > .why { text-align: left; white-space: normal; }
.le-doctor tbody tr > :first-child { min-width: 4.5em; }
.le-doctor ol.findings { list-style: none; margin: 0; padding: 0; border-top: 1px solid var(--hair); }
.le-doctor .findings > li { margin: 0; border-bottom: 1px solid var(--hair); break-inside: avoid; }
.le-doctor summary { cursor: pointer; }
.le-doctor .findings summary { display: grid; grid-template-columns: 1.2em minmax(0, 1fr) 8em 15em 13em; gap: 0 .8em;
  padding: .6em 0; align-items: baseline; font-variant-numeric: tabular-nums; list-style: none; }
.le-doctor .findings summary::-webkit-details-marker { display: none; }
.le-doctor .findings summary::before { content: "▸"; color: var(--soft); }
.le-doctor .findings details[open] > summary::before { content: "▾"; }
.le-doctor .findings summary:hover .title { text-decoration: underline; }
.le-doctor .title { font-weight: 600; }
.le-doctor .kind { color: var(--soft); font-weight: normal; border: 1px solid var(--hair); border-radius: 3px;
  padding: 0 .4em; font-size: .85em; white-space: nowrap; }
.le-doctor .number { text-align: right; }
.le-doctor .share { display: block; height: 5px; margin-top: 3px; border-radius: 2px; background: var(--hair); }
.le-doctor .share > span { display: block; height: 100%; border-radius: 2px; background: #d9622b;
  print-color-adjust: exact; }
.le-doctor .body { padding: 0 0 1em 2em; }
.le-doctor .sides { display: grid; grid-template-columns: 1fr 1fr; gap: .8em; }
.le-doctor .sides > div { min-width: 0; border: 1px solid var(--hair); border-radius: 4px; padding: .4em .7em .6em; }
.le-doctor .text { font: .92em/1.6 var(--mono); white-space: pre-wrap; unicode-bidi: isolate; }
.le-doctor mark { color: inherit; background: #d9622b40; border-bottom: 3px solid #d9622b; border-radius: 2px;
  print-color-adjust: exact; }
.le-doctor .again { background: #3d85c62e; border-bottom: 1px dotted #3d85c6; print-color-adjust: exact; }
.le-doctor code { font: .92em var(--mono); background: color-mix(in srgb, currentColor 8%, transparent); color: inherit;
  padding: .1em .4em; border-radius: 3px; }
.le-doctor .pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr));
  gap: 1.2em 2em; }
.le-doctor .pictures > figure { margin: 0; min-width: 0; break-inside: avoid; }
.le-doctor figcaption { font-weight: 600; }
@media (max-width: 820px) {
  .le-doctor .findings summary { grid-template-columns: 1.2em minmax(0, 1fr) auto; }
  .le-doctor .findings summary > .number { grid-column: 2 / 4; text-align: left; }
  .le-doctor .body { padding-left: 0; }
  .le-doctor .sides { grid-template-columns: 1fr; }
  .le-doctor .look-ups .tokens { display: none; }
  .le-doctor th, .le-doctor td { padding-right: .8em; }
}
"""


def head(report: Report, tag: str) -> str:
    """Return the title, the settings, and the answer. tag: of the title."""
    sentences = "".join(f"<p>{_shown(one)}</p>" for one in (*answer(report), *costliest(report)))
    title = f"<{tag}>{_shown(report.title)}</{tag}>"
    return f'{title}<p class="soft">{_shown(settings_line(report))}</p><div class="answer">{sentences}</div>'


def section(title: str, *parts: str) -> str:
    """Return a section with its title; empty if all parts are."""
    body = "".join(parts)
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def sums(found: Sums) -> str:
    """Return a bar of all tokens, and a table of the causes in words."""
    parts = [part for part in _sums_parts(found) if part[1]]
    rows = "".join(
        f'<tr><td><span class="swatch" aria-hidden="true" style="background:{colour}"></span>{escape(words)}</td>'
        f"<td>{number:,}</td><td>{found.share(number)}</td></tr>"
        for colour, number, words in parts
    )
    heads = '<tr><th scope="col">prompt tokens</th><th scope="col">number</th><th scope="col">share</th></tr>'
    return f"{_bar(parts)}<table><thead>{heads}</thead><tbody>{rows}</tbody></table>"


def findings(report: Report) -> str:
    """Return the findings as rows that open; the costliest one is open."""
    rows = "".join(_finding(one, number, report) for number, one in enumerate(report.findings, 1))
    return f'<ol class="findings">{rows}</ol>' if rows else ""


def flat_curves(report: Report) -> str:
    """Return a sentence on each setting that makes no difference, which gets no picture."""
    flat = (one for one in report.curves if one.points and is_flat(one))
    return "".join(f"<p>{escape(flat_sentence(one))}</p>" for one in flat)


def tenants(report: Report) -> str:
    """Return the table of tenants; empty for fewer than two."""
    return table(tenant_rows(report), "tenants") if len(report.by_tenant) > 1 else ""


def look_ups(found: Sequence[LookUp], most: int) -> str:
    """Return the table of the last `most` look-ups; empty without any."""
    if not found:
        return ""
    num_hidden = len(found) - most
    more = f'<p class="soft">{counted(num_hidden, "earlier look-up")}: see --json, or <code>look_ups</code>.</p>'
    rows = "".join(map(_look_up, found[-most:]))
    heads = "".join(f'<th scope="col" class="{name}">{name}</th>' for name in ("request", "step", "tokens", "why"))
    table = f'<table class="look-ups"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return more * (num_hidden > 0) + table


def _look_up(one: LookUp) -> str:
    bar = _bar(_look_up_parts(one), "width:110px;height:10px;margin-top:.4em")
    return (
        f'<tr><th scope="row" title="{_shown(one.name)}">{_shown(one.name, MAX_NAME)}</th><td>{one.step}</td>'
        f'<td class="tokens">{bar}</td><td class="why">{_shown(one.sentence)}</td></tr>'
    )


def closing(report: Report) -> str:
    """Return the closing sentences."""
    return section("Notes", *(f'<p class="soft">{_shown(one)}</p>' for one in rest(report)))


def table(rows: list[tuple[str, ...]], class_: str = "") -> str:
    """Return rows as a table that scrolls by itself where it is too wide. rows: the heads come first."""
    heads, *others = rows
    head_cells = "".join(f'<th scope="col">{_shown(one)}</th>' for one in heads)
    body = "".join(
        f'<tr><th scope="row">{_shown(name)}</th>{"".join(f"<td>{_shown(one)}</td>" for one in cells)}</tr>'
        for name, *cells in others
    )
    rows_of_table = f"<thead><tr>{head_cells}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="{class_}">{rows_of_table}</table></div>'


def _finding(finding: Finding, number: int, report: Report) -> str:
    is_open = " open" if number == 1 else ""
    return (
        f'<li data-kind="{escape(finding.kind)}"><details{is_open}>{_summary(finding, report)}'
        f'<div class="body">{"".join(_body(finding, number, report))}</div></details></li>'
    )


def _summary(finding: Finding, report: Report) -> str:
    share = finding.num_lost / max(1, report.sums.num_tokens)
    saved = "no cure played"
    if finding.cure is not None:
        saved = f"cure saves {finding.cure.num_saved:,}" if finding.cure.num_saved > 0 else "cure saves none"
    return (
        f'<summary><span><span class="title">{_shown(capitalized(finding.title))}</span> '
        f'<span class="kind">{escape(kind_words(finding.kind))}</span></span>'
        f'<span class="number">{counted(finding.num_prompts, "prompt")}</span>'
        f'<span class="number">{counted(finding.num_lost, "token")} ({percent(share)})'
        f'<span class="share" aria-hidden="true"><span style="width:{100 * min(1, share):.1f}%"></span></span></span>'
        f'<span class="number">{saved}</span></summary>'
    )


def kind_words(kind: str) -> str:
    """Return a kind of finding in words."""
    return kind.replace("_", " ")


def _body(finding: Finding, number: int, report: Report) -> Iterator[str]:
    yield f"<p>{_shown(finding.sentence)}</p>"
    if finding.where:
        yield f"<p><b>Where:</b> {_shown(finding.where)}</p>"
    yield f"<p><b>Cost:</b> {_shown(cost(finding, report))}</p>"
    yield from map(_example, finding.examples)
    if finding.examples:
        yield (
            '<p class="legend soft"><mark>Marked</mark>: the text that differs. '
            '<span class="again">Shaded</span>: the same text behind it, which is computed again.</p>'
        )
    if finding.cure is not None:
        yield from _cure(finding.cure)
    if finding.shown:
        yield f"<p><b>See it happen:</b> <code>{_shown(how_to_show(report, number))}</code></p>"


def _example(example: Example) -> str:
    place = f"At token {example.position:,}; {counted(example.num_lost, 'token')} computed again"
    before = "…" * (len(example.before) > MAX_BEFORE) + visible(example.before[-MAX_BEFORE:])
    again = f'<span class="again">{_text(example.again, MAX_AGAIN)}</span>'
    sides = "".join(
        f'<div><p class="soft"><bdi>{_shown(name)}</bdi></p><p class="text">{escape(before)}'
        f"{_different(text) if example.mine or example.its else ''}{again}</p></div>"
        for name, text in ((example.name, example.mine), (example.other, example.its))
    )
    return f'<h3>{place}</h3><div class="sides">{sides}</div>'


def _different(text: str) -> str:
    return f"<mark>{_text(text, MAX_DIFFERENT) or '<em>nothing</em>'}</mark>"


def _cure(cure: Cure) -> Iterator[str]:
    yield f"<p><b>Cure:</b> {_shown(cure_words(cure))}: {escape(effect(cure))}</p>"
    yield table([("the same traffic", "before", "after"), *figure_rows(cure.before, cure.after)])


def _shown(text: str, limit: int = MAX_SENTENCE) -> str:
    return escape(readable(text, limit))


def _text(text: str, limit: int) -> str:
    """Return a prompt's text with its line ends."""
    return escape(visible(text[:limit]) + "…" * (len(text) > limit))


Parts = Iterable[tuple[str, int, str]]
"""(colour, tokens, words) of each part of a bar."""


def _sums_parts(found: Sums) -> Parts:
    yield HIT, found.num_hit, "hit"
    yield EXTERNAL, found.num_external, "found in the external tier"
    for cause, number in found.missed.items():
        yield COLOURS[cause], number, CAUSES[cause]


def _look_up_parts(one: LookUp) -> Parts:
    yield HIT, one.num_hit, "hit"
    yield EXTERNAL, one.num_external, "found in the external tier"
    for miss in one.misses:
        yield COLOURS[miss.cause], miss.num_tokens, CAUSES[miss.cause]


def _bar(parts: Parts, size: str = "") -> str:
    """Return a bar with parts as wide as their shares of the tokens, each with a tooltip."""
    cells = "".join(
        f'<span title="{escape(f"{number:,} tokens: {words}")}" style="flex:{number} 0 0;background:{colour}"></span>'
        for colour, number, words in parts
        if number
    )
    return f'<div class="bar" aria-hidden="true" style="{size}">{cells}</div>'
