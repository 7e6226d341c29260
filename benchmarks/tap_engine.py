"""What the tap costs a whole engine: vLLM with a model on a CPU, in one process, with and without the tap in turns.

`benchmarks/tap_cost.py --model DIR` runs it. All requests decode together. A round is one window of steps for each way,
in an order that moves on from round to round; the first steps of a window, with a keyframe, are left out. A sample is
a window's median against the untapped window of its round. Times of the engine's thread: the wall clock of EngineCore's
step, and the processor time of schedule and update. The ways to a file and to a viewer have a thread that writes, and
the viewer a process that reads and forgets.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, thread_time
from typing import Any

WINDOW, SKIPPED, PROMPT = 6, 2, 32
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
"""By way and round: `step` (wall clock) and `scheduler` (processor time), seconds of a step, median of a window."""


def engine_samples(model: str, num_requests: int, folder: Path, num_rounds: int) -> Samples:
    """Decode with the tap of each way in turns."""
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", OMP_NUM_THREADS="1", VLLM_CPU_OMP_THREADS_BIND="nobind")
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="6")
    from vllm import LLM, SamplingParams

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
    """Attach a tap, and a viewer where the way has one. Yields whether events flow, after a first step."""
    from labengine_vllm.tap import Tap

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
        raise RuntimeError("the tap detached; its log says why")
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
