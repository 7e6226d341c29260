"""The lab of a web page, in headless Chromium, from a static server on this machine: how soon, and how much.

    python benchmarks/live_page.py [--rounds 5] [--site FOLDER]

picture  seconds from the navigation to the front's question with its picture on the screen: it can be answered.
live     seconds until Python is there, and a lab can be opened; each round has an empty cache.
kernel   seconds to a notebook in JupyterLite (lite/) whose kernel can run cells: 05_late_merge.
cells    seconds to its first picture with a lab behind it, all cells run at once as soon as the kernel is there.
files    bytes as they lie there, and gzipped: what a host sends that compresses.

Without --site the site is made first. Medians of the rounds, and the quickest one; what others took of the cores in
the two seconds before is printed with them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from gzip import compress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from machine import facts, headline, listening_for_noise  # noqa: E402
from playwright.sync_api import Browser  # noqa: E402

from browser.chromium import launched, new_context  # noqa: E402
from browser.static_server import served  # noqa: E402
from tools.site import lite  # noqa: E402
from tools.site.live_page import build  # noqa: E402

WATCH = """
window.times = {};
new MutationObserver(() => {
  const isThere = { picture: "[data-blocks]:enabled", live: "#scenario:enabled" };
  for (const [name, selector] of Object.entries(isThere))
    if (document.querySelector(selector)) requestAnimationFrame(() => { times[name] ??= performance.now() / 1000; });
}).observe(document, { subtree: true, childList: true, attributes: true, attributeFilter: ["disabled"] });
"""


def times(browser: Browser, address: str) -> tuple[float, float]:
    """Seconds to the picture, and to Python."""
    with new_context(browser, viewport={"width": 1440, "height": 1000}) as context:
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(address)
        page.wait_for_function("() => window.times.live && window.times.picture")
        found = page.evaluate("() => window.times")
        return found["picture"], found["live"]


KERNEL_IS_READY = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


def notebook_times(browser: Browser, address: str) -> tuple[float, float]:
    """Seconds to the kernel in JupyterLite, and to the first picture."""
    with new_context(browser, viewport={"width": 1440, "height": 1000}) as context:
        page = context.new_page()
        begin = perf_counter()
        page.goto(f"{address}lite/notebooks/index.html?path=05_late_merge.ipynb")
        page.wait_for_function(KERNEL_IS_READY)
        ready = perf_counter() - begin
        page.evaluate("() => void jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_selector(".labengine")
        return ready, perf_counter() - begin


def sizes(site: Path) -> Iterator[tuple[str, int, int]]:
    """What the front fetches: name, bytes, bytes gzipped."""
    others = {"recorded", "docs", "lite", "model"}
    fetched = [path for path in sorted(site.rglob("*")) if path.is_file() and not others & set(path.parts)]
    for path in [*fetched, site / "recorded" / "opening.bin"]:
        data = path.read_bytes()
        yield path.relative_to(site).as_posix(), len(data), min(len(data), len(compress(data, 9)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--site", type=Path)
    arguments = parser.parse_args()
    print(headline(facts(2)))
    with TemporaryDirectory() as folder:
        site = arguments.site or build(Path(folder, "site")).parent
        if not arguments.site:
            lite.build(site)
        found = list(sizes(site))
        for name, raw, small in [*found, ("all", sum(row[1] for row in found), sum(row[2] for row in found))]:
            print(f"{name:<28}{raw / 1e6:8.2f} MB {small / 1e6:8.2f} MB gzipped")
        python = sum(path.stat().st_size for path in (site / "lite" / "python").iterdir())
        everything = sum(path.stat().st_size for path in (site / "lite").rglob("*") if path.is_file())
        print(
            f"lite/: {everything / 1e6:.1f} MB, of which {python / 1e6:.1f} MB are Python packages, all of them fetched"
        )
        with listening_for_noise() as others:
            sleep(2)
        with served(site) as address, launched() as browser:
            rounds = [times(browser, address) for _ in range(arguments.rounds)]
            rounds = [(*one, *notebook_times(browser, address)) for one in rounds]
        for name, seconds in zip(("picture", "live", "kernel", "cells"), zip(*rounds, strict=True), strict=True):
            print(f"{name:<10}{median(seconds):6.2f} s, the quickest round {min(seconds):.2f} s")
        print(f"in the two seconds before, others took {others.share or 0:.0%} of the cores")


if __name__ == "__main__":
    main()
