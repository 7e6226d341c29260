"""What the lab costs beside the engine: recording, checks, the oracle, an open dashboard, as ratios of a decode step.

    python benchmarks/lab_cost.py [--batch 1 16 256] [--rounds 8] [--out FILE] [--quick]

SmolLM2 in bf16, one lab per way of being watched, all on equal prompts; they take turns, a dozen steps each, and every
turn's median is divided by that of the lab that nobody watches, in the same round. The second table is the bookkeeping
alone: labs on the simulated model, in thread CPU time, the quietest round; what each way adds as a share of the real,
silent step: finer than the first, where the cost is smaller than the noise. A dashboard works on a thread of its own,
so that only the first table has it; its messages are serialized as for a browser, and go nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, thread_time
from typing import Any

import comm
import torch
from machine import facts, headline, listening_for_noise

from labengine import Lab

PROMPT, CHUNK, SKIPPED = 32, 12, 2


class SerializingComm(comm.base_comm.BaseComm):
    """A channel to no browser, for which messages are made all the same."""

    def publish_msg(
        self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
    ) -> None:
        json.dumps({"data": data, "metadata": metadata}, default=str).encode()


class NoOracle:
    """In the oracle's place: sees nothing, so that the invariants stand alone."""

    def __getattr__(self, name: str) -> Callable[..., list[Any]]:
        return lambda *_: []


def without_oracle(lab: Lab) -> Lab:
    """A checked lab, its attention reads unjudged."""
    assert lab.session.watch is not None and lab.session.watch._judge is not None
    lab.session.watch._judge.oracle = NoOracle()
    lab.session.watch._claims = None  # it asks the oracle what blocks hold
    return lab


def with_dashboard(lab: Lab) -> Lab:
    """A lab as a notebook has it, its dashboard open."""
    lab.show()
    return lab


WATCHED: dict[str, tuple[dict[str, bool], Callable[[Lab], Lab]]] = {
    "silent": ({"record": False, "check": False}, lambda lab: lab),
    "recorded": ({"record": True, "check": False}, lambda lab: lab),
    "invariants": ({"record": False, "check": True}, without_oracle),
    "invariants and oracle": ({"record": False, "check": True}, lambda lab: lab),
    "recorded and checked": ({"record": True, "check": True}, lambda lab: lab),
    "the same, dashboard open": ({"record": True, "check": True}, with_dashboard),
}


@contextmanager
def decoding(model: str, batch: int, num_steps: int, kind: str) -> Iterator[Lab]:
    """A lab watched in one way, all of whose requests decode, as in a run."""
    switches, prepared = WATCHED[kind]
    blocks = batch * (-(-(PROMPT + num_steps + 8) // 16) + 1)
    lab = Lab(
        model, dtype=None if model == "simulated" else "bfloat16", num_blocks=blocks, max_num_seqs=batch, **switches
    )
    with prepared(lab), lab.session.runs.running():
        for request in range(batch):
            start = 300 + PROMPT * request
            lab.add(token_ids=range(start, start + PROMPT), max_tokens=num_steps + 8, ignore_eos=True)
        while len(lab.step().sampled) < batch:
            pass
        yield lab


def chunk_median(lab: Lab, clock: Callable[[], float]) -> float:
    """Seconds of a step: the median of a dozen in a row, the first two left out."""
    seconds = []
    for _ in range(CHUNK):
        started = clock()
        lab.step()
        seconds.append(clock() - started)
    return median(seconds[SKIPPED:])


def seconds_by_kind(
    model: str, batch: int, rounds: int, kinds: list[str], clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds per step, by way of watching and round."""
    num_steps = (rounds + 1) * CHUNK
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    with ExitStack() as stack:
        labs = {kind: stack.enter_context(decoding(model, batch, num_steps, kind)) for kind in kinds}
        for round_number in range(rounds):
            for place in range(len(kinds)):
                kind = kinds[(place + round_number) % len(kinds)]
                found[kind].append(chunk_median(labs[kind], clock))
                sleep(0.1)  # a dashboard sends what it has
    return found


def measured(selected: argparse.Namespace) -> list[dict[str, Any]]:
    """One record per batch size."""
    rows = []
    for batch in selected.batch:
        with listening_for_noise() as noise:
            real = seconds_by_kind("smollm2", batch, selected.rounds, list(WATCHED), perf_counter)
        quiet = seconds_by_kind("simulated", batch, selected.rounds, list(WATCHED)[:-1], thread_time)
        rows.append({"batch": batch, "real": real, "bookkeeping": quiet, "noise": noise.share})
        print(f"batch {batch} done", flush=True)
    return rows


def ratio_cell(row: dict[str, Any], kind: str) -> str:
    """The median of the rounds' ratios, and the middle half of them."""
    ratios = sorted(one / silent for one, silent in zip(row["real"][kind], row["real"]["silent"], strict=True))
    quarter = len(ratios) // 4
    return f"{median(ratios):.3f} ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})"


def added_cell(row: dict[str, Any], kind: str) -> str:
    """Microseconds that the bookkeeping grows by, and their share of the real step."""
    if kind not in row["bookkeeping"]:
        return "–"
    added = min(row["bookkeeping"][kind]) - min(row["bookkeeping"]["silent"])
    return f"{added * 1e6:,.0f} us, {added / median(row['real']['silent']):.2%}"


def table(rows: list[dict[str, Any]], cell: Callable[[dict[str, Any], str], str]) -> str:
    """One row per way of watching, one column per batch size."""
    lines = ["| | " + " | ".join(f"batch {row['batch']}" for row in rows) + " |", "|---|" + "---:|" * len(rows)]
    for kind in list(WATCHED)[1:]:
        lines.append(f"| {kind} | " + " | ".join(cell(row, kind) for row in rows) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 256])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="keep every round as JSON")
    parser.add_argument("--quick", action="store_true", help="two rounds, batches of 1 and 16")
    selected = parser.parse_args()
    if selected.quick:
        selected.batch, selected.rounds = [1, 16], 2
    torch.set_num_threads(selected.threads)
    comm.create_comm = SerializingComm
    rows = measured(selected)
    print(f"\n{headline(facts(selected.threads))}; smollm2, bfloat16\n")
    for row in rows:
        reported = "" if row["noise"] is None else f"; others took {row['noise']:.0%} of the cores"
        print(f"batch {row['batch']}: a silent step takes {median(row['real']['silent']) * 1e3:.2f} ms{reported}")
    print(f"\nStep time, as a ratio of the silent one:\n\n{table(rows, ratio_cell)}")
    print(f"\nThe bookkeeping alone, what each adds:\n\n{table(rows, added_cell)}")
    if selected.out:
        found = {"kind": "lab_cost", "machine": facts(selected.threads), "rows": rows}
        selected.out.parent.mkdir(parents=True, exist_ok=True)
        selected.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
