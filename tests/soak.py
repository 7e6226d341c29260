"""A long run of random operations under watch.

    python tests/soak.py --operations 1000000 [--edition vllm] [--kinds forks drafts ... | --kinds all]

Episodes as in check/test_silence.py, one after another, with seeds that the tests do not use. After each operation the
events fold to the state of the core. It ends at the first violation, leak, difference or error, and names the seed; a
progress line counts what was met so far.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from random import Random
from time import perf_counter

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent / "support"))

from check.random_operations import KINDS, Episode, Kind
from ctrl_c import python_handles_sigint
from driving import EDITION_FAULTS, LiveFold, difference
from labengine.config import ConfigError
from labengine.record.violation import Violation

FIRST_SEED = 1_000_000
NUM_OPERATIONS = 500
"""Per episode."""


class SoakError(AssertionError):
    """What an episode has found, with its seed."""


def play(seed: int, edition: str, num_operations: int = NUM_OPERATIONS, kinds: Collection[Kind] = ()) -> Counter[str]:
    """Play one episode to its end; return what it met. Of several kinds it has most. Raises SoakError."""
    rng = Random(f"{seed}")
    some = [kind for kind in kinds if len(kinds) == 1 or rng.random() < 0.8]
    episode, done, newest = Episode(rng, edition, kinds=some), 0, ""
    setup = episode.setup
    folded = LiveFold(setup.engine.hooks)
    for event in setup.timeline.events():
        folded.hear(event)
    try:
        for done, newest in enumerate(episode.operations(num_operations), 1):  # noqa: B007 - named in the note
            snapshot = setup.engine.snapshot()
            if wrong := difference(folded.state.snapshot(), snapshot):
                raise SoakError(f"the events say otherwise: {wrong}")
            if done % 100 == 0:
                setup.watch.check(snapshot)
            if found := unexpected(setup.watch.violations, edition):
                raise SoakError(f"{found[0]}")
        newest = "the end"
        episode.drain()
        snapshot = setup.engine.snapshot()
        if (found := unexpected(setup.watch.check(snapshot), edition)) or snapshot.num_used_blocks:
            raise SoakError(f"{snapshot.num_used_blocks} blocks used, {found}")
    except Exception as error:
        error.add_note(f"seed {seed}, after operation {done}, {newest}")
        raise
    return episode.met + Counter(operations=done)


def unexpected(violations: Iterable[Violation], edition: str) -> list[Violation]:
    """Return the violations of rules that the edition keeps; one may equal an engine that breaks some."""
    return [violation for violation in violations if violation.rule not in EDITION_FAULTS.get(edition, {})]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--edition", default="labengine")
    parser.add_argument("--kinds", nargs="*", choices=(*KINDS, "all"), default=(), help="what else an episode has")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="of the first episode")
    selected = parser.parse_args()
    kinds = KINDS if "all" in selected.kinds else selected.kinds
    try:
        Episode(Random(0), selected.edition, kinds=kinds)
    except ConfigError as error:
        parser.error(str(error))
    met: Counter[str] = Counter()
    seed, started = selected.seed, perf_counter()
    with python_handles_sigint():
        while met["operations"] < selected.operations:
            met += play(seed, selected.edition, kinds=kinds)
            seed += 1
            if seed % 100 == 0 or met["operations"] >= selected.operations:
                seconds = perf_counter() - started
                print(f"{met['operations']:,} operations, {seed - selected.seed} episodes, {seconds:,.0f} s", end="; ")
                print(", ".join(f"{what} {n:,}" for what, n in met.most_common() if what != "operations"), flush=True)
    print(f"edition {selected.edition}: silent")


if __name__ == "__main__":
    main()
