"""Host time of a step with CUDA stood in: ours, and nano-vLLM's. Needs no GPU, only Triton.

    python benchmarks/gpu/host_step.py [--nano CHECKOUT] [--batches 1,16,256] [--steps 200]
    python benchmarks/gpu/host_step.py --mixed [--steps 40]

The model has Qwen3-0.6B's structure (28 layers, 16 heads and 8 KV heads) and tiny widths. standin_cuda.py says how CUDA
is stood in: kernels, graphs and products compute nothing, so that only the host's work counts. CUDA's own calls are
left out, of all sides.

Measured are steps of full batches of decodes with contexts of about 562 tokens, as in nano-vLLM's bench (our blocks
have 16 tokens, nano-vLLM's 256), in turns of 20 steps; medians of one run. All requests have a temperature.

    step    all that the host does for a step: processor time of its thread, and wall-clock time
    gap     processor time from the moment at which the host has read a step's tokens until it launches the next step's
            graph; 0 if it launches first

Ours is measured synchronous (check=True has no other) and overlapped (check=False), both without checks and recording.
Of nano-vLLM, LLMEngine.step() runs as it is, with these stand-ins besides: flash_attn, whose functions return an empty
result; the sampler, which returns the tokens of standin_cuda.py (nano's is compiled by torch, and has guards and
launches that are not counted); torch.compile, which returns the function; torch.distributed, of one process; xxhash, if
it is not installed, by hashlib; the warm-up, which is left out, and the prompts' own steps, which sample a token and
compute nothing.

--mixed measures a step of one chunk of 512 tokens, a whole prompt, with 64 decodes: module by module
(cuda_graphs=False), and as it runs by default.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time
from types import ModuleType
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from standin_cuda import NUM_TOKENS, Marks, cuda_replaced
from workload import QWEN3_0_6B, TEMPERATURE, make_model

from labengine import Lab

TINY = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 64,
    "head_dim": 16,
    "max_position_embeddings": 4096,
}
CONTEXT, SPREAD = 562, 80
"""Prompts have CONTEXT - SPREAD to CONTEXT + SPREAD tokens."""
STEPS_PER_ROUND = 20
CHUNK, DECODES = 512, 64
"""Of a mixed step."""


@dataclass
class Times:
    """Seconds of the measured steps."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)


@dataclass
class Side:
    """An engine that decodes a full batch."""

    title: str
    step: Callable[[], object]
    fill: Callable[[list[list[int]]], None]
    """Replaces its requests by these prompts, and computes them."""
    times: Times = field(default_factory=Times)

    def take_round(self, marks: Marks, num_steps: int) -> None:
        """Take so many steps, timed one by one."""
        self.step()
        marks.forget()
        for _ in range(num_steps):
            before, cpu_before = perf_counter(), thread_time()
            self.step()
            self.times.cpu.append(thread_time() - cpu_before)
            self.times.wall.append(perf_counter() - before)
        self.times.gap += marks.gaps()


def prompts(number: int, seed: int = 0) -> list[list[int]]:
    """Return so many prompts; no two begin alike."""
    random = Random(seed)
    lengths = [random.randint(CONTEXT - SPREAD, CONTEXT + SPREAD) for _ in range(number)]
    return [[random.randrange(NUM_TOKENS, TINY["vocab_size"]) for _ in range(length)] for length in lengths]


def our_lab(model_dir: Path, max_num_seqs: int, max_num_batched_tokens: int = 16384, **settings: Any) -> Lab:
    """Return a lab on the stand-in, without checks and recording."""
    return Lab(
        str(model_dir),
        device="cuda",
        attention="triton",
        num_blocks=(max_num_seqs + 8) * 48,
        block_size=16,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=2048,
        check=False,
        record=False,
        **settings,
    )


