"""The layout of a program in memory, as csrc/program.h declares it; compared with the compiler's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_char, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum
from typing import ClassVar

MAX_GROUPS, MAX_BUFFERS = 16, 32


class OpKind(IntEnum):
    """Kinds of ops; csrc/program.h describes them."""

    EMBED, ROTATION, NORM, LINEAR, ROTATE, ATTEND, ARGMAX = range(7)


class Finish(IntEnum):
    """Last operation on a product before it is stored."""

    PLAIN, ADD, SILU_MUL, GELU_MUL, TO_FLOAT = range(5)


class Op(ctypes.Structure):
    """One op of a program; fields as in csrc/program.h."""

    _fields_: ClassVar = [
        *((name, c_int32) for name in ("kind", "finish", "in_", "other", "out", "is_sampling", "norm_offset", "group")),
        *((name, c_int64) for name in ("n", "k")),
        *((name, c_void_p) for name in ("weight", "weight2")),
        *((name, c_float) for name in ("eps", "scale")),
        *((name, c_void_p) for name in ("keys", "values")),
        *((name, c_int32) for name in ("num_heads", "num_kv_heads", "head_dim", "block_size", "window")),
    ]


class Step(ctypes.Structure):
    """A step's inputs; fields as in csrc/program.h."""

    _fields_: ClassVar = [
        *((name, c_int64) for name in ("num_tokens", "num_requests", "num_sampling")),
        *((name, c_void_p) for name in ("token_ids", "positions", "query_starts", "contexts", "sample_rows")),
        *((name, c_void_p * MAX_GROUPS) for name in ("slots", "tables")),
        ("table_strides", c_int64 * MAX_GROUPS),
        ("buffers", c_void_p * MAX_BUFFERS),
        ("scratch", c_void_p),
    ]


def program_of(ops: Sequence[Op]) -> ctypes.Array[Op]:
    """Return the ops as a C array."""
    return (Op * len(ops))(*ops)


def layout() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and numbers of csrc/program.h, in its order: offset and size in bytes, or an enum's value."""
    for struct in (Op, Step):
        for name, *_ in struct._fields_:
            field = getattr(struct, name)
            yield f"{struct.__name__}.{name.rstrip('_')}", (field.offset, field.size)
    for member in (*OpKind, *Finish):
        yield member.name, (int(member),)


def layout_numbers() -> list[int]:
    """Return all numbers of csrc/program.h, with the sizes of its structs at the end."""
    numbers = [number for _, numbers in layout() for number in numbers]
    return [*numbers, *(ctypes.sizeof(struct) for struct in (Op, Step))]


def layout_difference(kernels: ctypes.CDLL) -> str | None:
    """Return the first difference between the library's layout and this module's; None when they are equal.

    Raises ValueError where the library has no layout.
    """
    ours = [*layout(), *((struct.__name__, (ctypes.sizeof(struct),)) for struct in (Op, Step))]
    names, wanted = "".join(f"{name} " for name, _ in layout()).encode(), [n for _, numbers in ours for n in numbers]
    count = c_int64.in_dll(kernels, "labengine_layout_count").value
    if count != len(wanted) or (c_char * (len(names) + 1)).in_dll(kernels, "labengine_names").value != names:
        return f"it has other fields and ops than these {len(wanted)} numbers tell"
    found = iter((c_int64 * count).in_dll(kernels, "labengine_layout"))
    for name, numbers in ours:
        theirs = tuple(next(found) for _ in numbers)
        if theirs != numbers:
            return f"{name} is {list(theirs)} there, and {list(numbers)} here (offset and size, or value)"
    return None
