"""Registers, spills, shared memory and programs per SM of every Triton kernel, on GPUs that need not be here.

    python benchmarks/gpu/kernel_table.py [--capabilities 75,80,86,89,90,100,120] [--processes 2]

Kernels are compiled as the engine would launch them, for blocks of 16 tokens, or of 256 where a line says so, and
assembled once more by Triton's own ptxas, which counts. A line of several launches shows the most registers, spilled
bytes and shared memory, and the fewest programs.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from compiled_launches import (
    GPUS,
    MODELS,
    TRITON,
    Launches,
    attention_launches,
    capabilities,
    half_precision,
    ops_launches,
)
from ptxas_report import Report, report_of

Lines = dict[str, list[Report]]
"""Reports of a line's launches, by the line's name."""


def attention_lines(capability: int, model: str, dtype: torch.dtype, block_size: int, folder: Path) -> Lines:
    """Return the reports of attention's kernels; a tile of several queries is a prompt's."""
    launches = attention_launches(capability, model, dtype, block_size)
    lines: Lines = {"prefill": [], "decode": []}
    for launch in launches.pop("attend_kernel"):
        name = "prefill" if launch.arguments["QUERIES"] > 1 else "decode"
        lines[name].append(report_of(launch.compiled, capability, folder))
    return lines | named_lines(launches, capability, folder)


def named_lines(launches: Launches, capability: int, folder: Path) -> Lines:
    """Return the reports by kernel, in the order of their first launches."""
    return {
        name.removesuffix("_kernel"): [report_of(launch.compiled, capability, folder) for launch in of_kernel]
        for name, of_kernel in launches.items()
    }


def lines_of(capability: int) -> Lines:
    """Return all lines for one GPU."""
    half = half_precision(capability)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines: Lines = {}
        for words, dtype, block_size in (("half", half, 16), ("half, 256", half, 256), ("fp32", torch.float32, 16)):
            shown = ("prefill", "decode", "join") if block_size == 16 else ("prefill", "decode")
            for model in MODELS:
                found = attention_lines(capability, model, dtype, block_size, folder)
                lines |= {f"{line}, {model}, {words}": found[line] for line in shown}
        return lines | named_lines(ops_launches(capability, half), capability, folder)


def cell(reports: Iterable[Report]) -> str:
    """Return 'registers/KiB/programs', and the spilled bytes if there are any."""
    several = [*reports]
    spilled = max(report.spilled for report in several)
    figures = (
        max(report.registers for report in several),
        -(-max(report.shared for report in several) // 1024),
        min(report.programs_per_sm for report in several),
    )
    return "/".join(map(str, figures)) + (f" ({spilled} B)" if spilled else "")


def table(columns: Mapping[int, Lines]) -> str:
    """Return the Markdown table."""
    names = list(next(iter(columns.values())))
    rows = [["kernel", *(f"sm_{capability}" for capability in columns)], ["---"] * (len(columns) + 1)]
    rows += [[name, *(cell(lines[name]) for lines in columns.values())] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Compile, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capabilities", default=",".join(map(str, capabilities())))
    parser.add_argument("--processes", type=int, default=2)
    selected = parser.parse_args()
    numbers = [int(number) for number in selected.capabilities.split(",")]
    if unknown := [number for number in numbers if number not in GPUS]:
        parser.error(f"capabilities are some of {', '.join(map(str, GPUS))}, got {', '.join(map(str, unknown))}")
    with ProcessPoolExecutor(selected.processes, mp_context=get_context("spawn")) as pool:
        columns = dict(zip(numbers, pool.map(lines_of, numbers), strict=True))
    print(
        f"Triton {'.'.join(map(str, TRITON))}: registers per thread / KiB of shared memory / programs per SM",
        end="\n\n",
    )
    print(table(columns))


if __name__ == "__main__":
    main()
