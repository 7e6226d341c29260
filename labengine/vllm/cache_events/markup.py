"""The cache-only view as markup: a table of prefixes, without scripts. All text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

MAX_INDENT = 12
_HEADS = ("prefix", "length", "where", "stored (UTC)", "removed", "hits")

STYLE = """
.le-kv { --le-ink: var(--jp-ui-font-color1, var(--vscode-editor-foreground, #222));
  --le-soft: var(--jp-ui-font-color2, var(--vscode-descriptionForeground, #666));
  --le-hair: var(--jp-border-color2, var(--vscode-panel-border, #ddd));
  --le-accent: var(--jp-brand-color1, var(--vscode-focusBorder, #1976d2)); --le-warn: #b45309;
  color: var(--le-ink); font: 13px/1.4 var(--jp-ui-font-family, system-ui, sans-serif); overflow-x: auto; }
.le-kv h2 { margin: 0 0 2px; font-size: 14px; overflow-wrap: anywhere; }
.le-kv p, .le-kv ul { margin: 2px 0 8px; color: var(--le-soft); }
.le-kv ul.le-kv-notes { padding-left: 18px; border-left: 3px solid var(--le-warn); color: var(--le-ink); }
.le-kv li { overflow-wrap: anywhere; }
.le-kv table { border-collapse: collapse; width: 100%; min-width: 760px; margin: 0 0 10px; color: inherit; }
.le-kv th { text-align: left; font-weight: 600; color: var(--le-soft); border-bottom: 1px solid var(--le-hair);
  padding: 2px 8px 2px 0; white-space: nowrap; }
.le-kv td { text-align: left; vertical-align: top; border-bottom: 1px solid var(--le-hair); padding: 3px 8px 3px 0; }
.le-kv td.le-kv-number { font-variant-numeric: tabular-nums; }
.le-kv td:first-child { width: 38%; min-width: 220px; }
.le-kv .le-kv-text { font-family: var(--jp-code-font-family, var(--vscode-editor-font-family, monospace));
  font-size: 12px; overflow-wrap: anywhere; border-left: 3px solid var(--le-accent); padding-left: 7px;
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.le-kv tr.le-kv-gone .le-kv-text { border-left: 3px dashed var(--le-soft); color: var(--le-soft); }
.le-kv tr.le-kv-unknown .le-kv-text { border-left: 3px dotted var(--le-warn); }
.le-kv .le-kv-place { display: inline-block; white-space: nowrap; border: 1px solid var(--le-accent);
  border-radius: 3px; padding: 0 5px; margin: 0 4px 2px 0; }
.le-kv .le-kv-place.le-kv-gone { border-style: dashed; border-color: var(--le-soft); color: var(--le-soft); }
.le-kv .le-kv-place.le-kv-unknown { border-style: dotted; border-color: var(--le-warn); }
.le-kv em { font-style: italic; color: var(--le-soft); }
@media (prefers-color-scheme: dark) { .le-kv { --le-warn: #f59e0b; } }
[data-jp-theme-light="false"] .le-kv, .vscode-dark .le-kv { --le-warn: #f59e0b; }
[data-jp-theme-light="true"] .le-kv, .vscode-light .le-kv { --le-warn: #b45309; }
@media print { .le-kv .le-kv-text { display: block; } .le-kv tr { break-inside: avoid; } }
"""


def markup(document: Mapping[str, Any]) -> str:
    """Return the view as an element that includes its style."""
    return f'<div class="le-kv"><style>{STYLE}</style>{"".join(_parts(document))}</div>'


def page(document: Mapping[str, Any]) -> str:
    """Return the view as a page without scripts or requests."""
    from labengine_widgets.pages.html_page import LOOK

    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(document['title'])}</title><style>{LOOK}</style></head><body>",
            f"<main>{markup(document)}</main>",
            "</body></html>",
        )
    )


def _parts(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>{escape(document['title'])}</h2>"
    yield f"<p>{document['num_batches']:,} batches, the newest of {escape(document['newest'])}</p>"
    if document["notes"]:
        yield _listed(document["notes"], "le-kv-notes")
    yield _table(
        ("cache", "blocks cached", "tokens cached", "blocks unknown", "blocks gone"),
        map(_place_row, document["places"]),
    )
    yield _table(_HEADS, map(_chain_row, document["chains"]))
    left = document["num_chains"] - len(document["chains"])
    if left:
        yield f"<p>and {left:,} more rows</p>"
    yield "<p>Unknown, because KV events do not contain it:</p>"
    yield _listed([f"{subject}: {what}" for subject, what in document["unknown"].items()], "")


def _listed(texts: Iterable[str], class_: str) -> str:
    return f'<ul class="{class_}">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'


def _table(heads: Iterable[str], rows: Iterable[str]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _place_row(place: Mapping[str, Any]) -> str:
    tokens = "unknown" if place["tokens"] is None else f"{place['tokens']:,}"
    numbers = (f"{place['cached']:,}", tokens, f"{place['unknown']:,}", f"{place['gone']:,}")
    return f"<tr><td>{escape(_name(place))}</td>{''.join(map(_number, numbers))}</tr>"


def _chain_row(chain: Mapping[str, Any]) -> str:
    indent = f"padding-left:{min(chain['depth'], MAX_INDENT) * 18}px"
    before = f"<em>{escape(chain['before'])} </em>" if chain["before"] else ""
    variant = f" <em>{escape(chain['variant'])}</em>" if chain["variant"] else ""
    text = f'<span class="le-kv-text">{before}{escape(chain["text"])}{variant}</span>'
    where = "".join(map(_chip, chain["where"])) or "<em>unknown</em>"
    cells = (chain["stored"], chain["removed"], chain["hits"])
    return (
        f'<tr class="le-kv-{escape(chain["presence"])}"><td style="{indent}">{text}</td>'
        f"{_number(chain['length'])}<td>{where}</td>{''.join(map(_number, cells))}</tr>"
    )


def _chip(place: Mapping[str, Any]) -> str:
    state = escape(place["presence"])
    said = "" if state == "cached" else f" {state}"
    return f'<span class="le-kv-place le-kv-{state}">{escape(_name(place))}{said}</span>'


def _name(place: Mapping[str, Any]) -> str:
    return " · ".join(part for part in (place["rank"], place["tier"], place["group"]) if part)


def _number(text: str) -> str:
    return f'<td class="le-kv-number">{escape(text)}</td>'
