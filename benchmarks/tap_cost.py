"""What the tap costs vLLM's scheduler, paired with a scheduler without it, and how long a keyframe takes.

    PATH_TO_VLLM/bin/python benchmarks/tap_cost.py [--pairs 40] [--requests 16 256] [--blocks 10000 100000] [--out FILE]
        [--model DIR [--rounds 24]]

Runs in an environment with vLLM 0.32; without a model, but for the whole engine (tap_engine.py).
A pair is one short run of decoding requests without the tap
and one with it, in alternating order; the ratio of their median steps (schedule and update) is one sample. The interval
is of a bootstrap of the median ratio, 95 %. A keyframe is of a pool whose blocks are cached: the copy is made on the
engine's thread, rows and JSON on the writer's. All times are processor time of the thread, as other processes share the
machine: the engine's waits for the writer's thread are not in them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import thread_time
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("tests", "tests/support", "vllm_tap", "benchmarks")]

from tap_engine import WAYS, engine_samples  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402

from differential import vllm_upstream_scheduler as upstream  # noqa: E402
from labengine_vllm.engine import Engine  # noqa: E402
from labengine_vllm.recorder import Recorder  # noqa: E402
from labengine_vllm.state import Keyframe  # noqa: E402
from labengine_vllm.tap import Tap  # noqa: E402
from labengine_vllm.tokens import TokenIds  # noqa: E402

PROMPT, DECODED, BLOCK_SIZE, SKIPPED = 100, 40, 16, 3
NUM_RESAMPLED = 2000


def workload(num_requests: int) -> dict[str, Any]:
    """Return requests that start together and decode together."""
    prompts = [[(k * 7 + j * 13) % 5000 for j in range(PROMPT)] for k in range(num_requests)]
    return {
        "num_blocks": num_requests * (PROMPT + DECODED) // BLOCK_SIZE + num_requests + 50,
        "block_size": BLOCK_SIZE,
        "max_num_seqs": num_requests,
        "max_num_batched_tokens": 8192,
        "requests": [{"step": 0, "prompt": prompt, "max_tokens": DECODED} for prompt in prompts],
    }


def run(num_requests: int, address: str) -> tuple[float, int]:
    """Return the median seconds of schedule and update, and the steps taken. address: of a tap; empty for none."""
    vllm = upstream.Run(workload(num_requests))
    tap = Tap.attached(vllm.scheduler, address) if address else None
    vllm.join(0)
    seconds = []
    while vllm.scheduler.has_unfinished_requests():
        seconds.append(step(vllm.scheduler))
    if tap is not None:
        tap.close()
    return median(seconds[SKIPPED:]), len(seconds)


def step(scheduler: Any) -> float:
    """Take a step in which every request that has all its tokens samples one; return the scheduler's seconds."""
    began = thread_time()
    plan = scheduler.schedule()
    scheduled = thread_time()
    names = list(plan.num_scheduled_tokens)
    output = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] if _is_complete(scheduler.requests[name]) else [] for name in names],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    ready = thread_time()
    scheduler.update_from_output(plan, output)
    return thread_time() - ready + scheduled - began


def _is_complete(request: Any) -> bool:
    return bool(request.num_computed_tokens >= request.num_tokens)


def compared(num_requests: int, address: Callable[[], str], num_pairs: int) -> dict[str, Any]:
    """Return the median ratio of tapped to untapped steps, and its interval."""
    run(num_requests, ""), run(num_requests, address())
    ratios, untapped, tapped = [], [], []
    for number in range(num_pairs):
        order = ("", address()) if number % 2 else (address(), "")
        took = {bool(one): run(num_requests, one)[0] for one in order}
        untapped.append(took[False])
        tapped.append(took[True])
        ratios.append(took[True] / took[False])
    low, high = interval(ratios)
    return {
        "untapped_us": round(median(untapped) * 1e6, 1),
        "tapped_us": round(median(tapped) * 1e6, 1),
        "ratio": round(median(ratios), 4),
        "interval": [round(low, 4), round(high, 4)],
        "pairs": num_pairs,
    }


