"""Attention kernels on a GPU, as a share of the GPU's limits, measured in the same run.

    python benchmarks/gpu/attention.py                    every backend that runs, decode and prefill, as Markdown
    python benchmarks/gpu/attention.py --json out.json
    TRITON_INTERPRET=1 python benchmarks/gpu/attention.py --smoke    tiny, on any device: only checks that it runs

Decode is measured in bytes of KV per second and compared with a copy, prefill in operations per second and compared
with a matrix product. Launches are recorded into a CUDA graph, and go through the KV of several layers in turn, so that
no cache serves them twice.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from gpu_limits import copied_bytes_per_second, matmul_flops_per_second, seconds_of

from labengine.engine.attention import AttentionBackend, AttentionSetting, StepAttention
from labengine.engine.backend_choice import BACKENDS
from labengine.engine.kv_tensors import LayerKV
from labengine.engine.step_tensors import GroupTensors, StepTensors

QWEN3_HEADS = (16, 8, 128)
DIRTY_BYTES = 256 * 2**20
"""Bytes of KV of all layers together, several times any GPU's cache."""


@dataclass(frozen=True)
class Load:
    """Requests, each computing some tokens after those it has, in blocks of block_size."""

    requests: int
    context: int
    queries: int = 1
    block_size: int = 16
    heads: tuple[int, int, int] = QWEN3_HEADS
    window: int | None = None

    @property
    def kv_bytes(self) -> int:
        """Bytes read if each bfloat16 key and value is read once."""
        read = self.context if self.window is None else min(self.context, self.window + self.queries - 1)
        return 2 * 2 * self.requests * read * self.heads[1] * self.heads[2]

    @property
    def products(self) -> int:
        """Floating point operations of all unmasked scores and sums."""
        past = self.context - self.queries
        return 4 * self.requests * self.heads[0] * self.heads[2] * sum(range(past + 1, self.context + 1))


@dataclass(frozen=True)
class Figure:
    backend: str
    load: Load
    microseconds: float
    spread: float
    share: float
    """Share of a copy's bytes per second (decode), or of a matrix product's operations per second (prefill)."""


