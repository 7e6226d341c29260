"""A running vLLM's dashboard: from a step's arrival to its first painted frame, and frames a second, in Chromium.

    python benchmarks/stream_to_pixels.py [--requests 0 16 64] [--in page notebook] [--rates 5 200] [--seconds 8]

Needs Chromium (make browser). Another process sends a stream at its own pace, as the tap on vLLM sends it
(benchmarks/replayed_stream.py): --requests 0 is the longest recorded run of vLLM over and over, another number has as
many requests decode in edition `vllm`. `labengine attach --page` (page) or a cell of JupyterLab (notebook) shows it.
All processes share one machine's clock.

latency   milliseconds from the moment at which the tap's queue gets the end of a step to the first painted frame that
          shows it, to the one in which the block pool does, and to the one in which every view has followed.
rate      frames a second in which the dashboard moved on, and bytes a second on the tap's socket and to the browser.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from browser.chromium import launched  # noqa: E402
from browser.jupyter_server import JupyterServer  # noqa: E402
from browser.lab_page import LabPage  # noqa: E402

VIEWPORT: Any = {"width": 1400, "height": 1200}

WARM_UP = {"rate": 20, "seconds": 3}
"""Played before anything is measured: requests arrive, and the page has painted each of its views."""

PAUSE_MS = 1500

# A change is painted in the frame in which it was made; that frame is over, and on its way to the screen, when the next
# one begins. So this is an upper bound: the pixels were there up to a sixtieth of a second earlier.
WATCH = """() => {
  const root = document.querySelector(".labengine"), { stage } = root;
  const lists = (window.frames = { first: [], pool: [], all: [] });
  const noted = (list, moment) => {
    let asked = false;
    return () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        list.push([moment(), performance.timeOrigin + performance.now()]);
      });
    };
  };
  const shown = () => Number(root.dataset.moment);
  const slowest = (views) => Math.min(...views.filter((one) => one.isShown()).map(({ from }) => from));
  const pool = stage.shows.filter(({ view }) => view.element.matches(".le-pool"));
  new MutationObserver(noted(lists.first, shown)).observe(root, { attributes: true, attributeFilter: ["data-moment"] });
  stage.on("painted", noted(lists.pool, () => slowest(pool)));
  stage.on("painted", noted(lists.all, () => slowest(stage.shows)));
}"""

FORGET = "() => Object.values(window.frames).forEach((list) => (list.length = 0))"

HAS_FOLLOWED = "(moment) => Object.values(window.frames).every((list) => list.at(-1)?.[0] >= moment)"

COUNT_BYTES = """
window.numBytes = 0;
const { read } = ReadableStreamDefaultReader.prototype;
ReadableStreamDefaultReader.prototype.read = async function () {
  const result = await read.apply(this);
  window.numBytes += result.value?.byteLength ?? 0;
  return result;
};
"""

CELL = """
import labengine
stream = labengine.attach("unix:{folder}")
stream
"""

LINE = (
    "{name:>12}, {where}: {rate:.1f} steps/s of {events:.0f} events; first frame {first}, pool {pool}, all {all}; "
    "{painted:.1f} frames/s; {socket:.1f} KB/s on the socket, {browser:.1f} KB/s to the browser"
)


class Shown(NamedTuple):
    """A dashboard that follows the stream. num_bytes: returns what its browser half has got."""

    page: Page
    num_bytes: Callable[[], int]


class Player:
    """The process that sends the stream."""

    def __init__(self, folder: Path, num_requests: int) -> None:
        command = [sys.executable, str(ROOT / "benchmarks" / "replayed_stream.py"), str(folder), str(num_requests)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def play(self, rate: float, seconds: float) -> dict[str, Any]:
        """Play so many steps a second; return the answer."""
        assert self._process.stdin
        print(json.dumps({"rate": rate, "seconds": seconds}), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._answer())
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline() or sys.exit("the process that sends the stream has ended")


# -- where it is shown -------------------------------------------------------------------------------------------------


@contextmanager
def in_page(browser: Browser, folder: Path) -> Iterator[Shown]:
    """Show it with `labengine attach --page`."""
    command = [sys.executable, "-m", "labengine", "attach", f"unix:{folder}", "--page"]
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert serving.stdout
    address = next(line for line in serving.stdout if line.startswith("http://")).strip()
    page = browser.new_page(viewport=VIEWPORT)
    page.add_init_script(COUNT_BYTES)
    try:
        page.goto(address)
        yield Shown(page, lambda: int(page.evaluate("window.numBytes")))
    finally:
        page.close()
        serving.kill()
        serving.wait()


@contextmanager
def in_notebook(browser: Browser, folder: Path) -> Iterator[Shown]:
    """Show it in a cell of JupyterLab."""
    base = folder.parent / f"jupyter-{folder.name}"
    base.mkdir()
    server, page = JupyterServer(base), browser.new_page(viewport=VIEWPORT)
    server.start()
    lab = LabPage(page, server, base)
    try:
        lab.open_cells(CELL.format(folder=folder))
        lab.run_cell(0)
        yield Shown(page, lambda: int(lab.text(lab.execute("print(stream.feed.num_bytes)"))))
    finally:
        page.close()
        server.stop()


SHOWN = {"page": in_page, "notebook": in_notebook}


# -- what is measured --------------------------------------------------------------------------------------------------


def measured(player: Player, shown: Shown, rate: float, seconds: float) -> dict[str, Any]:
    """Play a stretch, and return its figures."""
    page, before = shown.page, shown.num_bytes()
    page.evaluate(FORGET)
    played = player.play(rate, seconds)
    steps, duration = played["steps"], played["seconds"]
    page.wait_for_function(HAS_FOLLOWED, arg=steps[-1][0])
    frames = page.evaluate("() => window.frames")
    begun, ended = steps[0][1] - 1000 / rate, steps[-1][1]
    return {
        "rate": len(steps) / duration,
        "events": (steps[-1][0] - steps[0][0]) / (len(steps) - 1),
        **{name: worded(latencies(steps, seen)) for name, seen in frames.items()},
        "painted": sum(begun <= at <= ended for _, at in frames["first"]) / duration,
        "socket": played["bytes"] / 1000 / duration,
        "browser": (shown.num_bytes() - before) / 1000 / duration,
    }


def latencies(steps: list[tuple[int, float]], frames: list[tuple[int, float]]) -> list[float]:
    """Return the milliseconds from each step to the first frame that shows it."""
    moments = [moment for moment, _ in frames]
    return [frames[bisect_left(moments, moment)][1] - at for moment, at in steps]


def worded(times: list[float]) -> str:
    times = sorted(times)
    return f"{median(times):.0f} / {times[int(len(times) * 0.9)]:.0f} / {times[-1]:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, nargs="+", default=[0, 16, 64])
    parser.add_argument("--in", dest="where", nargs="+", choices=SHOWN, default=["page"])
    parser.add_argument("--rates", type=float, nargs="+", default=[5, 200])
    parser.add_argument("--seconds", type=float, default=8.0)
    selected = parser.parse_args()
    print("milliseconds: median / 90 % under / worst")
    with tempfile.TemporaryDirectory() as base, launched() as browser:
        for where in selected.where:
            for num_requests in selected.requests:
                with ExitStack() as opened:
                    folder = Path(base) / f"{where}-{num_requests}"
                    player = Player(folder, num_requests)
                    opened.callback(player.close)
                    shown = opened.enter_context(SHOWN[where](browser, folder))
                    shown.page.locator(".labengine[data-moment]").wait_for()
                    player.play(**WARM_UP)
                    shown.page.wait_for_timeout(PAUSE_MS)
                    shown.page.evaluate(WATCH)
                    name = f"{num_requests} requests" if num_requests else "recorded run"
                    for rate in selected.rates:
                        figures = measured(player, shown, rate, selected.seconds)
                        print(LINE.format(name=name, where=where, **figures), flush=True)


if __name__ == "__main__":
    main()