def our_side(title: str, lab: Lab) -> Side:
    """Return a lab's engine as a side."""

    def fill(texts: list[list[int]]) -> None:
        lab.reset()
        for token_ids in texts:
            lab.add(token_ids=token_ids, max_tokens=1000, temperature=TEMPERATURE, ignore_eos=True)
        engine = lab.session.stepper.engine
        while list(engine.step().scheduled.values()) != [1] * len(texts):
            pass

    return Side(title, lambda: lab.session.stepper.engine.step(), fill)


# -- nano-vLLM ---------------------------------------------------------------------------------------------------------


class StandinHash:
    """xxhash.xxh64, where that is not installed."""

    def __init__(self) -> None:
        from hashlib import blake2b

        self._hash = blake2b(digest_size=8)

    def update(self, data: bytes) -> None:
        """Add bytes."""
        self._hash.update(data)

    def intdigest(self) -> int:
        """Return 64 bits."""
        return int.from_bytes(self._hash.digest())


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(content)
    return module


@contextmanager
def nanos_surroundings(checkout: Path) -> Iterator[None]:
    """Stand in what nano-vLLM imports and asks besides torch.cuda, while it is made and measured."""
    modules = {
        "flash_attn": _module(
            "flash_attn",
            flash_attn_varlen_func=lambda q, *_, **__: torch.empty_like(q),
            flash_attn_with_kvcache=lambda q, *_, **__: torch.empty_like(q),
        )
    }
    try:
        import xxhash  # noqa: F401
    except ImportError:
        modules["xxhash"] = _module("xxhash", xxh64=StandinHash)
    dist = torch.distributed
    with ExitStack() as patched:
        patched.enter_context(patch.dict(sys.modules, modules))
        patched.enter_context(patch.object(sys, "path", [str(checkout), *sys.path]))
        patched.enter_context(patch.object(torch, "compile", lambda function: function))
        patched.enter_context(patch.object(torch, "set_default_device", lambda device: None))
        patched.enter_context(patch.object(dist, "init_process_group", lambda *_, **__: None))
        patched.enter_context(patch.object(dist, "get_rank", lambda: 0))
        patched.enter_context(patch.object(dist, "get_world_size", lambda: 1))
        yield


def nano_side(model_dir: Path, max_num_seqs: int, marks: Marks) -> Side:
    """Return nano-vLLM's engine as a side, within nanos_surroundings."""
    from nanovllm import SamplingParams
    from nanovllm.engine.llm_engine import LLMEngine
    from nanovllm.engine.model_runner import ModelRunner

    with patch.object(ModelRunner, "warmup_model", lambda runner: None), patch("atexit.register"):
        engine = LLMEngine(str(model_dir), max_num_seqs=max_num_seqs, max_model_len=2048)
    runner, scheduler = engine.model_runner, engine.scheduler
    runner.sampler = lambda logits, temperatures: torch.full((logits.shape[0],), marks.token)
    run = runner.run

    def run_decodes(seqs: list[Any], is_prefill: bool) -> list[int]:
        return [marks.token] * len(seqs) if is_prefill else run(seqs, is_prefill)

    def fill(texts: list[list[int]]) -> None:
        for sequence in list(scheduler.running):
            scheduler.block_manager.deallocate(sequence)
        scheduler.running.clear()
        sampling = SamplingParams(temperature=TEMPERATURE, max_tokens=1000, ignore_eos=True)
        for token_ids in texts:
            engine.add_request(token_ids, sampling)
        runner.run = run_decodes
        while scheduler.waiting:
            engine.step()
        runner.run = run

    return Side("nano-vLLM", engine.step, fill)


# -- the tables --------------------------------------------------------------------------------------------------------


