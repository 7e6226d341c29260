"""How the engine grows: with the batch, the context, the pool, and the share of a prompt that is cached.

    python benchmarks/growth.py [--rounds 3] [--vllm PYTHON] [--transformers] [--dtype bfloat16] [--out FILE] [--quick]

SmolLM2. Batch 1 to 256 (contexts of 128 tokens), context 128 to 8,192 (one request) and hits of 0 to 100 % of a prompt
of 1,024 tokens: labengine and, where they are asked for, vLLM and transformers' generate(), which keeps no prefix, in
turns, beside what the machine's limits of the same round allow at best (see engine/floors.py). Pool of 1,000 to 100,000
blocks, full of cached content: the bookkeeping alone, in thread CPU time, and a real step with blocks of 4 as far as
memory allows. Medians of the rounds; --out keeps all of them as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parent / "engine"))

from cases import random_prompts
from floors import Machine, ModelShape, machine_of, step_seconds
from limits import Limits
from machine import facts, headline
from peers import Peer, started, worker_options
from pool_growth import bookkeeping, real_steps
from report import number

from labengine import model_path

MAX_LENGTH, NEW = 8192, 16
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 512, 1024, 2048, 4096, 8160)
SHARES = (0, 25, 50, 75, 100)
POOLS = (1_000, 3_000, 10_000, 30_000, 100_000)

Curve = dict[int, float]


KEEP_NOTHING = ("generate",)
"""Engines without a prefix cache: they gain nothing from a prompt's first run."""


def warm(peer: Peer, prompts: list[list[int]]) -> None:
    """Have the engine keep the prompts, if it does."""
    if peer.engine not in KEEP_NOTHING:
        peer.generate(prompts, 1)


def decode_rate(peer: Peer, batch: int, round_number: str) -> float:
    """Tokens per second of a decoding batch: the difference to a run that ends with the first token."""
    prompts = random_prompts(batch, 129, f"{round_number} batch {batch}")
    warm(peer, prompts)
    first, complete = peer.seconds(prompts, 1), peer.seconds(prompts, 1 + NEW)
    return batch * NEW / max(1e-9, complete - first)


def prefill_rate(peer: Peer, context: int, round_number: str) -> float:
    """Tokens per second of one prompt, nothing cached."""
    return context / peer.seconds(random_prompts(1, context, f"{round_number} prefill {context}"), 1)


def token_milliseconds(peer: Peer, context: int, round_number: str) -> float:
    """Per token of one request that decodes at a context."""
    prompts = random_prompts(1, context, f"{round_number} context {context}")
    warm(peer, prompts)
    first, complete = peer.seconds(prompts, 1), peer.seconds(prompts, 1 + NEW)
    return (complete - first) / NEW * 1e3


def first_token_milliseconds(peer: Peer, share: int, round_number: str) -> float:
    """To the first token of 1,024 + 16 tokens, a share of the 1,024 being cached."""
    [base] = random_prompts(1, 1024, f"{round_number} share {share}")
    [others] = random_prompts(1, 1040, f"{round_number} rest {share}")
    cached = 1024 * share // 100
    if cached:
        warm(peer, [base[:cached] + others[:1]])
    return peer.seconds([base[:cached] + others[cached:]], 1) * 1e3


CURVES: dict[str, tuple[Callable[[Peer, int, str], float], tuple[int, ...], str]] = {
    "batch": (decode_rate, BATCHES, "decode, contexts of 128, tok/s, by batch"),
    "prefill": (prefill_rate, CONTEXTS, "prefill of one prompt, tok/s, by its length"),
    "context": (token_milliseconds, CONTEXTS, "decode of one request, ms per token, by context"),
    "hit": (first_token_milliseconds, SHARES, "first token of 1,040 tokens, ms, by per cent of 1,024 cached"),
}


