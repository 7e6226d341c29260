"""Where the time of a whole step goes: the phases, and inside the forward pass its ops.

    python benchmarks/profile_step.py [--model smollm2] [--dtype bfloat16] [--batch 1 16] [--context 128] [--prefill 16]
                                      [--out FILE] [--quick]

Decode steps at each batch size, then steps that compute --prefill prompts of --context tokens at once. A native forward
times every op itself; of any other, torch's profiler names the operators. Of a matrix, what it reads and multiplies per
second is told beside the machine's limits (see limits.py), measured just before. Medians over the steps.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from limits import Limits
from machine import facts, headline

from labengine import Lab

PHASES = ("schedule", "forward", "sample", "update")
LAYER = re.compile(r"^layers\.\d+\.")

Milliseconds = dict[str, float]


class NativeOps:
    """In a native forward's place: computes the same, and keeps what each op took."""

    def __init__(self, forward: Any, element_size: int) -> None:
        self._forward, self._element_size = forward, element_size
        self._timed: list[list[tuple[str, float]]] = []
        self._rows = 0, 0

    def __call__(self, step: Any) -> Any:
        logits, ops = self._forward.profile(step)
        self._timed.append(ops)
        self._rows = step.num_tokens, step.sample_rows.shape[0]
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._forward, name)

    @property
    def steps(self) -> list[Milliseconds]:
        """By op, all layers together. Made afterwards: what the profile itself takes is no part of a step."""
        steps = []
        for ops in self._timed:
            took: Milliseconds = defaultdict(float)
            for name, seconds in ops:
                took[LAYER.sub("", name)] += seconds * 1e3
            steps.append(dict(took))
        return steps

    @property
    def matrices(self) -> dict[str, tuple[float, float]]:
        """GB read and GFLOP multiplied per step."""
        from labengine.engine.native.layout import OpKind

        num_tokens, num_sampling = self._rows
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        program = self._forward._program
        for name, op in zip(program.names, program.ops, strict=True):
            if op.kind == OpKind.LINEAR:
                rows = num_sampling if op.is_sampling else num_tokens
                sums[LAYER.sub("", name)][0] += op.n * op.k * self._element_size / 1e9
                sums[LAYER.sub("", name)][1] += 2 * rows * op.n * op.k / 1e9
        return {name: (read, multiplied) for name, (read, multiplied) in sums.items()}


def timed_steps(lab: Lab, num_steps: int) -> list[Milliseconds]:
    """Milliseconds by phase, and of the whole step; what is left is the session."""
    steps = []
    for _ in range(num_steps):
        begun = before = perf_counter()
        took = {}
        for phase in lab.phases():
            now = perf_counter()
            took[phase], before = (now - before) * 1e3, now
        took["whole"] = (perf_counter() - begun) * 1e3
        steps.append(took)
    return steps


def medians(steps: list[Milliseconds]) -> Milliseconds:
    """Name by name."""
    return {name: median(step[name] for step in steps) for name in steps[0]}


def profiled(title: str, lab: Lab, element_size: int, take_steps: Callable[[], list[Milliseconds]]) -> dict[str, Any]:
    """Milliseconds per phase and per op, what no op accounts for, and what the matrices read and multiply."""
    runner = lab.session.model.runner
    forward = runner._forward
    if not hasattr(forward, "profile"):
        steps = take_steps()
        phases = medians(steps)
        ops = _by_torch(take_steps, phases["forward"] + phases["sample"])
        others = {"staging": phases["forward"] - sum(ops.values()), "session": median(map(_session, steps))}
        return {"title": title, "phases": phases, "ops": ops, "rest": others, "matrices": {}}
    watching = runner._forward = NativeOps(forward, element_size)
    steps = take_steps()
    runner._forward = forward
    pairs = zip(steps, watching.steps, strict=True)
    others = {
        "staging": median(step["forward"] - sum(ops.values()) for step, ops in pairs),
        "session": median(map(_session, steps)),
    }
    ops = medians(watching.steps)
    return {"title": title, "phases": medians(steps), "ops": ops, "rest": others, "matrices": watching.matrices}


def _session(step: Milliseconds) -> float:
    return step["whole"] - sum(step[phase] for phase in PHASES)


