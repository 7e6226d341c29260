"""A page that needs only a browser: style, recordings and scripts in one file, and a policy that forbids all else."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from gzip import compress
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from labengine.record.files.file_access import replace_file
from labengine.record.wording import readable
from labengine_widgets.browser import css, esm

LOOK = """
:root { color-scheme: light dark; --jp-layout-color1: #fff; --jp-ui-font-color1: #212121; --jp-ui-font-color2: #616161;
  --jp-border-color1: #bdbdbd; --jp-border-color2: #e0e0e0; --jp-brand-color1: #1976d2; --jp-error-color1: #b00020;
  --jp-code-font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) { :root { --jp-layout-color1: #111; --jp-ui-font-color1: #e6e6e6;
  --jp-ui-font-color2: #a0a0a0; --jp-border-color1: #616161; --jp-border-color2: #424242; --jp-brand-color1: #64b5f6;
  --jp-error-color1: #ff8a80; } }
body { margin: 0 auto; padding: 16px; max-width: 1400px; background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1); font: 14px/1.5 system-ui, sans-serif; }
h1 { margin: 0 0 10px; font-size: 18px; overflow-wrap: anywhere; }
main { overflow-x: auto; }
noscript svg { max-width: 100%; height: auto; }
noscript pre { overflow-x: auto; }
"""

_UNPACK = """
const bytesOf = (place) => {
  const text = atob(place.textContent.trim()), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};
const unpacked = (bytes) => {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
};
window.recordings = [...document.querySelectorAll("script.recording")].map(bytesOf);
(async () => {
  const program = document.createElement("script");
  program.type = "module";
  program.textContent = await unpacked(bytesOf(document.getElementById("program")));
  document.body.append(program);
})().catch((error) => document.getElementById("lab").append(`This page needs a newer browser: ${error.message}`));
"""
"""The only script that the page has as plain text; the others are compressed to a third of their size."""

_START = """
const lab = document.getElementById("lab");
const stage = await labengine.mount(lab, recordings, JSON.parse(lab.dataset.arrangement));
stage.root.focus({ preventScroll: true });
const goThere = () => {
  const at = Number(new URLSearchParams(location.hash.slice(1)).get("at") || NaN);
  if (Number.isInteger(at)) stage.moveTo(at);
};
addEventListener("hashchange", goThere);
goThere();
"""
"""A link that ends in #at=17 leads to moment 17 (of a comparison: to its 17th caption)."""


def page(
    title: str,
    arrangement: Mapping[str, Any],
    recordings: Sequence[bytes],
    still: str,
    *,
    heading: str = "",
    intro: str = "",
    appendix: str = "",
) -> str:
    """Return the page as text.

    arrangement: what to mount, such as {"kind": "dashboard", "views": []}. recordings: its payloads as JSON.
    still: markup for a browser that runs no scripts. heading: a line above. intro, appendix: markup above and below.
    Titles and all text from prompts or models are escaped or encoded here; markup is inserted unchanged.
    """
    program = esm() + _START
    policy = _policy(_UNPACK, program)
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(readable(title))}</title><style>{LOOK}{css()}</style></head><body>",
            f"<h1>{escape(readable(heading))}</h1>" if heading else "",
            intro,
            f'<main id="lab" data-arrangement="{escape(json.dumps(arrangement))}"></main>',
            f"<noscript>{still}</noscript>",
            appendix,
            *(f'<script type="text/plain" class="recording">{_packed(data)}</script>' for data in recordings),
            f'<script type="text/plain" id="program">{_packed(program.encode())}</script>',
            f"<script>{_UNPACK}</script>",
            "</body></html>",
        )
    )


def write_page(path: str | os.PathLike[str], text: str) -> Path:
    """Write a page in one piece or not at all; returns the path. TraceError when it cannot be written."""
    replace_file(path, text.encode("utf-8", "replace"))
    return Path(path)


def _policy(*scripts: str) -> str:
    """Return the content security policy: only scripts with these hashes run; nothing is fetched or sent."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    style = "style-src 'unsafe-inline'; img-src data: blob:"
    return f"default-src 'none'; script-src {hashes}; {style}; base-uri 'none'; form-action 'none'"


def _packed(data: bytes) -> str:
    return b64encode(compress(data, mtime=0)).decode("ascii")
