"""Measure the tap's cost for vLLM: a whole engine with a model on a CPU, with and without the tap; and a keyframe.

    PATH_TO_VLLM/bin/python benchmarks/tap_cost.py --model DIR [--requests 16 256] [--rounds 24] [--blocks 10000 100000]

It runs in an environment with vLLM 0.32, in one process. All requests decode together. A round is one window of steps
for each way, in an order that rotates from round to round; the first steps of a window, with a keyframe, are left out.
A sample is a window's median relative to the untapped window of its round. Times are of the engine's thread: the wall
clock of EngineCore's step, and the processor time of schedule and update, without waits for the writer's thread. The
ways to a file and to a viewer have a thread that writes, and the viewer a process that reads and discards. Intervals
are 95 % bootstrap intervals of the median.

A keyframe is of a pool with cached blocks, without a model: the copy is made on the engine's thread, rows and JSON on
the writer's.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep, thread_time
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", OMP_NUM_THREADS="1", VLLM_CPU_OMP_THREADS_BIND="nobind")
os.environ.update(VLLM_CPU_KVCACHE_SPACE="6")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("tests", "tests/support", "vllm_tap")]

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.v1.outputs import ModelRunnerOutput  # noqa: E402

from differential import vllm_upstream_scheduler as upstream  # noqa: E402
from labengine_vllm.engine import Engine  # noqa: E402
from labengine_vllm.recorder import Recorder  # noqa: E402
from labengine_vllm.state import Keyframe  # noqa: E402
from labengine_vllm.tap import Tap  # noqa: E402
from labengine_vllm.tokens import TokenIds  # noqa: E402

WINDOW, SKIPPED, PROMPT = 6, 2, 32
NUM_RESAMPLED = 2000
WAYS = ("untapped", "nobody listens", "to a file", "to a viewer")
ADDRESSES = {"nobody listens": "unix", "to a file": "file", "to a viewer": "unix"}
READER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    while connection.recv(1 << 20):
        pass
"""

Samples = dict[str, list[dict[str, float]]]
"""Median seconds of a step in a window, by way and round: `step` (wall clock) and `scheduler` (processor time)."""


