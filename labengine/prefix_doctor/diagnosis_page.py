"""A diagnosis as HTML in a notebook with a light or dark background: text takes the page's colour."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from labengine.prefix_doctor.look_ups.alike import Alike, others_sentence
from labengine.prefix_doctor.look_ups.look_up import CAUSES, MAX_NAME, LookUp
from labengine.prefix_doctor.look_ups.prefixes import LostPrefix
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.record.wording import counted, listed, readable

HIT, EXTERNAL = "#2a9d6f", "#7fb85c"

COLOURS = {
    "new": "#8a8f98",
    "short_of_a_block": "#5aa9e6",
    "tail": "#8a8f9866",
    "evicted": "#d9622b",
    "reset": "#c06c9c",
    "not_registered_yet": "#d9a62b",
    "never_registered": "#a8842c",
    "other_salt": "#8c6bc8",
    "dropped": "#3f8f8b",
    "passed_over": "#cf3a3a",
    "unknown": "repeating-linear-gradient(45deg, #8a8f98 0 2px, transparent 2px 5px)",
}
"""A background for each cause, always shown beside its words."""

_LEFT = 'style="text-align:left;vertical-align:top"'
_NAME = 'style="text-align:left;vertical-align:top;white-space:nowrap"'
_RIGHT = 'style="text-align:right;vertical-align:top;white-space:nowrap"'


def html_of(title: str, sentences: Iterable[str], *parts: str) -> str:
    """Return a page's title and sentences, escaped, with HTML parts below them."""
    head = "<br>".join([f"<b>{escape(title)}</b>", *map(escape, filter(None, sentences))])
    return f'<div style="max-width:1100px"><p>{head}</p>{"".join(parts)}</div>'


def html_of_sums(sums: Sums) -> str:
    """Return a bar of all tokens, and a table of the causes in words."""
    rows = "".join(
        f"<tr><td {_LEFT}>{_swatch(colour)}{escape(words)}</td><td {_RIGHT}>{num_tokens:,}</td>"
        f"<td {_RIGHT}>{sums.share(num_tokens)}</td></tr>"
        for colour, num_tokens, words in _sums_parts(sums)
        if num_tokens
    )
    head = f"<tr><th {_LEFT}>prompt tokens</th><th {_RIGHT}>number</th><th {_RIGHT}>share</th></tr>"
    bar = _bar(_sums_parts(sums), "max-width:640px;height:16px")
    return f"{bar}<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def html_of_prefixes(prefixes: Iterable[LostPrefix]) -> str:
    """Return the table of the prefixes that would have saved most; empty without one."""
    rows = "".join(
        f"<tr><td {_RIGHT}>{one.num_saved:,}</td><td {_RIGHT}>{one.num_tokens:,}</td>"
        f"<td {_RIGHT}>{one.num_blocks:,}</td>"
        f"<td {_LEFT}>{escape(listed(one.names))}</td><td {_LEFT}>{escape(one.text)}</td></tr>"
        for one in prefixes
    )
    if not rows:
        return ""
    head = "".join(f"<th {_RIGHT}>{text}</th>" for text in ("tokens saved", "its tokens", "its blocks"))
    head += f"<th {_LEFT}>requests</th><th {_LEFT}>text</th>"
    title = "<p><b>Prefixes that would have saved the most, had they stayed cached</b></p>"
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def html_of_look_ups(shown: Iterable[Alike], num_hidden: int) -> str:
    """Return the table of the groups of look-ups, and the number of look-ups left out."""
    rows = "".join(
        f'<tr><td {_NAME} title="{escape(one.name)}">{escape(readable(one.name, MAX_NAME))}</td>'
        f"<td {_RIGHT}>{one.step}</td>"
        f"<td {_LEFT}>{_bar(_look_up_parts(one), 'width:110px;height:10px;margin-top:4px')}</td>"
        f"<td {_LEFT}>{'<br>'.join(map(escape, filter(None, (one.sentence, others))))}</td></tr>"
        for one, others in ((alike[-1], others_sentence(alike)) for alike in shown)
    )
    head = f"<tr><th {_LEFT}>request</th><th {_RIGHT}>step</th><th {_LEFT}>tokens</th><th {_LEFT}>why</th></tr>"
    more = f"<p>{counted(num_hidden, 'other look-up')}: see <code>look_ups</code>.</p>" if num_hidden else ""
    return f"<p><b>Look-ups</b></p><table><thead>{head}</thead><tbody>{rows}</tbody></table>{more}"


Parts = Iterable[tuple[str, int, str]]
"""(colour, tokens, words) of each part of a bar."""


def _sums_parts(sums: Sums) -> Parts:
    yield HIT, sums.num_hit, "hit"
    yield EXTERNAL, sums.num_external, "found in the external tier"
    for cause, num_tokens in sums.missed.items():
        yield COLOURS[cause], num_tokens, CAUSES[cause]


def _look_up_parts(one: LookUp) -> Parts:
    yield HIT, one.num_hit, "hit"
    yield EXTERNAL, one.num_external, "found in the external tier"
    for miss in one.misses:
        yield COLOURS[miss.cause], miss.num_tokens, CAUSES[miss.cause]


def _bar(parts: Parts, size: str) -> str:
    """Return a bar with parts as wide as their shares of the tokens, each with a tooltip."""
    cells = "".join(
        f'<span title="{escape(f"{num_tokens:,} tokens: {words}")}" '
        f'style="flex:{num_tokens} 0 0;min-width:1px;background:{colour}"></span>'
        for colour, num_tokens, words in parts
        if num_tokens
    )
    return f'<div aria-hidden="true" style="display:flex;{size};overflow:hidden;border-radius:2px">{cells}</div>'


def _swatch(colour: str) -> str:
    style = f"display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px;background:{colour}"
    return f'<span aria-hidden="true" style="{style}"></span>'