def interval(samples: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the samples' median, by bootstrap."""
    random = Random(0)
    medians = sorted(median(random.choices(samples, k=len(samples))) for _ in range(NUM_RESAMPLED))
    return medians[NUM_RESAMPLED // 40], medians[-NUM_RESAMPLED // 40]


def bytes_a_step(num_requests: int, folder: Path) -> int:
    """Return the bytes that one step takes in a file, without keyframes."""
    _, num_steps = run(num_requests, f"file:{folder}")
    lines = [line for file in folder.iterdir() for line in file.read_bytes().splitlines()]
    return sum(len(line) for line in lines if b'"e":' in line) // num_steps


def keyframe_times(num_blocks: int, times: int = 7) -> dict[str, Any]:
    """Return the median milliseconds that a keyframe takes the engine, and then its encoder; and its bytes."""
    size, num_requests = BLOCK_SIZE, num_blocks // 128
    prompts = [[(k * 7 + j * 13) % 50_000 for j in range(126 * size)] for k in range(num_requests)]
    vllm = upstream.Run(
        {
            "num_blocks": num_blocks,
            "block_size": size,
            "max_num_seqs": 64,
            "max_num_batched_tokens": 1 << 20,
            "requests": [{"step": 0, "prompt": prompt, "max_tokens": 2} for prompt in prompts],
        }
    )
    vllm.join(0)
    while len(vllm.scheduler.running) + len(vllm.scheduler.waiting) > 32:
        step(vllm.scheduler)
    engine, recorder = Engine.of(vllm.scheduler), Recorder(TokenIds())
    took, parts, encoding, num_bytes = [], [], [], 0
    gc.collect()
    gc.freeze()  # as vLLM's EngineCore does before its first step
    for _ in range(times):
        began = thread_time()
        state = Keyframe(engine, recorder)
        made = thread_time()
        num_bytes, longest = 0, 0.0
        at = thread_time()
        for part in state.parts():
            num_bytes += len(part)
            longest, at = max(longest, thread_time() - at), thread_time()
        parts.append(longest)
        took.append(made - began)
        encoding.append(thread_time() - made)
    num_cached = sum(block.block_hash is not None for block in engine.pool.blocks)
    milliseconds = {"engine_ms": round(median(took) * 1e3, 1), "encoder_ms": round(median(encoding) * 1e3, 1)}
    milliseconds |= {"longest_part_ms": round(median(parts) * 1e3, 1)}
    return {"num_blocks": num_blocks, "num_cached": num_cached, **milliseconds, "bytes": num_bytes}


def engine_rows(model: str, num_requests: int, folder: Path, num_rounds: int) -> list[dict[str, Any]]:
    """Return one row for each way to tap a whole engine; its ratios are to the untapped windows of the same rounds."""
    samples = engine_samples(model, num_requests, folder, num_rounds)
    untapped = samples[WAYS[0]]
    step, scheduler = (median(one[name] for one in untapped) for name in ("step", "scheduler"))
    rows = []
    for way in WAYS[1:]:
        pairs = list(zip(samples[way], untapped, strict=True))
        ratios = {
            "step": [tapped["step"] / plain["step"] for tapped, plain in pairs],
            "scheduler": [tapped["scheduler"] / plain["scheduler"] for tapped, plain in pairs],
            "share": [(tapped["scheduler"] - plain["scheduler"]) / plain["step"] for tapped, plain in pairs],
        }
        found = {name: [round(one, 5) for one in (median(some), *interval(some))] for name, some in ratios.items()}
        times = {"step_ms": round(step * 1e3, 1), "scheduler_us": round(scheduler * 1e6, 1)}
        rows.append({"requests": num_requests, "way": way, "rounds": num_rounds, **times, **found})
    return rows


def main() -> int:
    """Print the tables; the exit status."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=40)
    options.add_argument("--requests", type=int, nargs="*", default=[16, 256])
    options.add_argument("--blocks", type=int, nargs="*", default=[10_000, 100_000])
    options.add_argument("--model", help="a model's directory: the whole engine is measured as well")
    options.add_argument("--rounds", type=int, default=24)
    options.add_argument("--out", type=Path)
    wanted = options.parse_args()
    found: dict[str, Any] = {"date": date.today().isoformat(), "steps": [], "keyframes": [], "engine": []}
    with TemporaryDirectory() as folder:
        for number, num_blocks in enumerate(wanted.blocks):
            found["keyframes"].append(keyframe_times(num_blocks))
            print(found["keyframes"][number], flush=True)
        for num_requests in wanted.requests:
            for way in ("unix", "file"):
                result = compared(num_requests, lambda way=way: f"{way}:{folder}/{way}", wanted.pairs)
                row = {"requests": num_requests, "way": "nobody listens" if way == "unix" else "to a file", **result}
                found["steps"].append(row)
                print(row, flush=True)
            print(
                f"{num_requests} requests: {bytes_a_step(num_requests, Path(folder, str(num_requests)))} bytes a step"
            )
            if wanted.model:
                found["engine"] += engine_rows(
                    wanted.model, num_requests, Path(folder, f"e{num_requests}"), wanted.rounds
                )
                print(*found["engine"][-3:], sep="\n", flush=True)
    if wanted.out:
        wanted.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
