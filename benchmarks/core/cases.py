"""Timed operations of a scheduler's core: the same cases for every implementation.

    python benchmarks/core/cases.py ours|vllm|nano [--repetitions 5]

prints {case: microseconds}: thread CPU time, the minimum of the repetitions, with garbage collection off while timing;
short operations are looped inside the timed region. The interpreter needs only the implementation.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
from collections.abc import Callable
from time import thread_time_ns
from typing import Any

BLOCK_SIZE = 16
PROMPT = [i * 7 % 32_000 for i in range(4096)]
WINDOWS = (512, 512)

Rows = dict[str, float]


def spent(run: Callable[..., object], *arguments: object) -> float:
    """Return the microseconds of one run."""
    started = thread_time_ns()
    run(*arguments)
    return (thread_time_ns() - started) / 1e3


def pool_cases(core: Any, repetitions: int) -> Rows:
    """Time taking and freeing empty blocks."""
    many, pairs = 20_000, 5_000
    pool = core.pool(many + 1)
    held: list[Any] = []
    take, free, pair = [], [], []

    def one_by_one() -> None:
        for _ in range(pairs):
            core.give_back(pool, core.take(pool, 1))

    for _ in range(repetitions):
        take.append(spent(lambda: held.append(core.take(pool, many))))
        free.append(spent(lambda: core.give_back(pool, held.pop())))
        core.end_step(pool)
        pair.append(spent(one_by_one))
        core.end_step(pool)
    return {
        "take and free a block, in bulk": (min(take) + min(free)) / many,
        "take and free a block, one by one": min(pair) / pairs,
    }


def prompt_cases(core: Any, repetitions: int, windows: tuple[int, ...], reported: str) -> Rows:
    """Time prompts of 4,096 tokens: hashing, looking up, admitting, freeing."""
    manager = core.manager(4096 * (1 + len(windows)), BLOCK_SIZE, windows)
    first = core.request(manager, PROMPT)
    core.admit(manager, first)
    core.free(manager, first)
    cached, missing = core.request(manager, [*PROMPT, 1]), core.request(manager, [9, *PROMPT[1:]])
    rows = {
        "create a request, including its hash chain": min(
            spent(lambda: core.request(manager, PROMPT)) for _ in range(repetitions)
        )
    }
    if core.can_look_up:
        rows["look up, all cached"] = _repeated(lambda: core.look_up(manager, cached), 100, repetitions)
        rows["look up, a miss"] = _repeated(lambda: core.look_up(manager, missing), 100, repetitions)
    admit, free = [], []
    for _ in range(repetitions):
        requests = [core.request(manager, [*PROMPT, 1]) for _ in range(50)]
        admit.append(spent(_each, core.admit, manager, requests) / 50)
        free.append(spent(_each, core.free, manager, requests) / 50)
    rows |= {"admit, all cached": min(admit), "free, blocks shared": min(free)}
    return {f"{case}{reported}": figure for case, figure in (rows | _evicting(core, repetitions, windows)).items()}


def _evicting(core: Any, repetitions: int, windows: tuple[int, ...]) -> Rows:
    """Time a pool with little more room than one prompt, so that every block taken was cached before."""
    manager = core.manager(1 + 300 * (1 + len(windows)), BLOCK_SIZE, windows)
    admit, free = [], []
    for number in range(2 * repetitions + 1):
        request = core.request(manager, [number, *PROMPT[1:]])
        admit.append(spent(core.admit, manager, request))
        free.append(spent(core.free, manager, request))
    return {"admit, nothing cached, all evicting": min(admit[1:]), "free, last owner": min(free)}


def decode_cases(core: Any, repetitions: int, windows: tuple[int, ...], reported: str) -> Rows:
    """Time the bookkeeping of one decoded token of one request, among 256 requests of about 1,024 tokens."""
    manager = core.manager(40_000 * (1 + len(windows)), BLOCK_SIZE, windows)
    requests = [core.request(manager, [number, *PROMPT[1:1024]]) for number in range(256)]
    for request in requests:
        core.admit(manager, request)

    def sixteen_tokens() -> None:
        for _ in range(16):
            for request in requests:
                core.decode(manager, request, 5)

    return {
        f"decode, per request and token{reported}": min(spent(sixteen_tokens) for _ in range(repetitions)) / 16 / 256
    }


def scheduler_cases(core: Any, repetitions: int) -> Rows:
    """Time schedule + update of a decode step: the median of many steps, of which some open a block."""
    rows = {}
    for num_requests in (16, 256):
        scheduler = core.scheduler(num_requests, 128, 1 + num_requests * 40, BLOCK_SIZE)
        for number in range(num_requests):
            core.add(scheduler, [number + 3, *PROMPT[1:128]])
        for _ in range(4):
            _step(core, scheduler)
        steps = sorted(_step(core, scheduler) for _ in range(32 * repetitions))
        rows[f"schedule + update, {num_requests} decoding"] = steps[len(steps) // 2]
    return rows


def _each(do: Callable[[Any, Any], None], manager: Any, requests: list[Any]) -> None:
    for request in requests:
        do(manager, request)


def _step(core: Any, scheduler: Any) -> float:
    plan: list[Any] = []
    scheduling = spent(lambda: plan.append(core.schedule(scheduler)))
    output = core.output(scheduler, plan[0])
    return scheduling + spent(lambda: core.update(scheduler, plan[0], output))


def _repeated(run: Callable[[], object], times: int, repetitions: int) -> float:
    def loop() -> None:
        for _ in range(times):
            run()

    return min(spent(loop) for _ in range(repetitions)) / times


def all_cases(core: Any, repetitions: int) -> Rows:
    """Return all cases in the order of the table. Garbage is collected between groups of cases only."""
    gc.disable()
    rows = pool_cases(core, repetitions)
    gc.collect()
    rows |= prompt_cases(core, repetitions, (), "")
    rows |= decode_cases(core, repetitions, (), "")
    if core.has_windows:
        rows |= prompt_cases(core, repetitions, WINDOWS, " [full + 2 windows]")
        rows |= decode_cases(core, repetitions, WINDOWS, " [full + 2 windows]")
    return rows | scheduler_cases(core, repetitions)


def main() -> None:
    """Print one implementation's figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("implementation")
    parser.add_argument("--repetitions", type=int, default=5)
    selected = parser.parse_args()
    core = importlib.import_module(f"{selected.implementation}_core").Core()
    json.dump({"name": core.name, "rows": all_cases(core, selected.repetitions)}, sys.stdout)


if __name__ == "__main__":
    main()
