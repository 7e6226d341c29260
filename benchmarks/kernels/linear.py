"""The matrix products of a model's step on a CPU, by the native kernels, beside the limits of the machine.

    python benchmarks/kernels/linear.py [--threads 2] [--shape smollm2] [--rows 16]... [--dtype bf16] [--seconds 3]

All layers' products run as one program, each with a weight of its own, so that nothing is in a cache that would not be
in a step; of prompts only a few layers. Limits and products take turns. The floor is what reading the weights or
multiplying takes at the limit, whichever is longer. First the best time and its share; in brackets the median's.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from limits import Limits
from machine import facts, headline, listening_for_noise

from labengine.engine.mapped_memory import MappedMemory
from labengine.engine.native.layout import Finish, Op, OpKind, Step, program_of
from labengine.engine.native.library import Team, aligned_empty, packed, team

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
ROWS = (1, 2, 4, 8, 16, 32, 64, 256, 2048)
MAX_SAMPLING = 64
FEW_LAYERS = 3


@dataclass(frozen=True)
class Shape:
    """What a model multiplies by: qkv and out of attention, gate-up and down, the head."""

    hidden: int
    qkv: int
    attended: int
    inner: int
    vocabulary: int
    layers: int


SHAPES = {
    "smollm2": Shape(576, 960, 576, 1536, 49_152, 30),
    "gemma3-270m": Shape(640, 1536, 1024, 2048, 262_144, 18),
    "qwen3-0.6b": Shape(1024, 4096, 2048, 3072, 151_936, 28),
}


@dataclass
class Products:
    """A step's products: weights, buffers and the program."""

    shape: Shape
    dtype: torch.dtype
    num_rows: int
    ops: list[Op] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_sampling = min(self.num_rows, MAX_SAMPLING)
        self._memory = MappedMemory()
        shape = self.shape
        for _ in range(shape.layers if self.num_rows <= MAX_SAMPLING else FEW_LAYERS):
            self._add(shape.qkv, shape.hidden, 0, 1, Finish.PLAIN)
            self._add(shape.hidden, shape.attended, 2, 0, Finish.ADD)
            self._add(2 * shape.inner, shape.hidden, 0, 3, Finish.SILU_MUL)
            self._add(shape.hidden, shape.inner, 3, 0, Finish.ADD)
        self._add(shape.vocabulary, shape.hidden, 0, 4, Finish.TO_FLOAT, is_sampling=True)
        self.program = program_of(self.ops)
        self.step = Step(num_tokens=self.num_rows, num_sampling=self.num_sampling)
        widths = (shape.hidden, shape.qkv, shape.attended, shape.inner)
        self.buffers = [torch.zeros(self.num_rows, width, dtype=self.dtype) for width in widths]
        self.buffers.append(torch.zeros(self.num_sampling, shape.vocabulary))
        for number, buffer in enumerate(self.buffers):
            self.step.buffers[number] = buffer.data_ptr()

    def use(self, crew: Team) -> None:
        """Give the step the scratch memory that this team needs."""
        self._scratch = aligned_empty(crew.scratch_bytes(self.program, self.step) // 4 + 16, torch.float32)
        self.step.scratch = self._scratch.data_ptr()

    def _add(self, n: int, k: int, source: int, out: int, finish: Finish, *, is_sampling: bool = False) -> None:
        weight = torch.full((n, k), 0.01, dtype=self.dtype)
        self.kept.append(packed(weight, self._memory, is_gated=finish == Finish.SILU_MUL))
        op = Op(kind=OpKind.LINEAR, finish=finish, in_=source, other=out, out=out, n=n, k=k, is_sampling=is_sampling)
        op.weight = self.kept[-1].data_ptr()
        self.ops.append(op)

    def num_bytes(self) -> int:
        """Of weights, all of which have to be read."""
        return sum(op.n * op.k for op in self.ops) * self.dtype.itemsize

    def flops(self) -> int:
        return sum(2 * op.n * op.k * (self.num_sampling if op.is_sampling else self.num_rows) for op in self.ops)


def report(products: Products, limits: Limits, threads: int, seconds: float, name: str) -> str:
    crew = team(threads)
    products.use(crew)
    times, found, end = [], [], perf_counter() + seconds
    while perf_counter() < end or len(times) < 3:
        found.append(limits.measure(tries=1))
        pause = perf_counter() + seconds / 8
        while perf_counter() < pause:
            started = perf_counter()
            crew.run(products.dtype, products.program, products.step)
            times.append(perf_counter() - started)
    read, rate = (max(figures[key] for figures in found) * 1e9 for key in ("read", name))
    floor = max(products.num_bytes() / read, products.flops() / rate)
    fastest, usual = min(times), median(times)
    return (
        f"{name} {products.num_rows:>5} rows {fastest * 1e3:9.2f} ms [{usual * 1e3:9.2f}]  "
        f"{products.num_bytes() / fastest / 1e9:6.1f} of {read / 1e9:5.1f} GB/s  "
        f"{products.flops() / fastest / 1e9:6.1f} of {rate / 1e9:5.1f} GFLOP/s  "
        f"{floor / fastest:5.0%} of the limit [{floor / usual:4.0%}]"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--shape", choices=SHAPES, default="smollm2")
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--seconds", type=float, default=3, help="for each line")
    selected = parser.parse_args()
    print(headline(facts(selected.threads)))
    limits = Limits(selected.threads)
    with listening_for_noise() as noise:
        for name in selected.dtype or DTYPES:
            for num_rows in selected.rows or ROWS:
                products = Products(SHAPES[selected.shape], DTYPES[name], num_rows)
                print(report(products, limits, selected.threads, selected.seconds, name), flush=True)
    if noise.share is not None:
        print(f"others took {noise.share:.0%} of the cores meanwhile")


if __name__ == "__main__":
    main()
