"""What a hook site costs: nobody listening, and one listener that appends to a list.

python benchmarks/hook_site.py
"""

from __future__ import annotations

import timeit

from labengine.events import BlockFreed
from labengine.record.hooks import Hooks

SITE = "if BlockFreed in hooks: hooks.emit(BlockFreed(1, 2, 0, 4, 0, 'tail', 'finished'))"


def nanoseconds(statement: str, hooks: Hooks, number: int) -> float:
    """Best of seven, per execution."""
    scope = {"BlockFreed": BlockFreed, "hooks": hooks}
    return min(timeit.repeat(statement, globals=scope, number=number, repeat=7)) / number * 1e9


def main() -> None:
    hooks = Hooks()
    empty = nanoseconds("pass", hooks, 2_000_000)
    silent = nanoseconds(SITE, hooks, 2_000_000) - empty
    hooks.subscribe([].append, BlockFreed)
    heard = nanoseconds(SITE, hooks, 100_000) - empty
    print(f"hook site, nobody listening: {silent:.0f} ns")
    print(f"hook site, recorded:         {heard:.0f} ns")


if __name__ == "__main__":
    main()
