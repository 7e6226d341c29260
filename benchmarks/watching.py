"""What the watch costs per decode step: the bookkeeping alone, on the simulated model, in thread CPU time.

    python benchmarks/watching.py [--batch 1 16 256] [--blocks 4096] [--steps 96]

Four engines of each batch size: nobody listening, recorded, watched (all checks), and both. Each is run five times; the
quietest 32 steps in a row are printed, in microseconds per step. A step whose requests all open a block costs more than
the others; 32 steps are two blocks.
"""

from __future__ import annotations

import argparse
import gc
from time import thread_time_ns

from labengine.check.watch import Watch
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import edition
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline

GROUPS = {
    "one full group": (GroupSpec(16),),
    "a full group and two windows of 128": (GroupSpec(16), *[GroupSpec(16, "sliding_window", 128)] * 2),
}
LISTENING = {"silent": (False, False), "recorded": (True, False), "watched": (False, True), "both": (True, True)}
PROMPT, RUNS, IN_A_ROW = 40, 5, 32


def decoding(batch: int, blocks: int, groups: tuple[GroupSpec, ...], record: bool, watch: bool) -> Engine:
    """An engine whose requests all decode."""
    hooks, timeline, runner = Hooks(), Timeline(), SimulatedRunner()
    if record:
        hooks.subscribe(timeline.record)
    watching = Watch(hooks, timeline if record else None)
    config = EngineConfig(blocks, groups, batch, batch * PROMPT)
    engine = Engine(config, watching.wrap(runner) if watch else runner, edition("labengine"), hooks)
    if watch:
        watching.follow(engine)
    for request in range(batch):
        engine.add(range(request * PROMPT, (request + 1) * PROMPT), SamplingParams(max_tokens=1000))
    for _ in range(4):
        engine.step()
    return engine


def microseconds_per_step(engine: Engine, num_steps: int) -> float:
    """Thread CPU time, the mean of the quietest IN_A_ROW steps."""
    gc.collect()
    found = []
    for _ in range(num_steps // IN_A_ROW):
        started = thread_time_ns()
        for _ in range(IN_A_ROW):
            engine.step()
        found.append((thread_time_ns() - started) / IN_A_ROW / 1000)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--blocks", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=96)
    selected = parser.parse_args()
    if selected.steps < IN_A_ROW:
        parser.error(f"--steps must be at least {IN_A_ROW}")
    for name, groups in GROUPS.items():
        print(f"{name}, {selected.blocks:,} blocks; microseconds per decode step")
        print("batch " + "".join(f"{kind:>10}" for kind in LISTENING) + "   the watch adds, per request")
        for batch in selected.batch:
            times = {
                kind: min(
                    microseconds_per_step(decoding(batch, selected.blocks, groups, *listening), selected.steps)
                    for _ in range(RUNS)
                )
                for kind, listening in LISTENING.items()
            }
            added = times["watched"] - times["silent"]
            row = "".join(f"{value:10.0f}" for value in times.values())
            print(f"{batch:>5} {row}{added:18.0f} {added / batch:13.1f}")


if __name__ == "__main__":
    main()
