"""Compare the engine on a CPU with its peers and with the machine's limits, by SmolLM2-135M.

    python benchmarks/engine [--rounds 5] [--vllm PYTHON] [--out FILE] [--quick]

PYTHON: an interpreter with vLLM's CPU build (default: LABENGINE_VLLM_PYTHON); without it vLLM is left out, with a note.
transformers is already in our environment.

Every engine runs in a separate process, with the same weights (bf16), number of threads and random prompts, greedy, to
the last token. The engines take turns, case by case and round by round, so that noise hits all alike; each round starts
with a different engine. The table has medians, with the lowest and highest round in brackets; ratios are taken within a
round. Each round also measures the machine's limits (see limits.py) and the share of them that labengine reaches.
--out keeps every round as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from cases import CASES, Figures, Settings, cached_length, figures, warm_up
from floors import ModelShape, machine_of
from floors import limits as limits_of
from limits import NAMES, Limits
from machine import facts, headline
from peers import Peer, PeerError, started
from report import Rounds, absolute_table, of_rounds, ratio_table, spread

from labengine import model_path

QUESTION = "The capital of France is"


def selected_pythons(selected: argparse.Namespace) -> dict[str, str]:
    """Return the engines that run, and their interpreters."""
    pythons = {"ours": sys.executable}
    if not selected.quick:
        pythons["watched"] = sys.executable
    if selected.vllm:
        pythons["vllm"] = selected.vllm
    else:
        print("vllm: left out; name an interpreter with --vllm")
    return pythons | {"continuous": sys.executable, "generate": sys.executable}


def options(selected: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Return a worker's options."""
    longest = max(settings.prompt + settings.new, cached_length(settings)) + 32
    return {
        "model": str(model_path(selected.model)),
        "dtype": selected.dtype,
        "threads": selected.threads,
        "max_batch": settings.batch,
        "max_length": longest,
        "pool_tokens": settings.batch * longest,
        "kv_gib": 2,
    }


def one_round(number: int, peers: list[Peer], settings: Settings) -> dict[str, Figures]:
    """Measure every case with every engine, in turns."""
    found: dict[str, Figures] = {peer.engine: {} for peer in peers}
    for case in CASES:
        for round_number in range(len(peers)):
            peer = peers[(round_number + number) % len(peers)]
            found[peer.engine] |= case(peer, settings, f"round {number}")
    return found


def agreement(peers: list[Peer], model: str) -> dict[str, int]:
    """Return how many of 16 greedy tokens equal ours, from the first on, as a check of the model."""
    from tokenizers import Tokenizer

    prompt = Tokenizer.from_file(f"{model_path(model)}/tokenizer.json").encode(QUESTION).ids
    answers = {peer.engine: peer.generate([prompt], 16)["first"] for peer in peers}
    pairs = {engine: list(zip(answers["ours"], tokens, strict=True)) for engine, tokens in answers.items()}
    return {
        engine: next((i for i, (our, their) in enumerate(pair) if our != their), len(pair))
        for engine, pair in pairs.items()
    }


def measured(selected: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Run all rounds; return the results, ready for JSON."""
    shape = ModelShape.of(model_path(selected.model))
    machine = Limits(selected.threads)
    peers = started(selected_pythons(selected), options(selected, settings), warm_up(settings))
    rounds: Rounds = {peer.engine: [] for peer in peers}
    limits: list[Figures] = []
    floors: list[Figures] = []
    try:
        agreed = agreement(peers, selected.model)
        for round_number in range(selected.rounds):
            started_at = perf_counter()
            limits.append(machine.measure())
            floors.append(limits_of(shape, machine_of(limits[-1], selected.dtype), settings))
            for engine, found in one_round(round_number, peers, settings).items():
                rounds[engine].append(found)
            print(f"round {round_number + 1} of {selected.rounds}: {perf_counter() - started_at:.0f} s", flush=True)
    finally:
        for peer in peers:
            peer.close()
    return {
        "kind": "engine",
        "machine": facts(selected.threads),
        "model": selected.model,
        "dtype": selected.dtype,
        "names": {peer.engine: peer.name for peer in peers},
        "about": {peer.engine: peer.about for peer in peers},
        "figures": {key: [figure.name, figure.unit] for key, figure in figures(settings).items()},
        "noise": {peer.engine: median(peer.noises) if peer.noises else None for peer in peers},
        "agreement": agreed,
        "machine_limits": limits,
        "limits": floors,
        "rounds": rounds,
    }


def show(found: dict[str, Any], settings: Settings) -> None:
    """Markdown."""
    kinds = figures(settings)
    print(f"\n{headline(found['machine'])}; {found['model']}, {found['dtype']}\n")
    limits = {key: of_rounds(found["machine_limits"], key) for key in NAMES}
    print("; ".join(f"{NAMES[key]}: {spread(values)}" for key, values in limits.items()) + "\n")
    print(absolute_table(found["names"], kinds, found["rounds"]))
    print("\n–: the engine does not support this, such as a prompt with a cached beginning.\n")
    print("labengine's speed relative to each engine, round by round, and its share of the machine's limit:\n")
    print(ratio_table(found["names"], kinds, found["rounds"], found["limits"]) + "\n")
    for engine, name in found["names"].items():
        about = ", ".join(f"{key} {value}" for key, value in found["about"][engine].items())
        noise = found["noise"][engine]
        heard = "" if noise is None else f"; other programs took {noise:.0%} of the cores"
        print(f"- {name}: {found['agreement'][engine]} of 16 tokens equal ours{heard}; {about}")
    loudest = max((noise for noise in found["noise"].values() if noise is not None), default=0.0)
    if loudest > 0.05:
        print(f"\nThis machine was not quiet: other programs took up to {loudest:.0%} of the cores. Do not quote these")
        print("figures, because engines whose threads spin while they wait lose far more than the others.")


def main() -> None:
    """Measure in turns, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--model", default="smollm2", help="a name that labengine knows")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--vllm", default=os.environ.get("LABENGINE_VLLM_PYTHON"))
    parser.add_argument("--out", type=Path, help="keep every round as JSON")
    parser.add_argument("--quick", action="store_true", help="one round with 16 new tokens, as a smoke test")
    selected = parser.parse_args()
    settings = Settings(new=16, tails=1) if selected.quick else Settings()
    selected.rounds = 1 if selected.quick else selected.rounds
    try:
        found = measured(selected, settings)
    except PeerError as error:
        sys.exit(str(error))
    show(found, settings)
    if selected.out:
        selected.out.parent.mkdir(parents=True, exist_ok=True)
        selected.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
