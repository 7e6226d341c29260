"""The files of the page: a document, a style sheet and a script. Nothing else is fetched, from nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from labengine.record.wording import readable
from labengine_widgets.browser import css, esm
from labengine_widgets.pages.html_page import LOOK

POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_START = """
labengine.serve(document.getElementById("lab"));
"""

_STYLE = """
body:has(.served-ranks) { max-width: none; }
.served-ranks { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(660px, 100%), 1fr)); gap: 12px; }
.served-ranks > * { min-width: 0; }
.served .labengine { height: max(670px, calc(100vh - 32px)); }
.served .labengine.le-is-drawn { height: max(930px, calc(100vh - 32px)); }
.served-refusal { color: var(--jp-error-color1); }
@media (max-width: 480px) { body { padding: 4px; } }
"""


def document(titles: Sequence[str]) -> bytes:
    """Return the HTML of a page with a dashboard for each title."""
    title = escape(readable(f"labengine: {titles[0]}" + (f" and {len(titles) - 1} more" if titles[1:] else "")))
    lines = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">',
        f'<title>{title}</title><link rel="stylesheet" href="page.css"></head><body>',
        f'<main id="lab" class="served{" served-ranks" if titles[1:] else ""}" data-number="{len(titles)}"></main>',
        "<noscript>This page follows a running vLLM: it needs JavaScript.</noscript>",
        '<script type="module" src="page.mjs"></script></body></html>',
    )
    return "\n".join(lines).encode("utf-8", "replace")


def style() -> bytes:
    """Return the style sheet."""
    return f"{LOOK}{_STYLE}{css()}".encode()


def script() -> bytes:
    """Return the browser half, which begins by itself."""
    return (esm() + _START).encode()
