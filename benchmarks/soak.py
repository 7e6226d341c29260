"""A lab that runs for ten minutes with its dashboard open in JupyterLab: what grows?

    python benchmarks/soak.py [--minutes 10] [--samples 20]

Needs Chromium (make browser). About 30 steps a second of a simulated model, 32 requests at once, a recording of 20,000
events (full after the first minute). Every so often kernel and page collect their garbage and are looked at: resident
megabytes of the kernel, megabytes of the page's heap, DOM nodes in all and in the dashboard, event listeners, comms,
threads. What changed from the end of the warm-up, a fifth of the time, to the end is printed last.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from browser.chromium import launched  # noqa: E402
from browser.jupyter_server import JupyterServer  # noqa: E402
from browser.lab_page import LabPage  # noqa: E402
from browser.wear import Sample, Wear  # noqa: E402

STEPS_A_SECOND = 30


def growth(first: Sample, last: Sample) -> str:
    """What changed, in one line."""
    before, after = asdict(first), asdict(last)
    return "  ".join(f"{name} {after[name] - before[name]:+g}" for name in before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--samples", type=int, default=20)
    selected = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        server = JupyterServer(Path(folder))
        server.start()
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        wear, samples = Wear(LabPage(page, server, Path(folder))), []
        for number in range(selected.samples):
            samples.append(wear.run(round(selected.minutes * 60 * STEPS_A_SECOND / selected.samples), STEPS_A_SECOND))
            print(f"{(number + 1) * selected.minutes / selected.samples:5.1f} min  {samples[-1]}", flush=True)
        server.stop()
    print(f"\nsince the warm-up: {growth(samples[len(samples) // 5], samples[-1])}")


if __name__ == "__main__":
    main()
