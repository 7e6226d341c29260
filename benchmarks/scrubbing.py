"""How long it takes to see another moment of a long run: the dashboard with its panels, in Chromium.

    python benchmarks/scrubbing.py [--steps 10000] [--concurrent 8] [--blocks 256] [--tab timeline]

The run of open_trace.py, as an exported page has it: all events in the page, no Python behind it. The slider of the
steps is moved, and the time is taken until the frame that shows the new moment is painted, style and layout included:
the first one, with the pool, the score and the sentence; and the one by which every list has followed.

anywhere    200 random steps, far apart.
neighbours  200 steps in a row, backwards: a drag.
moments     200 moments in a row within steps, forwards: the arrow key.

Milliseconds: half take less, nine of ten take less, the slowest. `script` is the page's own part of the first frame.
Then what others took of the cores in the second before, for on a busy machine everything waits.
"""

from __future__ import annotations

import argparse
import base64
import sys
from pathlib import Path
from time import sleep
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from machine import facts, headline, listening_for_noise  # noqa: E402
from open_trace import session  # noqa: E402

from browser.chromium import launched  # noqa: E402
from labengine_widgets.browser import css, esm  # noqa: E402
from labengine_widgets.pages.whole_recording import recording_payload  # noqa: E402

MOUNT = """async ([source, tab]) => {
  const { mount } = await import("data:text/javascript;base64," + source);
  const begun = performance.now(), bytes = new TextEncoder().encode(window.text);
  window.stage = await mount(document.getElementById("cell"), bytes, { kind: "dashboard", views: [] });
  if (tab) window.stage.drawer.show(tab);
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - begun;
}"""

SCRUB = """async ([kind, count]) => {
  const { stage } = window, [side] = stage.sides, { recording } = side, times = [], wholes = [], scripts = [];
  const slider = document.querySelector('[aria-label="the steps of the recording"]');
  const seek = (step) => {
    slider.value = step;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const { painting } = stage, flush = painting.flush.bind(painting);
  let script = 0, isFirst = true;
  painting.flush = () => {
    const begun = performance.now();
    flush();
    if (isFirst) script = performance.now() - begun;
    isFirst = false;
  };
  const pool = stage.shows.find(({ view }) => view.canvas);
  const isPainted = (entry) => !entry.isShown() || entry.from === side.moment;
  const isWhole = () => !painting.isDirty && stage.shows.every(isPainted);
  // The task after a frame's callbacks begins when style, layout and paint are done.
  const painted = () => new Promise((done) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    requestAnimationFrame(() => channel.port2.postMessage(0));
  });
  const last = recording.steps.at(-1).step;
  let seed = 1;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  if (kind !== "anywhere") seek(last >> 1), await painted();
  for (let i = 0; i < count; i++) {
    const before = side.moment, begun = performance.now();
    isFirst = true;
    if (kind === "moments") stage.forward();
    else seek(kind === "anywhere" ? Math.ceil(random() * last) : (last >> 1) - i - 1);
    await painted();
    if (side.moment === before) throw new Error("nothing moved");
    if (pool.from !== side.moment) throw new Error("the pool shows another moment");
    times.push(performance.now() - begun);
    scripts.push(script);
    while (!isWhole()) await painted();
    wholes.push(performance.now() - begun);
    await new Promise((done) => setTimeout(done, 5));
  }
  delete painting.flush;
  return { times, wholes, scripts };
}"""


FIGURES = (("first frame", "times"), ("all", "wholes"), ("script", "scripts"))


def figures(times: list[float]) -> str:
    """Half, nine of ten, all."""
    times = sorted(times)
    return f"{times[len(times) // 2]:6.1f}  {times[len(times) * 9 // 10]:6.1f}  {times[-1]:6.1f}"


def measured(payload: bytes, tab: str | None) -> dict[str, Any]:
    """Times by kind, and how long the page took to open."""
    source = base64.b64encode(esm().encode()).decode()
    with launched() as browser:
        page = browser.new_page(viewport={"width": 1250, "height": 1000})
        page.set_content('<body data-jp-theme-light="true"><div id="cell" style="width: 1220px"></div></body>')
        page.add_style_tag(content=css())
        page.evaluate("(text) => { window.text = text; }", payload.decode())
        found: dict[str, Any] = {"opened": page.evaluate(MOUNT, [source, tab])}
        for kind in ("anywhere", "neighbours", "moments"):
            found[kind] = page.evaluate(SCRUB, [kind, 200])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--concurrent", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=256)
    parser.add_argument("--tab", help="a view of the drawer to have open, too")
    selected = parser.parse_args()
    print(headline(facts(threads=1)), flush=True)
    lab = session(selected.steps, selected.concurrent, selected.blocks)
    payload = recording_payload(lab.view_source())
    with listening_for_noise() as others:
        sleep(1)
    found = measured(payload, selected.tab)
    assert lab.timeline is not None
    print(
        f"{lab.snapshot().step:,} steps, {lab.timeline.end:,} events, {len(payload) / 1e6:.1f} MB; "
        f"opened in {found.pop('opened'):.0f} ms; others took {others.share or 0:.0%} before"
    )
    for kind, one in found.items():
        reported = [f"{word} {figures(one[name])} ms" for word, name in FIGURES]
        print(f"{kind:12} {'   '.join(reported)}")


if __name__ == "__main__":
    main()
