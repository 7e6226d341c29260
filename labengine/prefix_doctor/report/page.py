"""A report as one page that opens from disk: nothing is fetched, and its policy forbids every request."""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from gzip import compress
from html import escape

from labengine.prefix_doctor.report.markup import (
    CURVES_TITLE,
    STYLE,
    closing,
    findings,
    flat_curves,
    head,
    kind_words,
    look_ups,
    section,
    sums,
    table,
    tenants,
)
from labengine.prefix_doctor.report.pictures import Picture, pictures_of
from labengine.prefix_doctor.report.report import Report
from labengine.prefix_doctor.report.svg import svg_of
from labengine.record.wording import readable
from labengine.system.extras import require_extra

MAX_LOOK_UPS = 1_000
"""Most look-ups on a page: the last ones."""

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)

_LOOK = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1f2328; --edge: #8a8f98; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --ink: #e6e6e6; } }
@media print { :root { --ground: #fff; --ink: #000; color-scheme: light; }
  .filters, .modebar { display: none !important; } }
body { margin: 0; padding: 24px clamp(14px, 4vw, 48px) 48px; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
.le-doctor { margin: 0 auto; }
.filters { display: flex; flex-wrap: wrap; gap: .5em 1.2em; align-items: center; margin: .6em 0 1em; }
.filters label { display: flex; gap: .5em; align-items: center; min-width: 0; }
.filters input, .filters select { font: inherit; color: inherit; background: var(--ground); min-width: 0;
  border: 1px solid var(--edge); border-radius: 4px; padding: .25em .5em; }
[hidden] { display: none !important; }
:focus-visible { outline: 2px solid #3d85c6; outline-offset: 2px; }
.plot { height: 260px; }
.plot > svg { max-height: 100%; }
.js-plotly-plot .main-svg text { fill: var(--ink) !important; }
.js-plotly-plot .gridlayer path, .js-plotly-plot .zerolinelayer path { stroke: var(--ink) !important;
  stroke-opacity: .2 !important; }
.js-plotly-plot .hoverlayer path, .js-plotly-plot .hoverlayer rect { fill: var(--ground) !important; }
.js-plotly-plot .modebar-btn path { fill: var(--ink) !important; }
"""

_SCRIPT = """
"use strict";
const filters = document.querySelector(".filters");
const rows = [...document.querySelectorAll(".findings > li, .tenants tbody tr, .look-ups tbody tr")];
const filter = () => {
  const text = filters.elements.text.value.trim().toLowerCase(), kind = filters.elements.kind.value;
  for (const row of rows) {
    const isKind = !kind || !row.dataset.kind || row.dataset.kind === kind;
    row.hidden = !(isKind && row.textContent.toLowerCase().includes(text));
  }
  const findings = rows.filter((row) => row.dataset.kind);
  const shown = findings.filter((row) => !row.hidden).length;
  filters.querySelector("output").value = `${shown} of ${findings.length} findings shown`;
};
if (filters) {
  filters.hidden = false;
  filters.addEventListener("input", filter);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filter();
}
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll(".findings details")) one.open = true;
});
const plots = document.querySelectorAll(".plot");
const draw = async () => {
  const packed = atob(document.getElementById("plotly").textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const program = document.createElement("script");
  program.textContent = await new Response(stream).text();
  document.body.append(program);
  const figures = JSON.parse(document.getElementById("figures").textContent);
  figures.forEach(({ data, layout }, number) => {
    plots[number].replaceChildren();
    Plotly.newPlot(plots[number], data, layout, { responsive: true, displaylogo: false });
  });
};
const watch = new IntersectionObserver(
  (entries) => {
    if (!entries.some((one) => one.isIntersecting)) return;
    watch.disconnect();
    draw();
  },
  { rootMargin: "300px" },
);
for (const one of plots) watch.observe(one);
"""


def page_of(report: Report) -> str:
    """Return the page. Raises ConfigError if plotly, which draws its pictures, is not installed."""
    require_extra("lab", "the page of a report", "plotly")
    pictures = pictures_of(report)
    body = (
        head(report, "h1"),
        section("All prompt tokens", sums(report.sums)),
        section("Findings", _filters(report), findings(report)),
        section("By tenant", tenants(report)),
        section(CURVES_TITLE, flat_curves(report), _plots(pictures)),
        section("Look-ups", look_ups(report.look_ups, MAX_LOOK_UPS)),
        closing(report),
    )
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(readable(report.title))}</title><style>{_LOOK}{STYLE}</style></head><body>",
            f'<main class="le-doctor">{"".join(body)}</main>',
            _data(pictures) if pictures else "",
            f"<script>{_SCRIPT}</script></body></html>\n",
        )
    )


def _filters(report: Report) -> str:
    """Return the form that filters rows; a page without scripts does not show it."""
    if len(report.findings) < 2:
        return ""
    kinds = dict.fromkeys(one.kind for one in report.findings)
    options = "".join(f'<option value="{escape(one)}">{escape(kind_words(one))}</option>' for one in kinds)
    names = "".join(f'<option value="{escape(readable(one.tenant))}">' for one in report.by_tenant if one.tenant)
    return (
        '<form class="filters" hidden><label>Text or tenant <input name="text" type="search" list="tenants"></label>'
        f'<datalist id="tenants">{names}</datalist>'
        f'<label>Kind <select name="kind"><option value="">all</option>{options}</select></label>'
        '<output class="soft" aria-live="polite"></output></form>'
    )


def _plots(pictures: list[Picture]) -> str:
    figures = "".join(
        f'<figure><figcaption>{escape(one.title)}</figcaption><div class="plot" role="img" '
        f'aria-label="{escape(one.title)}: the numbers are below">{svg_of(one)}</div>'
        f"<details><summary>The numbers</summary>{table(one.rows)}</details></figure>"
        for one in pictures
    )
    return f'<div class="pictures">{figures}</div>' if figures else ""


def _data(pictures: list[Picture]) -> str:
    """Return the figures and plotly as script elements."""
    figures = json.dumps([one.plotly() for one in pictures]).replace("<", "\\u003c")
    return (
        f'<script type="application/json" id="figures">{figures}</script>'
        f'<script type="text/plain" id="plotly">{_packed_plotly()}</script>'
    )


@cache
def _packed_plotly() -> str:
    """Return plotly's script, compressed to a third of its size."""
    from plotly.offline import get_plotlyjs

    return b64encode(compress(get_plotlyjs().encode(), mtime=0)).decode("ascii")
