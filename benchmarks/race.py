"""Race editions with a prefix map and with a prefix tree on equal pools: what do they hit, compute and hold?

    python benchmarks/race.py [--editions vllm labengine labengine-radix] [--block-sizes 1 16] [--seeds 2]

The simulated model answers. Each traffic is a closed loop: what a user asks next depends on the answer, so it arrives
some steps after that. Figures are sums over the seeds, except the peak, which is the most blocks that requests ever
held, in tokens.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from labengine.config import EngineConfig, GroupSpec, SamplingParams
from labengine.core.editions import edition as edition_named
from labengine.engine.engine import Engine
from labengine.engine.simulated import SimulatedRunner
from labengine.events import PrefixHit, RequestPreempted, RequestScheduled
from labengine.record.hooks import Hooks

SLOTS, BUDGET, MAX_SEQS = 4_096, 512, 16

Tokens = list[int]


class Ask(NamedTuple):
    """A prompt, the tokens of its answer, and the steps until it arrives."""

    prompt: Tokens
    max_tokens: int
    wait: int = 0


Session = Iterator[list[Ask]]
"""Yields the next prompts; is sent all their texts, each the prompt and its answer."""


def words(rng: Random, low: int, high: int) -> Tokens:
    """Return between low and high random tokens."""
    return [rng.randrange(50_000) for _ in range(rng.randint(low, high))]


def chats(rng: Random) -> Iterator[Session]:
    """Conversations of up to eight turns behind one of two system prompts."""
    systems = [words(rng, 150, 250) for _ in range(2)]

    def chat(own: Random) -> Session:
        text = [*own.choice(systems)]
        for _ in range(own.randint(2, 8)):
            text += words(own, 10, 60)
            (text,) = yield [Ask(text, own.randint(10, 60), own.randint(0, 60))]  # type: ignore[misc]

    for _ in range(40):
        yield chat(Random(rng.random()))


def agents(rng: Random) -> Iterator[Session]:
    """Agents that try several continuations of a text at once, also from the middle of an answer."""
    tools = words(rng, 300, 400)

    def agent(own: Random) -> Session:
        texts = [[*tools, *words(own, 30, 80)]]
        for _ in range(own.randint(2, 4)):
            base = own.choice(texts)
            cut = base[: own.randint(len(tools) + 30, len(base))]
            tries = [Ask([*cut, *words(own, 3, 12)], own.randint(15, 50)) for _ in range(own.randint(2, 4))]
            texts = yield tries  # type: ignore[misc]

    for _ in range(16):
        yield agent(Random(rng.random()))


def documents(rng: Random) -> Iterator[Session]:
    """Questions about long documents, a few of which are popular."""
    papers = [words(rng, 500, 900) for _ in range(12)]

    def reader(own: Random) -> Session:
        for _ in range(own.randint(3, 8)):
            paper = papers[min(int(own.expovariate(0.4)), len(papers) - 1)]
            yield [Ask([*paper, *words(own, 8, 25)], own.randint(5, 25), own.randint(0, 30))]

    for _ in range(16):
        yield reader(Random(rng.random()))


def repeats(rng: Random) -> Iterator[Session]:
    """The same prompts over and over, each as long as some blocks of 16."""
    prompts = [words(rng, length, length) for length in rng.choices((32, 48, 64, 96), k=120)]

    def asker(own: Random) -> Session:
        for _ in range(40):
            prompt = prompts[min(int(own.expovariate(0.02)), len(prompts) - 1)]
            yield [Ask(prompt, own.randint(1, 8), own.randint(0, 6))]

    for _ in range(16):
        yield asker(Random(rng.random()))


TRAFFICS: dict[str, Callable[[Random], Iterator[Session]]] = {
    "chats": chats,
    "agents": agents,
    "documents": documents,
    "repeats": repeats,
}


class Race:
    """One edition under one traffic."""

    def __init__(self, edition: str, block_size: int, sessions: Iterator[Session]) -> None:
        hooks = Hooks(strict=True)
        config = EngineConfig(SLOTS // block_size, (GroupSpec(block_size),), MAX_SEQS, BUDGET)
        self.engine = Engine(config, SimulatedRunner(), edition_named(edition), hooks)
        self.counted: Counter[str] = Counter()
        hooks.subscribe(self._count, PrefixHit, RequestScheduled, RequestPreempted)
        self._due: list[tuple[int, int, Ask]] = []
        self._sessions = [*sessions]
        self._open: list[list[int]] = [[] for _ in self._sessions]
        """Per session, the requests whose answers it waits for."""
        self._size = block_size
        for number, session in enumerate(self._sessions):
            self._ask(number, next(session))

    def _ask(self, number: int, asked: list[Ask]) -> None:
        for ask in asked:
            self._due.append((self.engine.step_number + ask.wait, number, ask))

    def run(self) -> Counter[str]:
        """Take steps until every session is over; return the figures."""
        while self._due or any(self._open):
            for due in [one for one in self._due if one[0] <= self.engine.step_number or self.engine.scheduler.is_idle]:
                self._due.remove(due)
                _, number, (prompt, max_tokens, _) = due
                self._open[number].append(self.engine.add(prompt, SamplingParams(max_tokens=max_tokens)))
            self.engine.step()
            self._measure()
            self._go_on()
        self.counted["steps"] = self.engine.step_number
        return self.counted

    def _go_on(self) -> None:
        requests, waiting = self.engine.requests, {number for _, number, _ in self._due}
        for number, asked in enumerate(self._open):
            if asked and number not in waiting and all(requests[i].finish_reason for i in asked):
                texts = [[*requests[request_id].token_ids] for request_id in asked]
                self._open[number] = []
                try:
                    self._ask(number, self._sessions[number].send(texts))  # type: ignore[attr-defined]
                except StopIteration:
                    continue

    def _measure(self) -> None:
        tables = (request.block_tables[0] for request in self.engine.scheduler.running)
        held = len(set().union(*tables)) * self._size
        self.counted["peak"] = max(self.counted["peak"], held)

    def _count(self, event: PrefixHit | RequestScheduled | RequestPreempted) -> None:
        match event:
            case PrefixHit():
                self.counted["hit"] += event.num_tokens
            case RequestScheduled():
                self.counted["computed"] += event.num_tokens
            case _:
                self.counted["preempted"] += 1


def raced(traffic: str, edition: str, block_size: int, num_seeds: int) -> Counter[str]:
    """Return the figures of one edition, summed over the seeds."""
    total: Counter[str] = Counter()
    for seed in range(num_seeds):
        figures = Race(edition, block_size, TRAFFICS[traffic](Random(f"{traffic} {seed}"))).run()
        peak = max(total["peak"], figures["peak"])
        total += figures
        total["peak"] = peak
    return total


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traffics", nargs="+", default=[*TRAFFICS])
    parser.add_argument("--editions", nargs="+", default=["vllm", "labengine", "labengine-radix"])
    parser.add_argument("--block-sizes", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--seeds", type=int, default=2)
    selected = parser.parse_args()
    print("| traffic | block size | edition | tokens hit | tokens computed | preemptions | steps | peak |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    for traffic in selected.traffics:
        for size in selected.block_sizes:
            for name in selected.editions:
                one = raced(traffic, name, size, selected.seeds)
                figures = " | ".join(f"{one[key]:,}" for key in ("hit", "computed", "preempted", "steps", "peak"))
                print(f"| {traffic} | {size} | `{name}` | {figures} |", flush=True)


if __name__ == "__main__":
    main()