def _by_torch(take_steps: Callable[[], object], unprofiled: float) -> Milliseconds:
    """The dozen operators that take the most time themselves, scaled to what they take when no profiler slows them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        take_steps()
    rows = {row.key: row.self_cpu_time_total for row in profile.key_averages()}
    factor = unprofiled / sum(rows.values())
    return {name: took * factor for name, took in sorted(rows.items(), key=lambda item: -item[1])[:12]}


def profile_decode(selected: argparse.Namespace, batch: int) -> dict[str, Any]:
    """Requests of one length that all decode."""
    with _lab(selected, batch, 3 * selected.steps) as lab:
        _add(lab, batch, selected.context, 3 * selected.steps + 8, 0)
        while len(lab.step().sampled) < batch:
            pass
        timed_steps(lab, 4)
        return profiled(f"decode, batch {batch}", lab, _size(selected), lambda: timed_steps(lab, selected.steps))


def profile_prefill(selected: argparse.Namespace) -> dict[str, Any]:
    """Prompts that are computed whole in one step, and finish."""
    number, count, repeats = selected.prefill, iter(range(1000)), max(2, selected.steps // 8)
    with _lab(selected, number, 0) as lab:

        def steps() -> list[Milliseconds]:
            taken = []
            for _ in range(repeats):
                _add(lab, number, selected.context, 1, 1 + next(count))
                taken += timed_steps(lab, 1)
            return taken

        steps()
        return profiled(f"prefill, {number} prompts of {selected.context}", lab, _size(selected), steps)


def _lab(selected: argparse.Namespace, batch: int, num_new: int) -> Lab:
    blocks = batch * (-(-(selected.context + num_new + 8) // 16) + 2)
    tokens = max(2048, batch * selected.context)
    switches = {"record": selected.watched, "check": selected.watched}
    return Lab(
        selected.model,
        dtype=selected.dtype,
        num_blocks=blocks,
        max_num_seqs=batch,
        max_num_batched_tokens=tokens,
        **switches,
    )


def _add(lab: Lab, number: int, length: int, max_tokens: int, salt: int) -> None:
    for request in range(number):
        ids = [300 + (request * 7919 + salt * 104_729 + i * 31) % 30_000 for i in range(length)]
        lab.add(token_ids=ids, max_tokens=max_tokens, ignore_eos=True)


def _size(selected: argparse.Namespace) -> int:
    return 4 if selected.dtype == "float32" else 2


def table(found: dict[str, Any]) -> str:
    """Markdown: phases, then what the forward consists of."""
    phases, ops = found["phases"], found["ops"]
    complete = phases["whole"]
    lines = [f"| {found['title']} | ms | of the step | GB/s | GFLOP/s |", "|---|---:|---:|---:|---:|"]

    def row(name: str, took: float, read: str = "", multiplied: str = "") -> None:
        lines.append(f"| {name} | {took:.3f} | {took / complete:.1%} | {read} | {multiplied} |")

    row("the whole step", complete)
    for phase in PHASES:
        row(phase, phases[phase])
        if phase != "forward":
            continue
        for name, took in sorted(ops.items(), key=lambda item: -item[1]):
            read, multiplied = found["matrices"].get(name, (0.0, 0.0))
            rates = (f"{read / took * 1e3:.1f}", f"{multiplied / took * 1e3:.0f}") if read else ("", "")
            row(f"· {name}", took, *rates)
        row("· what no op accounts for: staging above all", found["rest"]["staging"])
    row("the session", found["rest"]["session"])
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--prefill", type=int, default=16)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--watched", action="store_true", help="recorded and checked, as a lab comes")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, help="keep the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="a few steps")
    selected = parser.parse_args()
    selected.steps = 16 if selected.quick else selected.steps
    limits = Limits(selected.threads).measure()
    print(f"{headline(facts(selected.threads))}; {selected.model}, {selected.dtype}")
    print(f"limits: {limits['read']:.1f} GB/s, bf16 {limits['bf16']:.0f}, fp32 {limits['fp32']:.0f} GFLOP/s\n")
    found = [*(profile_decode(selected, batch) for batch in selected.batch), profile_prefill(selected)]
    for one in found:
        print(table(one) + "\n")
    if selected.out:
        kept = {"kind": "profile", "machine": facts(selected.threads), "limits": limits, "profiles": found}
        selected.out.parent.mkdir(parents=True, exist_ok=True)
        selected.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
