"""Check a folder of pages, python -m tools.site.links FOLDER: links work, and nothing comes from another host."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "embed": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "object": ("data",),
    "input": ("src",),
}
"""Attributes whose addresses a browser fetches by itself."""
FETCHED_RELATIONS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "manifest"}
"""Relations of a <link> that a browser follows by itself."""
INLINE = ("data", "blob", "about", "javascript", "mailto")
STYLE_ADDRESS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
BROWSED = ("a", "area")


@dataclass
class Page(HTMLParser):
    """The names in one HTML file: its anchors, links to follow, and fetched addresses."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    is_style: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the names in a tag."""
        named = {name: value or "" for name, value in attrs}
        self.is_style = tag == "style"
        self.anchors |= {named[name] for name in ("id", "name") if name in named}
        if tag in BROWSED and "href" in named:
            self.links.append(named["href"])
        if tag == "link" and FETCHED_RELATIONS & set(named.get("rel", "").lower().split()):
            self.fetched.append(named.get("href", ""))
        for name in FETCHED.get(tag, ()):
            if name in named:
                self.fetched += addresses_in(name, named[name])
        self.fetched += in_style(named.get("style", ""))

    def handle_data(self, data: str) -> None:
        """Record the addresses that an inline style sheet fetches."""
        if self.is_style:
            self.fetched += in_style(data)
            self.is_style = False


def addresses_in(attribute: str, value: str) -> list[str]:
    """Return the addresses of an attribute; a srcset has several, each with a width."""
    if attribute != "srcset":
        return [value.strip()]
    return [part.split()[0] for part in value.split(",") if part.strip()]


def in_style(text: str) -> list[str]:
    """Return the addresses that a style sheet fetches."""
    return [one or other for one, other in STYLE_ADDRESS.findall(text)]


@cache
def read(path: Path) -> Page:
    """Return a page's names."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def wrong_in(site: Path) -> list[str]:
    """Return the faults in a folder of pages, one line each."""
    read.cache_clear()
    root = site.resolve()
    found = []
    for page in sorted(root.rglob("*.html")):
        found += [f"{page.relative_to(root)}: {wrong}" for wrong in _page(page, root)]
    for sheet in sorted(root.rglob("*.css")):
        fetched = in_style(sheet.read_text(encoding="utf-8"))
        found += [f"{sheet.relative_to(root)}: {wrong}" for wrong in _fetched(fetched, sheet, root)]
    return found


def _page(path: Path, root: Path) -> Iterator[str]:
    page = read(path)
    yield from _fetched(page.fetched, path, root)
    for link in page.links:
        address = urlsplit(link)
        if not (address.scheme or address.netloc):
            yield from _broken(link, path, root)


def _fetched(addresses: list[str], path: Path, root: Path) -> Iterator[str]:
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme in INLINE:
            continue
        if parts.scheme or parts.netloc:
            yield f"fetches {address[:120]} from another host"
        else:
            yield from _broken(address, path, root)


def _broken(link: str, path: Path, root: Path) -> Iterator[str]:
    """Yield why a link within the site is broken, if it is."""
    parts = urlsplit(link)
    if parts.path.startswith("/"):
        yield f"{link} begins at the host's root, but the site may be in a folder"
        return
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_relative_to(root) or not target.is_file():
        yield f"{link} leads nowhere"
    elif parts.fragment and target.suffix == ".html" and not _has_anchor(target, unquote(parts.fragment)):
        yield f"{link} names a missing anchor"


def _has_anchor(page: Path, fragment: str) -> bool:
    """Return True for an anchor of the page, or a fragment name=value, which the page's script reads."""
    return "=" in fragment or fragment in read(page).anchors


def main(folder: str) -> None:
    """Print the faults, and exit with status 1 if there are any."""
    found = wrong_in(Path(folder))
    print("\n".join(found) or f"{folder}: all links work, and nothing is fetched from another host")
    sys.exit(bool(found))


if __name__ == "__main__":
    main(*sys.argv[1:] or ["site"])
