"""The dashboard's speed in a real JupyterLab: from a step's end to its first painted frame, and frames a second.

    python benchmarks/step_to_pixels.py [--blocks 256 4096 65536] [--steps 40] [--seconds 5]

Needs Chromium (make browser). Kernel and page share one machine's clock. The lab is simulated, so that the figures are
the dashboard's alone.

latency   steps taken by hand: milliseconds from the end of the step in the kernel to the first painted frame that shows
          it. 16 requests decode.
rate      a lab that steps by itself, 45 steps a second if the machine can (the feed sends 50 messages a second at
          most), 64 requests decoding in blocks of one token, so that 64 blocks begin in every step: frames painted a
          second, and what an update costs the kernel and the wire.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from ast import literal_eval
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from browser.chromium import launched  # noqa: E402
from browser.jupyter_server import JupyterServer  # noqa: E402
from browser.lab_page import LabPage  # noqa: E402

# A change is painted in the frame in which it was made; that frame is over, and on its way to the screen, when the next
# one begins. So this is an upper bound: the pixels were there up to a sixtieth of a second earlier.
WATCH = """() => {
  const root = document.querySelector(".labengine");
  const seen = (window.seen = {}), painted = (window.painted = []);
  let asked = false;
  new MutationObserver(() => {
    const { step } = root.dataset;
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const now = performance.timeOrigin + performance.now();
      seen[step] ??= now;
      painted.push(now);
    });
  }).observe(root, { attributes: true, attributeFilter: ["data-moment"] });
}"""

HAND = """
import time, labengine
lab = labengine.Lab('simulated', num_blocks={blocks}, block_size=4)
for i in range(16):
    lab.add(token_ids=range(i * 50, i * 50 + 21 + i), max_tokens=200)
lab.step()
lab
"""

BY_HAND = """
ends = []
for _ in range({steps}):
    step = lab.step().step
    ends.append((step, time.time() * 1000))
    time.sleep(0.35)
print(ends)
"""

FREE = """
import time, labengine
lab = labengine.Lab('simulated', num_blocks={blocks}, block_size=1, max_num_seqs=64, max_num_batched_tokens=4096)
for i in range(600):
    lab.add(token_ids=range(i % 7000, i % 7000 + 5), max_tokens=20 + i % 32)
lab.step()
lab
"""

RUN = """
import json, threading
feed = lab.feed
before, until = (feed.num_messages, feed.num_bytes, feed.seconds), time.monotonic() + {seconds}
due = time.monotonic()
def pace(lab):
    global due
    due = max(due + 1 / 45, time.monotonic())
    time.sleep(max(0.001, due - time.monotonic()))
    return time.monotonic() > until
first, started = lab.snapshot().step, time.time() * 1000
lab.run(until=pace)
ended = time.time() * 1000
sent = [now - then for now, then in zip((feed.num_messages, feed.num_bytes, feed.seconds), before)]
print(json.dumps(dict(started=started, ended=ended, steps=lab.snapshot().step - first, sent=sent)))
"""


RATE = (
    "{painted:.1f} painted Hz at {steps:.1f} steps/s; an update: {milliseconds:.2f} ms in the kernel, {bytes:.0f} bytes"
)


def opened(lab: LabPage, cell: str, action: str) -> None:
    """A notebook with a lab that is shown, and a cell to go on with."""
    lab.open_cells(cell, action)
    lab.run_cell(0)
    lab.wait_for("the dashboard", lambda: lab.page.locator(".labengine[data-step='1']").count() > 0)
    lab.page.wait_for_timeout(1500)
    lab.page.evaluate(WATCH)


def latencies(lab: LabPage, num_blocks: int, num_steps: int) -> list[float]:
    """Milliseconds per step."""
    opened(lab, HAND.format(blocks=num_blocks), BY_HAND.format(steps=num_steps))
    lab.run_cell(1)
    seen = lab.page.evaluate("() => window.seen")
    return [seen[str(step)] - ended for step, ended in literal_eval(lab.text(1)) if str(step) in seen]


def rates(lab: LabPage, num_blocks: int, seconds: float) -> dict[str, Any]:
    """Painted frames a second, and an update's cost."""
    opened(lab, FREE.format(blocks=num_blocks), RUN.format(seconds=seconds))
    lab.run_cell(1)
    run = json.loads(lab.text(1))
    painted = lab.page.evaluate("() => window.painted")
    during = [at for at in painted if run["started"] <= at <= run["ended"]]
    messages, size, spent = run["sent"]
    duration = (run["ended"] - run["started"]) / 1000
    return {
        "painted": len(during) / duration,
        "steps": run["steps"] / duration,
        "messages": messages / duration,
        "bytes": size / max(1, messages),
        "milliseconds": spent / max(1, messages) * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[256, 4096, 65536])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=5.0)
    selected = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        server = JupyterServer(Path(folder))
        server.start()
        for num_blocks in selected.blocks:
            page = browser.new_page(viewport={"width": 1400, "height": 1200})
            lab = LabPage(page, server, Path(folder))
            if selected.steps:
                times = sorted(latencies(lab, num_blocks, selected.steps))
                p90 = times[int(len(times) * 0.9)]
                print(
                    f"{num_blocks:>6} blocks: step to pixels p50 {median(times):.1f} ms, p90 {p90:.1f} ms", flush=True
                )
            if selected.seconds and num_blocks >= 2048:
                figures = rates(lab, num_blocks, selected.seconds)
                print(f"{num_blocks:>6} blocks: " + RATE.format(**figures), flush=True)
            page.close()
        server.stop()


if __name__ == "__main__":
    main()