def blocks_of(load: Load) -> int:
    return -(-load.context // load.block_size)


def step_of(load: Load, device: torch.device) -> tuple[StepTensors, GroupTensors]:
    """Return a step whose blocks are shuffled, as in a pool that has been in use for a while."""
    per_request = blocks_of(load)
    blocks = list(range(load.requests * per_request))
    Random(0).shuffle(blocks)
    tables = torch.tensor(blocks, dtype=torch.int32).view(load.requests, per_request)
    positions = torch.arange(load.context - load.queries, load.context)
    slots = tables[:, positions // load.block_size] * load.block_size + positions % load.block_size
    tensors = [
        tensor.to(device, torch.int32)
        for tensor in (
            torch.zeros(slots.numel()),
            positions.repeat(load.requests),
            torch.arange(load.requests + 1) * load.queries,
            torch.full((load.requests,), load.context),
            torch.arange(load.requests),
        )
    ]
    group = GroupTensors(load.block_size, load.window, slots.flatten().to(device, torch.int32), tables.to(device))
    token_ids, positions, query_starts, contexts, sample_rows = tensors
    step = StepTensors(
        token_ids=token_ids,
        positions=positions,
        query_lens=(load.queries,) * load.requests,
        context_lens=(load.context,) * load.requests,
        query_starts=query_starts,
        contexts=contexts,
        sample_rows=sample_rows,
        groups=(group,),
    )
    return step, group


def caches_of(load: Load, device: torch.device) -> list[LayerKV]:
    _, num_kv_heads, head_dim = load.heads
    shape = (2, load.requests * blocks_of(load), load.block_size, num_kv_heads, head_dim)
    num_layers = min(64, max(2, -(-DIRTY_BYTES // load.kv_bytes))) if device.type == "cuda" else 1
    return [LayerKV(*torch.randn(shape, dtype=torch.bfloat16, device=device)) for _ in range(num_layers)]


def microseconds(run: Callable[[], object], calls: int, device: torch.device) -> tuple[float, float]:
    """Return the median and the spread (of the middle half) per call, where `run` makes `calls` calls."""
    times = sorted(1e6 * seconds / calls for seconds in seconds_of(run, device, rounds=7))
    quarter = len(times) // 4
    return statistics.median(times), times[-1 - quarter] - times[quarter]


def recorded(run: Callable[[], object], device: torch.device, can_record: bool) -> Callable[[], object]:
    """Return `run` as a CUDA graph, so that the host's share is not measured."""
    if device.type != "cuda" or not can_record:
        return run
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def attend_microseconds(backend: AttentionBackend, load: Load, device: torch.device) -> tuple[float, float]:
    step, group = step_of(load, device)
    attention, caches = backend.prepare(step, group), caches_of(load, device)
    queries = torch.randn(step.num_tokens, load.heads[0], load.heads[2], dtype=torch.bfloat16, device=device)

    def run() -> None:
        _attend_to_all(attention, caches, queries)

    return microseconds(recorded(run, device, backend.is_capturable), len(caches), device)


def _attend_to_all(attention: StepAttention, caches: list[LayerKV], queries: torch.Tensor) -> None:
    for cache in caches:
        attention.attend(queries, cache, 0.088)


def setting_of(load: Load, device: torch.device) -> AttentionSetting:
    return AttentionSetting(device, torch.bfloat16, *load.heads, (load.block_size,))


def backends_for(load: Load, device: torch.device) -> Iterator[AttentionBackend]:
    for name in BACKENDS:
        backend, setting = BACKENDS[name](), setting_of(load, device)
        refusal = backend.refusal(setting)
        if refusal is None:
            yield backend(setting)
        else:
            print(f"not {name} for blocks of {load.block_size}: {refusal}", flush=True)


DECODES = [Load(n, 562, block_size=size) for n, size in product((1, 4, 16, 64, 256), (16, 256))]
LONG_DECODES = [Load(n, 8192, block_size=16) for n in (1, 8, 32)]
OTHER_HEADS = [
    Load(64, 562, heads=(9, 3, 64)),
    Load(64, 562, heads=(32, 8, 128)),
    Load(64, 2048, heads=(4, 1, 256), window=512),
]
PREFILLS = [Load(16, 1024, 1024), Load(1, 8192, 8192), Load(1, 8192, 8192, 256), Load(1, 8192, 64), Load(4, 4096, 512)]
SMOKE = [Load(2, 20, heads=(2, 1, 16)), Load(1, 20, 20, heads=(2, 1, 16))]


def figures(loads: list[Load], device: torch.device, bandwidth: float, rate: float) -> Iterator[Figure]:
    """Yield each measured figure; leave out a backend for a load at which it fails."""
    for load in loads:
        for backend in backends_for(load, device):
            try:
                median, spread = attend_microseconds(backend, load, device)
            except Exception as error:
                print(f"failed: {backend.name}, {load}: {type(error).__name__}: {error}", flush=True)
                continue
            done = load.kv_bytes / bandwidth if load.queries == 1 else load.products / rate
            yield Figure(backend.name, load, median, spread, done / median * 1e6)


def head(bandwidth: float, rate: float) -> str:
    """Return the table's head."""
    return (
        f"copy {bandwidth / 1e12:.2f} TB/s, matrix product {rate / 1e12:.0f} TFLOP/s (bfloat16)\n\n"
        "| backend | requests | context | queries | heads | window | block | us | ± | share of the limit |\n"
        "|---|---|---|---|---|---|---|---|---|---|"
    )


def row(figure: Figure) -> str:
    load = figure.load
    sizes = (load.requests, load.context, load.queries, "/".join(map(str, load.heads)), load.window or "")
    cells = (figure.backend, *sizes, load.block_size, f"{figure.microseconds:.1f}", f"{figure.spread:.1f}")
    return f"| {' | '.join(map(str, cells))} | {figure.share:.0%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on any device")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not arguments.smoke:
        parser.error("no GPU to measure; --smoke runs anywhere")
    bandwidth = copied_bytes_per_second(2**20 if arguments.smoke else 2**30, device)
    rate = matmul_flops_per_second(64 if arguments.smoke else 8192, device)
    loads = SMOKE if arguments.smoke else [*DECODES, *LONG_DECODES, *OTHER_HEADS, *PREFILLS]
    found: list[Figure] = []
    print(head(bandwidth, rate), flush=True)
    for figure in figures(loads, device, bandwidth, rate):
        found.append(figure)
        print(row(figure), flush=True)
        if arguments.json:  # after each figure, as the run may be ended by its limit
            report = {"copy_bytes_per_s": bandwidth, "product_flop_per_s": rate, "figures": [asdict(f) for f in found]}
            arguments.json.write_text(json.dumps(report, indent=1))
    if device.type == "cuda" and all(figure.backend != "triton" for figure in found):
        raise SystemExit("failed: Triton's kernels were not measured, for the reason above")


if __name__ == "__main__":
    main()