def engine_samples(model: str, num_requests: int, folder: Path, num_rounds: int) -> Samples:
    """Decode with each way's tap in turns."""
    num_decoded = num_rounds * len(WAYS) * (WINDOW + SKIPPED) + 64
    length = PROMPT + num_decoded
    llm = LLM(
        model,
        max_model_len=length,
        max_num_seqs=num_requests,
        max_num_batched_tokens=max(length, PROMPT * num_requests),
        block_size=32,
        num_gpu_blocks_override=num_requests * (length // 32 + 2),
        enforce_eager=True,
        disable_log_stats=True,
        dtype="bfloat16",
    )
    parameters = SamplingParams(temperature=0, max_tokens=num_decoded, ignore_eos=True, detokenize=False)
    for number in range(num_requests):
        prompt = {"prompt_token_ids": [(number * 7 + j * 13) % 5000 for j in range(PROMPT)]}
        llm.llm_engine.add_request(str(number), prompt, parameters)
    core = llm.llm_engine.engine_core
    while core.engine_core.scheduler.waiting:
        core.get_output()
    samples: Samples = {way: [] for way in WAYS}
    for number in range(num_rounds):
        first = number % len(WAYS)
        for way in (*WAYS[first:], *WAYS[:first]):
            samples[way].append(_window(core, way, folder / f"{number}-{way.split()[-1]}"))
    llm.llm_engine.abort_request([str(number) for number in range(num_requests)])
    core.shutdown()
    return samples


def _window(core: Any, way: str, folder: Path) -> dict[str, float]:
    """Return the medians of one window of steps."""
    scheduler = core.engine_core.scheduler
    with _tapped(scheduler, way, folder) as is_ready:
        core.get_output()
        while not is_ready():
            sleep(0.01)
        for _ in range(SKIPPED - 1):
            core.get_output()
        with _timed(scheduler) as spent:
            steps, scheduling = [], []
            for _ in range(WINDOW):
                before, began = sum(spent), perf_counter()
                core.get_output()
                steps.append(perf_counter() - began)
                scheduling.append(sum(spent) - before)
    return {"step": median(steps), "scheduler": median(scheduling)}


@contextmanager
def _tapped(scheduler: Any, way: str, folder: Path) -> Iterator[Callable[[], bool]]:
    """Attach a tap, and the way's viewer if it has one. Yields a function that tells if events flow, after a step."""
    if way not in ADDRESSES:
        yield lambda: True
        return
    tap = Tap.attached(scheduler, f"{ADDRESSES[way]}:{folder}")
    viewer = None
    if way == "to a viewer":
        (socket,) = folder.glob("*.sock")
        viewer = subprocess.Popen([sys.executable, "-S", "-c", READER, str(socket)])
    yield lambda: viewer is None or tap.recorder.is_listening
    if not tap.is_attached:
        raise RuntimeError("the tap detached; see its log for the reason")
    tap.close()
    if viewer is not None:
        viewer.wait()


@contextmanager
def _timed(scheduler: Any) -> Iterator[list[float]]:
    """Collect the processor seconds of this thread in schedule and update, the tap's wrappers included."""
    spent: list[float] = []
    former = {name: getattr(scheduler, name) for name in ("schedule", "update_from_output")}
    is_own = {name: name in vars(scheduler) for name in former}

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                spent.append(thread_time() - began)

        return call

    for name, method in former.items():
        setattr(scheduler, name, timed(method))
    yield spent
    for name, method in former.items():
        if is_own[name]:
            setattr(scheduler, name, method)
        else:
            delattr(scheduler, name)


def interval(samples: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the samples' median, by bootstrap."""
    random = Random(0)
    medians = sorted(median(random.choices(samples, k=len(samples))) for _ in range(NUM_RESAMPLED))
    return medians[NUM_RESAMPLED // 40], medians[-NUM_RESAMPLED // 40]


def engine_rows(model: str, num_requests: int, folder: Path, num_rounds: int) -> list[dict[str, Any]]:
    """Return one row per way to tap a whole engine, with ratios to the untapped windows of the same rounds."""
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


def take_step(scheduler: Any) -> None:
    """Take a step without a model; every request with all its tokens computed samples one."""
    plan = scheduler.schedule()
    names = list(plan.num_scheduled_tokens)
    requests = [scheduler.requests[name] for name in names]
    output = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: i for i, name in enumerate(names)},
        sampled_token_ids=[[7] if one.num_computed_tokens >= one.num_tokens else [] for one in requests],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )
    scheduler.update_from_output(plan, output)


def keyframe_times(num_blocks: int, times: int = 7) -> dict[str, Any]:
    """Return the median milliseconds of a keyframe in the engine and in its encoder, and its bytes."""
    size, num_requests = 16, num_blocks // 128
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
        take_step(vllm.scheduler)
    engine, recorder = Engine.of(vllm.scheduler), Recorder(TokenIds())
    took, parts, encoding, num_bytes = [], [], [], 0
    gc.collect()
    gc.freeze()  # like vLLM's EngineCore before its first step
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


def main() -> None:
    """Print the rows."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, help="a model's directory")
    options.add_argument("--requests", type=int, nargs="*", default=[16, 256])
    options.add_argument("--rounds", type=int, default=24)
    options.add_argument("--blocks", type=int, nargs="*", default=[10_000, 100_000])
    wanted = options.parse_args()
    for num_blocks in wanted.blocks:
        print(keyframe_times(num_blocks), flush=True)
    with TemporaryDirectory() as folder:
        for number in wanted.requests:
            print(*engine_rows(wanted.model, number, Path(folder, str(number)), wanted.rounds), sep="\n", flush=True)


if __name__ == "__main__":
    main()
