"""Paged attention on a CPU: the native kernel beside gather + SDPA, per layer.

    python benchmarks/kernels/attention.py [--threads 1] [--heads 9 --kv-heads 3 --head-dim 64] [--torch]

The layers of a model take turns, as in a step: what a layer reads is no nearer than it would be there. Times are the
best of many. A decode has to read its keys and values: bytes per second, to be held against the machine's; a prompt has
to multiply: 4 * head_dim flops per query, head and key that it reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter, thread_time

import torch

from labengine.config import GroupSpec, SamplingParams
from labengine.core.step_plan import ScheduledRequest, StepPlan
from labengine.engine.attention.torch_gather import TorchGather
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.native.layout import Op, OpKind, Step, program_of
from labengine.engine.native.library import team
from labengine.engine.step_tensors import step_tensors

MAX_LAYERS, MAX_BYTES = 30, 512 * 2**20
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """Requests that compute `chunk` tokens each, the last of `context`."""

    num_requests: int
    chunk: int
    context: int

    def __str__(self) -> str:
        kind = "decode" if self.chunk == 1 else f"prompt of {self.chunk}"
        return f"{self.num_requests:>3} x {kind}, context {self.context}"

    def num_reads(self) -> int:
        """Keys read, over all queries."""
        before = self.context - self.chunk
        return self.num_requests * (self.chunk * before + self.chunk * (self.chunk + 1) // 2)


CASES = [
    *(Case(batch, 1, context) for batch, context in [(1, 128), (8, 512), (64, 512), (1, 8192), (256, 562)]),
    *(Case(*shape) for shape in [(16, 128, 128), (1, 2048, 2048), (1, 8192, 8192), (1, 512, 8192), (1, 16, 8192)]),
]


class Attention:
    """The attention of one step in a model's layers, each with a pool of its own."""

    def __init__(self, case: Case, dtype: torch.dtype, selected: argparse.Namespace) -> None:
        blocks = -(-case.context // selected.block_size)
        num_blocks = case.num_requests * blocks
        shape = (2, num_blocks, selected.block_size, selected.kv_heads, selected.head_dim)
        num_layers = max(1, min(MAX_LAYERS, MAX_BYTES // (torch.Size(shape).numel() * dtype.itemsize)))
        self.layers = [LayerKV(*torch.randn(shape).to(dtype)) for _ in range(num_layers)]
        tables = torch.randperm(num_blocks).view(case.num_requests, blocks).tolist()
        spec = GroupSpec(selected.block_size)
        self.step = step_tensors(plan_of(case, tables, selected.block_size), [spec], torch.device("cpu"))
        self.scale = selected.head_dim**-0.5
        width = (selected.heads + 2 * selected.kv_heads) * selected.head_dim
        self.rows = torch.randn(self.step.num_tokens, width).to(dtype)
        self.queries = self.rows[:, : selected.heads * selected.head_dim].reshape(-1, selected.heads, selected.head_dim)
        self.out = torch.empty_like(self.queries)
        self.selected = selected

    def native(self) -> list[Callable[[], None]]:
        """A call per layer."""
        crew = team(self.selected.threads)
        programs = [program_of([self._op(layer)]) for layer in self.layers]
        step = self._c_step()
        self._scratch = torch.empty(crew.scratch_bytes(programs[0], step) // 4 + 16)
        step.scratch = self._scratch.data_ptr() + -self._scratch.data_ptr() % 64
        return [lambda ops=ops: crew.run(self.rows.dtype, ops, step) for ops in programs]

    def torch(self) -> list[Callable[[], None]]:
        """A call per layer of gather + SDPA; what all layers share is prepared before."""
        attention = TorchGather.prepare(TorchGather.__new__(TorchGather), self.step, self.step.groups[0])
        return [lambda layer=layer: attention.attend(self.queries, layer, self.scale) for layer in self.layers]

    def _op(self, layer: LayerKV) -> Op:
        return Op(
            kind=OpKind.ATTEND, in_=0, other=-1, out=1, scale=self.scale,
            keys=layer.keys.data_ptr(), values=layer.values.data_ptr(),
            num_heads=self.selected.heads, num_kv_heads=self.selected.kv_heads, head_dim=self.selected.head_dim,
            block_size=self.selected.block_size,
        )  # fmt: skip

    def _c_step(self) -> Step:
        (group,) = self.step.groups
        pointers = {name: getattr(self.step, name).data_ptr() for name in ("query_starts", "contexts")}
        step = Step(num_tokens=self.step.num_tokens, num_requests=self.step.num_requests, **pointers)
        step.tables[0], step.table_strides[0] = group.block_tables.data_ptr(), group.block_tables.stride(0)
        step.buffers[0], step.buffers[1] = self.rows.data_ptr(), self.out.data_ptr()
        return step


def plan_of(case: Case, tables: list[list[int]], block_size: int) -> StepPlan:
    scheduled = []
    for request_id, table in enumerate(tables):
        positions = range(case.context - case.chunk, case.context)
        runs = tuple((table[p // block_size], p % block_size, 1) for p in positions)
        scheduled.append(
            ScheduledRequest(
                request_id,
                (0,) * case.chunk,
                positions.start,
                (tuple(table),),
                (runs,),
                case.chunk > 1,
                True,
                SamplingParams(),
                0,
            )
        )
    return StepPlan(tuple(scheduled))


def fastest_seconds(calls: list[Callable[[], None]], num_threads: int, seconds: float = 1.0) -> float:
    """Of a single call, while all take turns. A lone thread's own time is taken, which a busy machine spoils less."""
    clock = thread_time if num_threads == 1 else perf_counter
    fastest, end, repeated = float("inf"), perf_counter() + seconds, cycle(calls)
    next(repeated)()
    while perf_counter() < end or fastest == float("inf"):
        call = next(repeated)
        started = clock()
        call()
        fastest = min(fastest, clock() - started)
    return fastest


def report(case: Case, dtype: torch.dtype, selected: argparse.Namespace) -> str:
    attention = Attention(case, dtype, selected)
    seconds = fastest_seconds(attention.native(), selected.threads)
    if case.chunk == 1:
        num_bytes = case.num_requests * case.context * 2 * selected.kv_heads * selected.head_dim * dtype.itemsize
        rate = f"{num_bytes / seconds / 1e9:7.1f} GB/s    "
    else:
        rate = f"{4 * selected.head_dim * selected.heads * case.num_reads() / seconds / 1e9:7.1f} GFLOP/s "
    line = f"{case!s:<36} {seconds * 1e6:10.1f} us  {rate}"
    if selected.torch:
        beside = fastest_seconds(attention.torch(), selected.threads, 0.5)
        line += f"  gather + SDPA {beside * 1e6:10.1f} us, {beside / seconds:5.1f} times as long"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--torch", action="store_true", help="gather + SDPA, too")
    selected = parser.parse_args()
    torch.set_num_threads(selected.threads)
    print(
        f"{selected.heads} heads, {selected.kv_heads} kv heads of {selected.head_dim}, blocks of {selected.block_size}",
        end="; ",
    )
    print(f"{selected.threads} threads; per layer")
    for name in selected.dtype or DTYPES:
        print(name)
        for case in CASES:
            print(f"  {report(case, DTYPES[name], selected)}", flush=True)


if __name__ == "__main__":
    main()
