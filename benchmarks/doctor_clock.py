"""A clock fitted to one run of a model on this machine, and what it predicts of three other runs.

    python benchmarks/doctor_clock.py [--model smollm2] [--save clock.json]

The run that is fitted has batches of 1 to 64 requests. The others are bursts, long prompts, and chats that grow; their
requests arrive in real time. Each is run by the real engine, and predicted by the player: the same scheduler without a
model, whose steps take what the clock says.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import perf_counter, sleep
from typing import Any

import torch
from machine import facts, headline, listening_for_noise

from labengine import Lab
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.play.fit import FittedClock, fit, steps_of
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic
from labengine.record.files.file_access import Limits

SETTINGS: dict[str, Any] = {
    "num_blocks": 4096, "max_num_seqs": 64, "max_num_batched_tokens": 2048, "check": False, "record": 1_000_000
}  # fmt: skip
BATCHES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Arrival:
    """A request: its time in seconds, its prompt, and the number of tokens to generate."""

    at: float
    token_ids: list[int]
    max_tokens: int


@dataclass(frozen=True)
class Times:
    """Seconds from the first arrival to the last token, and the time to the first token of 95 % of the requests."""

    makespan: float
    ttft_p95: float


def text(rng: Random, num_tokens: int) -> list[int]:
    """Return made-up tokens."""
    return [rng.randrange(1000, 40000) for _ in range(num_tokens)]


def bursts(rng: Random) -> Iterator[Arrival]:
    """Yield bursts of short prompts."""
    for burst in range(4):
        for _ in range(rng.randint(4, 16)):
            yield Arrival(0.25 * burst, text(rng, rng.randint(20, 120)), rng.randint(4, 24))


def long_prompts(rng: Random) -> Iterator[Arrival]:
    """Yield long prompts among short ones."""
    for number in range(8):
        length = rng.randint(600, 1500) if number % 2 else rng.randint(16, 64)
        yield Arrival(number / 8, text(rng, length), 8)


def chats(rng: Random) -> Iterator[Arrival]:
    """Yield conversations whose prompts are those before them, and more."""
    histories = [text(rng, 120) for _ in range(10)]  # of a few requests, the p95 hangs on which step one just misses
    for turn in range(8):
        for number, history in enumerate(histories):
            history += text(rng, 60)
            yield Arrival(turn / 8 + number / 80 + rng.random() / 100, list(history), 16)


TRAFFICS = {"bursts": bursts, "long prompts": long_prompts, "chats that grow": chats}


def measured(lab: Lab, arrivals: list[Arrival]) -> Times:
    """Run requests on the engine as they arrive."""
    waiting, arrived, firsts, started = deque(arrivals), dict[int, float](), list[float](), perf_counter()
    while True:
        while waiting and waiting[0].at <= perf_counter() - started:
            one = waiting.popleft()
            arrived[lab.add(token_ids=one.token_ids, max_tokens=one.max_tokens, ignore_eos=True)] = one.at
        report = lab.step()
        now = perf_counter() - started
        firsts += [now - arrived.pop(number) for number in report.sampled if number in arrived]
        if not report and not waiting:
            return Times(now, sorted(firsts)[int(0.95 * len(firsts))])
        if not report:
            sleep(max(0.0, waiting[0].at - now))


def predicted(setting: Setting, arrivals: list[Arrival]) -> Times:
    """Run the requests on the scheduler alone, by the clock."""
    prompts = [Prompt(str(n), one.token_ids, one.at, one.max_tokens) for n, one in enumerate(arrivals)]
    figures = play(Traffic("", lambda: iter(prompts)), setting).figures
    assert figures.seconds is not None and figures.ttft_p95 is not None
    return Times(figures.seconds, figures.ttft_p95)


def drawn(make: Callable[[Random], Iterator[Arrival]], setting: Setting) -> list[Arrival]:
    """Return a traffic whose requests arrive during nine tenths of the time that they would take at once."""
    arrivals = sorted(make(Random(1)), key=lambda one: one.at)
    span = 0.9 * predicted(setting, [replace(one, at=0.0) for one in arrivals]).makespan
    return [replace(one, at=span * (one.at - arrivals[0].at)) for one in arrivals]


def fitted(lab: Lab) -> FittedClock:
    """Run batches of 1 to 64 requests and a few long prompts; return the clock of their steps."""
    rng = Random(0)
    for batch in (*BATCHES, 3):
        for _ in range(batch):
            length = rng.randint(600, 1400) if batch == 3 else rng.randint(16, 80)
            lab.add(token_ids=text(rng, length), max_tokens=10, ignore_eos=True)
        lab.run()
    return fit(steps_of(recordings_of(lab, None, Limits("lab"))[0]))


def main() -> None:
    """Print the clock, its residuals, and each traffic as predicted and as measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--save", type=Path, help="a file for the clock")
    asked = parser.parse_args()
    print(headline(facts(torch.get_num_threads())))
    print("load average: " + ", ".join(f"{load:.1f}" for load in os.getloadavg()))
    with listening_for_noise() as noise, Lab(asked.model, **SETTINGS) as lab:
        found = fitted(lab)
        setting = Setting(lab.config, lab.parts, found.clock)
        print(f"{found.sentence}\n{found.clock}\n")
        if asked.save:
            asked.save.write_text(json.dumps(found.clock.to_dict(), indent=2) + "\n", "utf-8")
        print("| traffic | requests | makespan, predicted | measured | off | TTFT p95, predicted | measured | off |")
        print("|---|---|---|---|---|---|---|---|")
        for name, make in TRAFFICS.items():
            arrivals = drawn(make, setting)
            guess, real = predicted(setting, arrivals), measured(lab, arrivals)
            cells = row(guess.makespan, real.makespan), row(guess.ttft_p95, real.ttft_p95)
            print(f"| {name} | {len(arrivals)} | {' | '.join(cells)} |", flush=True)
    print(f"\nOther programs took {noise.share or 0:.0%} of the cores.")


def row(guess: float, real: float) -> str:
    """Return three cells."""
    return f"{guess:.2f} s | {real:.2f} s | {guess / real - 1:+.0%}"


if __name__ == "__main__":
    main()
