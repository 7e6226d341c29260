"""States a second of the complete search: undone by the journal, beside every state played from the start.

    python benchmarks/finder.py [--seconds 10] [--rounds 3]

Production's parts in one of the finder's small scopes; both ways take turns, and each round's ratio is of its own pair.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import process_time

from machine import facts, headline

from labengine.finder.exhaustive import ExhaustiveSearch
from labengine.finder.find import GRAVE
from labengine.finder.judgement import Judgement
from labengine.finder.sandbox import Mark, Sandbox
from labengine.finder.scopes import small_scopes
from labengine.finder.suspects import suspects_of

SCOPE = "three requests"


class NeverUndoes(Judgement):
    """Judges in sandboxes of which no operation can be undone: every state is played from the start."""

    def sandbox(self, *arguments: object, **settings: object) -> Sandbox:
        """Return a sandbox that says of each undoing that it led nowhere."""
        sandbox = super().sandbox(*arguments, **settings)  # type: ignore[arg-type]
        sandbox.undo = _cannot  # type: ignore[method-assign]
        return sandbox


def _cannot(_: Mark) -> bool:
    return False


def states_a_second(kind: type[Judgement], seconds: float) -> float:
    """Return the states that a search reaches in a second of processor time."""
    judgement = kind(suspects_of("labengine", "labengine"), GRAVE)
    [scope] = [scope for scope in small_scopes() if scope.name == SCOPE]
    search, started = ExhaustiveSearch(scope, judgement), process_time()
    for _ in search.findings():
        if process_time() - started > seconds:
            break
    return search.progress.generated / (process_time() - started)


def main() -> None:
    """Print a line per round, and the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print(headline(facts(1)))
    ratios = []
    for number in range(asked.rounds):
        undone, played = (states_a_second(kind, asked.seconds) for kind in (Judgement, NeverUndoes))
        ratios.append(undone / played)
        print(f"round {number + 1}: {undone:,.0f} states a second undone, {played:,.0f} played from the start")
    print(f"median ratio {median(ratios):.2f}")


if __name__ == "__main__":
    main()