def decode_table(model_dir: Path, nano: Path | None, batches: Sequence[int], num_steps: int) -> None:
    """Print the sides' times of decodes."""
    print("      |             |  step, ms          |  gap, ms  |  of nano-vLLM's step")
    print("batch | engine      |      cpu      wall |           |    step      gap")
    with ExitStack() as stack:
        if nano is not None:
            stack.enter_context(nanos_surroundings(nano))
        marks = stack.enter_context(cuda_replaced())
        largest = max(batches)
        sides = [
            our_side(title, our_lab(model_dir, largest, overlap=overlap))
            for title, overlap in (("synchronous", False), ("overlapped", True))
        ]
        if nano is not None:
            sides.append(nano_side(model_dir, largest, marks))
        for batch in batches:
            for side in sides:
                side.fill(prompts(batch))
                side.times = Times()
            for _ in range(max(1, num_steps // STEPS_PER_ROUND)):
                for side in sides:
                    side.take_round(marks, min(num_steps, STEPS_PER_ROUND))
            unit = median(sides[-1].times.cpu) if nano is not None else None
            for side in sides:
                print(f"{batch:5} | {side.title:11} | {_line(side.times, unit)}", flush=True)


def _line(times: Times, unit: float | None) -> str:
    step, wall, gap = (median(seconds) * 1e3 for seconds in (times.cpu, times.wall, times.gap))
    relative = "" if unit is None else f"{step / unit / 1e3:8.2f} {gap / unit / 1e3:8.2f}"
    return f"{step:8.3f}  {wall:8.3f} | {gap:8.3f}  | {relative}"


def mixed_table(model_dir: Path, num_steps: int) -> None:
    """Print the times of mixed steps, module by module and as by default."""
    print(f"a chunk of {CHUNK} tokens with {DECODES} decodes, host time in ms (processor time; median)")
    print("                  |    step | forward")
    with cuda_replaced():
        labs = {
            title: our_lab(model_dir, DECODES + 1, CHUNK + DECODES, overlap=False, cuda_graphs=cuda_graphs)
            for title, cuda_graphs in (("module by module", False), ("by default", True))
        }
        measured: dict[str, tuple[list[float], list[float]]] = {title: ([], []) for title in labs}
        for lab in labs.values():
            our_side("", lab).fill(prompts(DECODES))
        for number in range(num_steps + 1):
            for title, lab in labs.items():
                step, forward = _mixed_step(lab, number)
                if number:  # the first one compiles kernels
                    measured[title][0].append(step)
                    measured[title][1].append(forward)
        for title, (steps, forwards) in measured.items():
            print(f"{title:17} | {median(steps) * 1e3:7.2f} | {median(forwards) * 1e3:7.2f}")
        eager, default = (median(steps[1]) for steps in measured.values())
        print(f"forward by default: {default / eager:.2f} of module by module")


def _mixed_step(lab: Lab, number: int) -> tuple[float, float]:
    """Return the seconds of one mixed step, and of its forward pass: from the plan to the last launch."""
    engine = lab.session.stepper.engine
    random = Random(number)
    lab.add(token_ids=[random.randrange(NUM_TOKENS, 512) for _ in range(CHUNK)], max_tokens=1, temperature=TEMPERATURE)
    forward, seconds = engine.runner.forward, 0.0

    def timed(plan: Any) -> Any:
        nonlocal seconds
        before = thread_time()
        result = forward(plan)
        seconds += thread_time() - before
        return result

    with patch.object(engine.runner, "forward", timed):
        before = thread_time()
        report = engine.step()
        seconds_of_step = thread_time() - before
    if sorted(report.scheduled.values()) != [1] * DECODES + [CHUNK]:
        raise RuntimeError(f"that is no mixed step: {report}")
    return seconds_of_step, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nano", type=Path, metavar="CHECKOUT", help="nano-vLLM at bb823b3")
    parser.add_argument("--batches", default="1,16,256")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--mixed", action="store_true", help="mixed steps instead of decodes")
    selected = parser.parse_args()
    batches = [int(batch) for batch in selected.batches.split(",")]
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        make_model(Path(folder), {**QWEN3_0_6B, **TINY, "num_hidden_layers": selected.layers})
        if selected.mixed:
            mixed_table(Path(folder), selected.steps)
        else:
            decode_table(Path(folder), selected.nano, batches, selected.steps)


if __name__ == "__main__":
    main()