def floors(shape: ModelShape, machine: Machine) -> dict[str, Curve]:
    """The best that the limits allow, curve by curve."""
    length = 1040

    def fresh(share: int) -> int:
        return length - 1024 * share // 100

    return {
        "batch": {n: n / step_seconds(shape, machine, [(1, 137)] * n) for n in BATCHES},
        "prefill": {n: n / step_seconds(shape, machine, [(n, n)]) for n in CONTEXTS},
        "context": {n: step_seconds(shape, machine, [(1, n + NEW // 2)]) * 1e3 for n in CONTEXTS},
        "hit": {share: step_seconds(shape, machine, [(fresh(share), length)]) * 1e3 for share in SHARES},
    }


def one_round(round_number: int, peers: list[Peer], points: dict[str, tuple[int, ...]]) -> dict[str, dict[str, Curve]]:
    """By curve and engine; the engines take turns at every point."""
    found: dict[str, dict[str, Curve]] = {curve: {peer.engine: {} for peer in peers} for curve in points}
    for curve, selected in points.items():
        measure = CURVES[curve][0]
        for place, point in enumerate(selected):
            for peer in peers[(round_number + place) % len(peers) :] + peers[: (round_number + place) % len(peers)]:
                found[curve][peer.engine][point] = measure(peer, point, f"round {round_number}")
    return found


def medians(rounds: list[dict[str, dict[str, Curve]]]) -> dict[str, dict[str, Curve]]:
    """Point by point."""
    return {
        curve: {
            engine: {point: median(found[curve][engine][point] for found in rounds) for point in points}
            for engine, points in engines.items()
        }
        for curve, engines in rounds[0].items()
    }


def table(title: str, columns: dict[str, Curve], names: dict[str, str]) -> str:
    """One row per point."""
    points = list(next(iter(columns.values())))
    heads = " | ".join(names.get(column, column) for column in columns)
    lines = [f"{title}:\n", f"| | {heads} |", "|---:|" + "---:|" * len(columns)]
    for point in points:
        cells = (number(values[point]) if point in values else "–" for values in columns.values())
        lines.append(f"| {point:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def measured(selected: argparse.Namespace) -> dict[str, Any]:
    """All curves of all rounds, ready for JSON."""
    shape, limits = ModelShape.of(model_path(selected.model)), Limits(selected.threads)
    pythons = {"ours": sys.executable} | ({"vllm": selected.vllm} if selected.vllm else {})
    pythons |= {"generate": sys.executable} if selected.transformers else {}
    points = {curve: points[::3] if selected.quick else points for curve, (_, points, _) in CURVES.items()}
    peers = started(pythons, worker_options(selected, 256, MAX_LENGTH, 80_000), [(random_prompts(16, 128, "warm"), 4)])
    rounds, fastest = [], []
    try:
        for round_number in range(selected.rounds):
            found = limits.measure()
            machine = machine_of(found, selected.dtype)
            fastest.append({curve: {"limit": values} for curve, values in floors(shape, machine).items()})
            rounds.append(one_round(round_number, peers, points))
            print(f"round {round_number + 1} of {selected.rounds} done", flush=True)
    finally:
        for peer in peers:
            peer.close()
    pools = POOLS[::4] if selected.quick else POOLS
    return {
        "kind": "growth",
        "machine": facts(selected.threads),
        "dtype": selected.dtype,
        "names": {peer.engine: peer.name for peer in peers} | {"limit": "the machine's limit"},
        "titles": {curve: title for curve, (_, _, title) in CURVES.items()},
        "curves": {curve: engines | medians(fastest)[curve] for curve, engines in medians(rounds).items()},
        "rounds": rounds,
        "pool": {"bookkeeping": bookkeeping(pools), "step": real_steps(selected.model, pools)},
    }


def show(found: dict[str, Any]) -> None:
    """Markdown."""
    print(f"\n{headline(found['machine'])}; smollm2, {found['dtype']}\n")
    for curve, columns in found["curves"].items():
        print(table(found["titles"][curve], columns, found["names"]))
    pool = found["pool"]["bookkeeping"] | {"a real decode step of 16, blocks of 4, ms": found["pool"]["step"]}
    print(table("the pool's size, in blocks; bookkeeping in microseconds", pool, {}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--vllm", default=os.environ.get("LABENGINE_VLLM_PYTHON"))
    parser.add_argument("--transformers", action="store_true", help="generate() beside them")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--out", type=Path, help="keep every round as JSON")
    parser.add_argument("--quick", action="store_true", help="one round, every third point")
    selected = parser.parse_args()
    selected.model = "smollm2"
    selected.rounds = 1 if selected.quick else selected.rounds
    found = measured(selected)
    show(found)
    if selected.out:
        selected.out.parent.mkdir(parents=True, exist_ok=True)
        selected.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
