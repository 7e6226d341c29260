"""How long a long session takes to save, to open, and to look at anywhere; and how large its file is.

    python benchmarks/open_trace.py [--steps 10000] [--concurrent 8] [--blocks 256]

Requests of 16 to 200 random tokens on the simulated model, always as many at once as asked, 30 to 200 tokens each. The
file is opened by another Python that has loaded nothing, five times; median and worst are printed, in milliseconds, and
how long the same Python counts to ten million beside it: on a busy machine everything takes longer, this too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from labengine.lab import Lab

RUNS = 5

READER = """
import sys
from random import Random
from time import perf_counter

def timed(name, call):
    started = perf_counter()
    result = call()
    print(name, (perf_counter() - started) * 1000, sep="\\t")
    return result

import_started = perf_counter()
import labengine
labengine.open
print("import labengine.open", (perf_counter() - import_started) * 1000, sep="\\t")
timed("(counting to ten million)", lambda: sum(1 for _ in range(10_000_000)))
trace = timed("opened", lambda: labengine.open(sys.argv[1]))
timed("its last state", trace.snapshot)
timeline, rng = trace.timeline, Random(0)
for moment in [rng.randint(timeline.num_dropped, timeline.end) for _ in range(20)]:
    timed("a state anywhere", lambda: timeline.state(moment))
    timed("one ten events earlier", lambda: timeline.state(max(timeline.num_dropped, moment - 10)))
timed("the moments of a step", lambda: timeline.step_moments(trace.snapshot().step // 2))
timed("all texts", lambda: trace.token_text(0))
timed("all events as rows, for a page", timeline.rows)
timed("all events as Python objects", timeline.events)
assert not {"torch", "transformers"} & set(sys.modules)
"""


def session(steps: int, concurrent: int, blocks: int) -> Lab:
    """A run that was never idle."""
    rng = Random(0)
    lab = Lab("simulated", num_blocks=blocks, record=10_000_000, check=False)
    while lab.session.stepper.engine.step_number < steps:
        lab.run(until=lambda lab: is_short_of_work(lab, concurrent) or lab.session.stepper.engine.step_number >= steps)
        while is_short_of_work(lab, concurrent):
            prompt = [rng.randrange(50_000) for _ in range(rng.randint(16, 200))]
            lab.add(token_ids=prompt, max_tokens=rng.randint(30, 200))
    return lab


def is_short_of_work(lab: Lab, concurrent: int) -> bool:
    scheduler = lab.session.stepper.engine.scheduler
    return len(scheduler.waiting) + len(scheduler.running) < concurrent


def opened(path: Path) -> dict[str, list[float]]:
    """Milliseconds by what was done, in a new Python."""
    run = subprocess.run([sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=True)
    found: dict[str, list[float]] = {}
    for line in run.stdout.splitlines():
        name, milliseconds = line.split("\t")
        found.setdefault(name, []).append(float(milliseconds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--concurrent", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=256)
    selected = parser.parse_args()
    lab = session(selected.steps, selected.concurrent, selected.blocks)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.lab"
        started = perf_counter()
        lab.save(path)
        seconds = perf_counter() - started
        assert lab.timeline is not None
        size = os.path.getsize(path)
        print(f"{lab.snapshot().step:,} steps, {len(lab.inputs):,} requests, {lab.timeline.end:,} events")
        print(f"saved in {seconds:.2f} s: {size / 1e6:.2f} MB, {size / lab.timeline.end:.1f} bytes an event\n")
        runs = [opened(path) for _ in range(RUNS)]
    print(f"{'':32}{'median':>10}{'worst':>10}   ms")
    for name in runs[0]:
        times = [milliseconds for run in runs for milliseconds in run[name]]
        print(f"{name:32}{median(times):10.1f}{max(times):10.1f}")


if __name__ == "__main__":
    main()
