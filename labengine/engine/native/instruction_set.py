"""The instructions that the kernels may use: all of the processor's, or the set that LABENGINE_CPU names.

The sets are the levels of the x86-64 psABI (https://gitlab.com/x86-psABIs/x86-64-ABI, section 3.1.1), one more with the
products of bf16, and none at all. A smaller set than the processor's is for comparing: so an older one computes.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labengine.config import ConfigError

VARIABLE = "LABENGINE_CPU"
NATIVE = "native"
WIDENS = ("-DLABENGINE_WIDENS",)
"""Multiply bf16 as floats even where there are products of bf16. On Intel's processors these take as long as two of
floats, and have to wait for more operands: a prompt was a third slower with them (Sapphire Rapids, 2026-11-24)."""


@dataclass(frozen=True)
class InstructionSet:
    """A set of instructions. flags: the compiler's; needs: its features beyond x86-64, as Linux names them.

    machine: the kind of processor, as platform.machine() names it; "" for any.
    """

    name: str
    flags: tuple[str, ...]
    machine: str = ""
    needs: frozenset[str] = frozenset()

    def lacking(self) -> list[str]:
        """Return the needed features that this processor lacks; [] where the set runs, or nothing is known of it."""
        if self.machine not in ("", platform.machine()):
            return [f"a processor of the kind {self.machine}"]
        known = features()
        return sorted(self.needs - known) if known else []


_V2 = frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"])
_V3 = _V2 | frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])

INSTRUCTION_SETS = {
    isa.name: isa
    for isa in (
        InstructionSet("scalar", ("-DLABENGINE_SCALAR", "-fno-tree-vectorize", "-fno-tree-slp-vectorize")),
        InstructionSet("x86-64-v2", ("-march=x86-64-v2",), "x86_64", _V2),
        InstructionSet("x86-64-v3", ("-march=x86-64-v3",), "x86_64", _V3),
        InstructionSet("x86-64-v4", ("-march=x86-64-v4",), "x86_64", _V4),
        InstructionSet("x86-64-v4-bf16", ("-march=x86-64-v4", "-mavx512bf16"), "x86_64", _V4 | {"avx512_bf16"}),
    )
}
"""By name, smallest first."""


@cache
def requested_instruction_set() -> InstructionSet:
    """Return the set of LABENGINE_CPU; without it all that the processor has. A process has one.

    Raises ConfigError for an unknown set, and for one that this processor lacks.
    """
    name = os.environ.get(VARIABLE) or NATIVE
    if name == NATIVE:
        return InstructionSet(NATIVE, ("-march=native", *(WIDENS if "Intel" in processor() else ())))
    if name not in INSTRUCTION_SETS:
        known = ", ".join((NATIVE, *INSTRUCTION_SETS))
        raise ConfigError(f"{VARIABLE}={name!r} is no set of instructions; known: {known}")
    lacking = INSTRUCTION_SETS[name].lacking()
    if lacking:
        raise ConfigError(f"{VARIABLE}={name} does not run here: the processor lacks {', '.join(lacking)}")
    return INSTRUCTION_SETS[name]


def instruction_set_name() -> str:
    """Return the name of the set in use: the requested one, else the largest that this processor has."""
    isa = requested_instruction_set()
    if isa.name != NATIVE:
        return isa.name
    known = [isa.name for isa in INSTRUCTION_SETS.values() if isa.machine and features() and not isa.lacking()]
    return known[-1] if known else platform.machine()


def features() -> frozenset[str]:
    """Return the processor's features as the system names them; none where it does not say."""
    lines = (line.partition(":") for line in processor().splitlines())
    return frozenset(name for key, _, names in lines if key.strip() in ("flags", "Features") for name in names.split())


def processor() -> str:
    """Return the processor's model and features, as far as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
