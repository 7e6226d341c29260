"""The memory of a process with a lab in it, beside the sum that it must hold: weights and KV pool.

    python benchmarks/process_memory.py [--dtype bfloat16 float32] [--num-blocks 1024] [--labs 1 2] [--listen]

The labs of each row live in a process of their own. It says its resident memory after importing labengine and torch,
with the labs loaded, and after their pools were written full. What grew is compared with the weights in the dtype
(once, however many labs share them) and the pools. --listen: as a lab comes, recorded and judged. MiB, from the
kernel's smaps (Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parent / "engine"))

from floors import ModelShape
from machine import facts, headline

from labengine import model_path

MIB = 2**20
BLOCK_SIZE, BATCH, NEW = 16, 16, 16
BYTES = {"bfloat16": 2, "float32": 4}


def resident() -> int:
    """MiB of this process, shared pages included."""
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) // 1024
    raise RuntimeError("the kernel does not tell this process's resident memory")


def fill(lab: Any, num_blocks: int) -> None:
    """Write every block of the pool, by a batch of random prompts."""
    draw = random.Random(f"pool of {num_blocks}")
    length = num_blocks * BLOCK_SIZE // BATCH - NEW
    prompts = [[draw.randrange(1000, 40_000) for _ in range(length)] for _ in range(BATCH)]
    lab.generate(prompts, max_tokens=NEW, ignore_eos=True)


def worker(dtype: str, num_blocks: int, num_labs: int, is_listened_to: bool) -> None:
    """Print the figures of one process, as JSON."""
    import torch

    from labengine import Lab

    float((torch.ones(64, 64) @ torch.ones(64, 64)).sum())
    imported = resident()
    settings = {"dtype": dtype, "num_blocks": num_blocks, "block_size": BLOCK_SIZE, "max_num_seqs": BATCH}
    labs = [Lab("smollm2", record=is_listened_to, check=is_listened_to, **settings) for _ in range(num_labs)]
    loaded = resident()
    for lab in labs:
        fill(lab, num_blocks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"imported": imported, "loaded": loaded, "filled": resident(), "peak": peak}))


def row(dtype: str, num_blocks: int, num_labs: int, is_listened_to: bool) -> str:
    """One line of the table."""
    asked = ["--worker", dtype, str(num_blocks), str(num_labs), str(int(is_listened_to))]
    said = subprocess.run([sys.executable, __file__, *asked], check=True, capture_output=True, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    shape = ModelShape.of(model_path("smollm2"))
    weights = (shape.layer_weights + shape.head_weights) * BYTES[dtype] // MIB
    pool = num_labs * num_blocks * BLOCK_SIZE * shape.kv_elements * BYTES[dtype] // MIB
    grown = found["filled"] - found["imported"]
    cells = [dtype, num_labs, weights, pool, *found.values(), grown, f"{grown / (weights + pool):.2f}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", nargs="+", default=[*BYTES], choices=[*BYTES])
    parser.add_argument("--num-blocks", type=int, default=1024)
    parser.add_argument("--labs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--listen", action="store_true")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    selected = parser.parse_args()
    if selected.worker:
        dtype, *numbers = selected.worker
        num_blocks, num_labs, is_listened_to = map(int, numbers)
        worker(dtype, num_blocks, num_labs, bool(is_listened_to))
        return
    print(headline(facts(os.cpu_count() or 1)))
    print("| dtype | labs | weights | pools | imported | loaded | filled | peak | grown by | of the sum |")
    print("|---|" + "---:|" * 9)
    for dtype in selected.dtype:
        for num_labs in selected.labs:
            print(row(dtype, selected.num_blocks, num_labs, selected.listen), flush=True)


if __name__ == "__main__":
    main()
