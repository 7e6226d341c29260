"""Print the first difference of each recorded workload that labengine's edition vllm does not follow, one line each.

    export PYTHONPATH=tests:tests/support
    python -m differential.vllm_first_differences ops-full|ops-hybrid|scheduler [NUMBER ...]

NUMBERs choose among the recorded workloads; the exit status is the number that differ, at most 100.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from differential import vllm_golden as golden
from differential.vllm_comparison import Row, first_difference, rows_of_replay, rows_of_simulate

RUNS: dict[str, Callable[[Row], list[Row]]] = {
    "ops-full": rows_of_replay,
    "ops-hybrid": rows_of_replay,
    "scheduler": rows_of_simulate,
}
WIDTH = 1000


def main(name: str, *numbers: str) -> int:
    """Compare; the exit status."""
    wanted = {int(number) for number in numbers}
    runs = [(n, *run) for n, run in enumerate(golden.read(name)) if not wanted or n in wanted]
    differing = 0
    for number, workload, rows in runs:
        line = _first_difference(RUNS[name], workload, rows)
        if line:
            differing += 1
            print(f"{number}: {line[:WIDTH]}")
    print(f"{name}: {len(runs) - differing} of {len(runs)} workloads are equal after each of their rows")
    return min(differing, 100)


def _first_difference(run: Callable[[Row], list[Row]], workload: Row, rows: list[Row]) -> str | None:
    try:
        return first_difference(rows, run(workload))
    except Exception as error:
        if "ops" not in workload:
            return _words(error)
        return _before_the_error(run, workload, rows) or _words(error)


def _before_the_error(run: Callable[[Row], list[Row]], workload: Row, rows: list[Row]) -> str | None:
    """The first op that raises, and the first difference before it."""

    def raises(num_ops: int) -> bool:
        try:
            run(workload | {"ops": workload["ops"][:num_ops]})
        except Exception:
            return True
        return False

    number = bisect_left(range(len(rows) + 1), True, key=raises) - 1
    if number < 0:
        return None
    try:
        run(workload | {"ops": workload["ops"][: number + 1]})
    except Exception as error:
        difference = first_difference(rows[:number], run(workload | {"ops": workload["ops"][:number]}))
        return difference or f"op {number} {workload['ops'][number]}: {_words(error)}"
    return None


def _words(error: Any) -> str:
    frame = error.__traceback__
    while frame.tb_next:
        frame = frame.tb_next
    return f"{type(error).__name__}: {error} ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
