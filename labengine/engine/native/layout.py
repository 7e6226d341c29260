"""The layout of a program in memory, as declared in csrc/program.h; tests compare it with the compiler's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_float, c_int32, c_int64, c_void_p
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


def layout_numbers() -> list[int]:
    """Return the numbers of csrc/program.h in its order: offsets and sizes of fields, enums, sizes of structs."""
    fields = [getattr(struct, name) for struct in (Op, Step) for name, *_ in struct._fields_]
    places = [number for field in fields for number in (field.offset, field.size)]
    return [*places, *map(int, (*OpKind, *Finish)), *map(ctypes.sizeof, (Op, Step))]
