"""A long run of random operations under watch.

    python tests/soak.py --operations 1000000 [--forks] [--states] [--edition vllm]

Episodes as in check/test_silence.py, one after another, with seeds that the tests do not use. It ends at the first
violation, leak or error, and names the seed; a progress line counts what was met so far.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from random import Random
from time import perf_counter

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from check.random_operations import Episode

FIRST_SEED = 1_000_000
NUM_OPERATIONS = 500
"""Per episode."""


def play(seed: int, edition: str, *, with_forks: bool, with_states: bool) -> Counter[str]:
    """One episode to its end; what it met."""
    episode = Episode(Random(f"{seed}"), edition, with_forks=with_forks, with_states=with_states)
    setup, done = episode.setup, 0
    for done, operation in enumerate(episode.operations(NUM_OPERATIONS), 1):
        if setup.watch.violations:
            sys.exit(f"seed {seed}, after operation {done}, {operation}: {setup.watch.violations[0]}")
        if done % 100 == 0:
            setup.watch.check(setup.engine.snapshot())
    episode.drain()
    snapshot = setup.engine.snapshot()
    if setup.watch.check(snapshot) or snapshot.num_used_blocks:
        sys.exit(f"seed {seed}, at its end: {snapshot.num_used_blocks} blocks held, {setup.watch.violations}")
    return episode.met + Counter(operations=done)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--edition", default="labengine")
    parser.add_argument("--forks", action="store_true", help="several answers to a prompt, and branches")
    parser.add_argument("--states", action="store_true", help="groups of state-space layers, and no tier")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="of the first episode")
    selected = parser.parse_args()
    met: Counter[str] = Counter()
    seed, started = selected.seed, perf_counter()
    while met["operations"] < selected.operations:
        met += play(seed, selected.edition, with_forks=selected.forks, with_states=selected.states)
        seed += 1
        if seed % 100 == 0 or met["operations"] >= selected.operations:
            seconds = perf_counter() - started
            print(f"{met['operations']:,} operations, {seed - selected.seed} episodes, {seconds:,.0f} s", end="; ")
            print(", ".join(f"{what} {n:,}" for what, n in met.most_common() if what != "operations"), flush=True)
    print(f"edition {selected.edition}: silent")


if __name__ == "__main__":
    main()
