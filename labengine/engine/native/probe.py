"""Tests an image in a process of its own, which may hang or crash: `python probe.py FILE` returns 0, or prints why.

Standard library only. All numbers are small integers, so that results are exact in every dtype.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from ctypes import CDLL, byref
from itertools import chain
from pathlib import Path

NUM_THREADS = 2
WEIGHT = [[1, 2, 3, 4], [0, -1, 0, 2], [5, 0, 1, -3], [2, 2, 2, 2], [0, 0, 0, 1]]
ROWS = [[1, 0, 2, 1], [3, -1, 0, 2]]
VALUES = [[1, 2, 3, 4], [3, 6, 9, 12]]
"""Values of two positions with equal keys: attention gives their mean."""


def main() -> int:
    """Open the image, and run a program in each dtype."""
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from labengine.engine.native.image import SUFFIXES, ImageError, open_image

    try:
        kernels = open_image(Path(sys.argv[1]).read_bytes())
    except ImageError as error:
        print(error, file=sys.stderr)
        return 1
    products = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in WEIGHT] for row in ROWS]
    mean = [sum(column) / 2 for column in zip(*VALUES, strict=True)]
    expected = [*chain(*products), *mean, *VALUES[1]]
    for suffix in SUFFIXES:
        found = computed(kernels, suffix)
        if found != expected:
            print(f"it computes {found} in {suffix}, not {expected}", file=sys.stderr)
            return 1
    return 0


def computed(kernels: CDLL, suffix: str) -> list[float]:
    """Return ROWS times WEIGHT transposed; then attention to both values, and to the second value alone."""
    from labengine.engine.native.layout import Op, OpKind, Step, program_of

    n, k = len(WEIGHT), len(WEIGHT[0])
    weight = encoded(chain(*WEIGHT), suffix)
    packed = encoded([0] * getattr(kernels, f"packed_size_{suffix}")(n, k), suffix)
    getattr(kernels, f"pack_{suffix}")(address(weight), address(packed), n, k, 0)
    heads = encoded([1] * 2 * 3 * k, suffix)  # per row a query, and a key and value that are not read
    keys, values = encoded([1] * 2 * k, suffix), encoded(chain(*VALUES), suffix)
    buffers = [encoded(chain(*ROWS), suffix), encoded([0] * 2 * n, suffix), heads, encoded([0] * 2 * k, suffix)]
    attention = {"num_heads": 1, "num_kv_heads": 1, "head_dim": k, "block_size": 1, "scale": 1.0}
    ops = program_of(
        [
            Op(kind=OpKind.LINEAR, in_=0, other=-1, out=1, n=n, k=k, weight=address(packed)),
            Op(kind=OpKind.ATTEND, in_=2, out=3, keys=address(keys), values=address(values), **attention),
        ]
    )
    query_starts, contexts, tables = (array("i", numbers) for numbers in ([0, 1, 2], [2, 1], [0, 1, 1, -1]))
    step = Step(num_tokens=2, num_requests=2, query_starts=address(query_starts), contexts=address(contexts))
    step.tables[0], step.table_strides[0] = address(tables), 2
    for number, buffer in enumerate(buffers):
        step.buffers[number] = address(buffer)
    scratch = array("f", bytes(kernels.scratch_bytes(ops, len(ops), byref(step), NUM_THREADS)))
    step.scratch = address(scratch)
    team = kernels.team_new(NUM_THREADS)
    getattr(kernels, f"run_program_{suffix}")(team, ops, len(ops), byref(step), None)
    kernels.team_free(team)
    return [*decoded(buffers[1], suffix), *decoded(buffers[3], suffix)]


def encoded(numbers: Iterable[float], suffix: str) -> array[int] | array[float]:
    """Return the numbers as float32, or as bfloat16, which is its upper half."""
    wide = array("f", numbers)
    return wide if suffix == "f32" else array("H", [bits >> 16 for (bits,) in struct.iter_unpack("=I", wide.tobytes())])


def decoded(numbers: array[int] | array[float], suffix: str) -> list[float]:
    """Return encoded numbers as floats."""
    if suffix == "f32":
        return [float(number) for number in numbers]
    return [struct.unpack("=f", struct.pack("=I", int(bits) << 16))[0] for bits in numbers]


def address(numbers: array[int] | array[float]) -> int:
    """Return the array's address, valid while the array lives."""
    return numbers.buffer_info()[0]


if __name__ == "__main__":
    sys.exit(main())
