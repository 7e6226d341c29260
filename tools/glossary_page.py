"""Write docs/glossary.md from labengine/glossary.json: python -m tools.glossary_page."""

from __future__ import annotations

from pathlib import Path

from labengine.glossary import TERMS

PATH = Path("docs/glossary.md")
_HEAD = """# Glossary

This page explains the terms used on the screen. `%lab help TERM` prints an entry, and tooltips show the same sentences.
`python -m tools.glossary_page` generates the page from `labengine/glossary.json`.

| term | meaning |
|---|---|
"""


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(f"| {term} | {meaning} |\n" for term, meaning in TERMS.items())


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
