"""Profile a decode step: its phases by the clock, its kernels by the profiler; and measure the cost of recording.

    python step_profile.py MODEL_DIR [--batch 256] [--context 562] [--block-size 16] [--steps 16] [--attention NAME]

Two labs on one model take turns, one that records and one that does not, so that noise hits both. The output is one
line of JSON: milliseconds per phase, the kernels that take most of the GPU's time, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE)]

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from workload import MAX_BATCHED_TOKENS, MAX_MODEL_LEN  # noqa: E402

from labengine import Lab  # noqa: E402
from labengine.events import RequestScheduled  # noqa: E402


def decoding_lab(selected: argparse.Namespace, *, record: bool) -> Lab:
    """Return a lab in which every request has its context and decodes."""
    longest = selected.context + 4 * selected.steps + 64
    blocks = selected.batch * -(-longest // selected.block_size)
    lab = Lab(
        selected.model,
        device="cuda",
        num_blocks=blocks,
        block_size=selected.block_size,
        max_num_seqs=selected.batch,
        max_num_batched_tokens=MAX_BATCHED_TOKENS,
        max_model_len=max(MAX_MODEL_LEN, longest),
        attention=selected.attention,
        record=record,
        check=False,
    )
    random = Random(0)
    for _ in range(selected.batch):
        prompt = [random.randint(0, 10000) for _ in range(selected.context)]
        lab.add(token_ids=prompt, max_tokens=4 * selected.steps + 60, ignore_eos=True, temperature=0.6)
    while any(request.is_prefill for request in _next_plan(lab)):
        pass
    for _ in range(4):
        lab.step()
    return lab


def _next_plan(lab: Lab) -> list[Any]:
    """Take a step; return its RequestScheduled events."""
    seen: list[Any] = []
    with lab.hooks.subscribe(seen.append, RequestScheduled):
        lab.step()
    return seen


def phases(lab: Lab, num_steps: int) -> dict[str, float]:
    """Return each phase's median milliseconds, including the wait for the GPU's work that it launched."""
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(num_steps):
        torch.cuda.synchronize()
        before = perf_counter()
        for phase in lab.phases():
            torch.cuda.synchronize()
            now = perf_counter()
            times[phase].append(1000 * (now - before))
            before = now
    return {phase: median(seconds) for phase, seconds in times.items()}


def kernels(lab: Lab, num_steps: int = 10, shown: int = 12) -> dict[str, Any]:
    """Return the GPU's milliseconds per step, in total and by kernel, longest first."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(num_steps):
            lab.step()
        torch.cuda.synchronize()
    rows = [
        (event.key, event.self_device_time_total / 1000 / num_steps, event.count // num_steps)
        for event in profiled.key_averages()
        if event.self_device_time_total > 0 and event.device_type == torch.autograd.DeviceType.CUDA
    ]
    rows.sort(key=lambda row: -row[1])
    top = [{"kernel": name[:100], "ms": ms, "calls": calls} for name, ms, calls in rows[:shown]]
    return {"gpu_ms": sum(ms for _, ms, _ in rows), "kernels": top}


def recording_cost(silent: Lab, recording: Lab, num_steps: int) -> dict[str, float]:
    """Return the median milliseconds of whole steps; the labs take turns at going first."""
    times: dict[Lab, list[float]] = {silent: [], recording: []}
    for round_number in range(num_steps):
        for lab in (silent, recording) if round_number % 2 else (recording, silent):
            started = perf_counter()
            lab.step()
            times[lab].append(1000 * (perf_counter() - started))
    without, with_it = median(times[silent]), median(times[recording])
    return {"silent_ms": without, "recorded_ms": with_it, "ratio": with_it / without}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--context", type=int, default=562)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--attention")
    selected = parser.parse_args()
    silent, recording = (decoding_lab(selected, record=record) for record in (False, True))
    result: dict[str, Any] = {
        "batch": selected.batch,
        "context": selected.context,
        "block_size": selected.block_size,
        **{key: silent.status()[key] for key in ("attention", "forward")},
        "recording": recording_cost(silent, recording, selected.steps),
        "phases_ms": phases(silent, selected.steps),
        **kernels(silent),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
