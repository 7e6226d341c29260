"""From the end of a step in the kernel to the first painted frame of it in a real JupyterLab, in milliseconds.

    python benchmarks/step_to_pixels.py [--blocks 256 4096] [--steps 30]

Needs Chromium (make browser). Kernel and page share one machine's clock. The lab is simulated, so that the figure is
the dashboard's alone; 16 requests decode, and some of them open a new block in every step.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.chromium import launched  # noqa: E402
from browser.jupyter_server import JupyterServer  # noqa: E402
from browser.lab_page import LabPage  # noqa: E402

WATCH = """() => {
  const root = document.querySelector(".labengine-dashboard");
  const seen = (window.seen = {});
  new MutationObserver(() => {
    const { step, seq } = root.dataset;
    if (!(step in seen)) requestAnimationFrame(() => (seen[step] ??= performance.timeOrigin + performance.now()));
  }).observe(root, { attributes: true });
}"""


def measure(lab: LabPage, num_blocks: int, num_steps: int) -> list[float]:
    """Milliseconds per step."""
    lab.open_cells(
        "import time, labengine\n"
        f"lab = labengine.Lab('simulated', num_blocks={num_blocks}, block_size=4)\n"
        "for i in range(16):\n    lab.add(token_ids=range(i * 50, i * 50 + 21 + i), max_tokens=200)\nlab.step()\nlab",
        "lab.step()\nprint(lab.snapshot().step, time.time() * 1000)",
    )
    lab.run_cell(0)
    lab.wait_for("the dashboard", lambda: lab.page.locator(".labengine-dashboard").count() > 0)
    lab.page.wait_for_timeout(1500)
    lab.page.evaluate(WATCH)
    milliseconds = []
    for _ in range(num_steps):
        lab.run_cell(1)
        step, ended = lab.text(1).split()
        lab.page.wait_for_timeout(200)
        milliseconds.append(lab.page.evaluate("(step) => window.seen[step]", step) - float(ended))
    return milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=[256, 4096])
    parser.add_argument("--steps", type=int, default=30)
    chosen = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        server = JupyterServer(Path(folder))
        server.start()
        for num_blocks in chosen.blocks:
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            times = sorted(measure(LabPage(page, server, Path(folder)), num_blocks, chosen.steps))
            p90 = times[int(len(times) * 0.9)]
            print(f"{num_blocks:>6} blocks: median {median(times):.1f} ms, 90% under {p90:.1f} ms, {len(times)} steps")
            page.close()
        server.stop()


if __name__ == "__main__":
    main()
