"""What a larger pool costs: the core's bookkeeping over a pool full of cached content, and a real decode step."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from statistics import median
from time import perf_counter, thread_time_ns

import psutil

from labengine import Lab
from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import edition
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.record.hooks import Hooks

BATCH, PROMPT, STEPS = 16, 1024, 96
SAMPLING = SamplingParams(max_tokens=2 * STEPS, ignore_eos=True)
SCHEDULE = f"a decode step of {BATCH}"
ADMIT = f"a prompt of {PROMPT:,} admitted, every block evicts one"
FIND = f"a prompt of {PROMPT:,} admitted, cached"


def bookkeeping(pools: Iterable[int]) -> dict[str, dict[int, float]]:
    """Microseconds of thread CPU time, by what and pool size; blocks of 16, the simulated model, nobody listening.

    The collector of garbage rests meanwhile: it would walk over all that the pool holds.
    """
    found: dict[str, dict[int, float]] = {SCHEDULE: {}, ADMIT: {}, FIND: {}}
    for num_blocks in pools:
        gc.collect()
        gc.disable()
        engine = _full_engine(num_blocks)
        found[ADMIT][num_blocks] = median(_one_step(engine, 1_000_000 + 2000 * i) for i in range(15))
        found[FIND][num_blocks] = median(_one_step(engine, 1_000_000 + 2000 * 14) for _ in range(15))
        _refill(engine, BATCH, 48)
        engine.step()
        found[SCHEDULE][num_blocks] = _spent(lambda: [engine.step() for _ in range(STEPS)]) / STEPS  # noqa: B023
        gc.enable()
    return found


def real_steps(model: str, pools: Iterable[int]) -> dict[int, float]:
    """Milliseconds of a real decode step of 16 requests, by pool size; pools that would not fit are left out."""
    found = {}
    for num_blocks in pools:
        if _kv_bytes(num_blocks) > psutil.virtual_memory().available / 2:
            continue
        with Lab(model, dtype="bfloat16", num_blocks=num_blocks, block_size=4, record=False, check=False) as lab:
            for request in range(BATCH):
                lab.add(token_ids=range(1000 * request + 300, 1000 * request + 428), max_tokens=60, ignore_eos=True)
            for _ in range(4):
                lab.step()
            found[num_blocks] = median(_milliseconds(lab) for _ in range(40))
    return found


def _full_engine(num_blocks: int) -> Engine:
    """No block of its pool is empty, none is in use."""
    config = EngineConfig(num_blocks, (GroupSpec(16),), BATCH, 4 * PROMPT)
    engine = Engine(config, SimulatedRunner(), edition("labengine"), Hooks())
    for number in range(num_blocks // (PROMPT // 16) + 1):
        _one_step(engine, 5_000_000 + number * PROMPT)
    return engine


def _one_step(engine: Engine, first_token: int) -> float:
    """Microseconds of a step that admits a prompt, computes and finishes it."""
    engine.add(range(first_token, first_token + PROMPT), SamplingParams(max_tokens=1))
    return _spent(engine.step)


def _refill(engine: Engine, batch: int, length: int) -> None:
    for request in range(batch):
        engine.add(range(9_000_000 + length * request, 9_000_000 + length * (request + 1)), SAMPLING)


def _spent(work: object) -> float:
    started = thread_time_ns()
    work()  # type: ignore[operator]
    return (thread_time_ns() - started) / 1e3


def _milliseconds(lab: Lab) -> float:
    started = perf_counter()
    lab.step()
    return (perf_counter() - started) * 1e3


def _kv_bytes(num_blocks: int) -> int:
    """Of SmolLM2 in bf16, 30 layers of 3 heads of 64, blocks of 4."""
    return num_blocks * 4 * 30 * 2 * 3 * 64 * 2
