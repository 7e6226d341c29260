"""The instructions that the kernels may use: all of the processor's, or the set named by LABENGINE_CPU.

The sets are the levels of the x86-64 psABI (https://gitlab.com/x86-psABIs/x86-64-ABI, section 3.1.1), one more with
bf16 products, and two of ARM's; each has kernels in some wheel. Use a smaller set than the processor's to compute like
an older processor, for comparison.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from labengine.config import ConfigError

VARIABLE = "LABENGINE_CPU"
NATIVE = "native"
WIDENS = ("-DLABENGINE_WIDENS",)
"""Multiply bf16 as floats even where there are products of bf16. On Intel's processors such a product takes as long as
two of floats and has to wait for more operands: a prompt was a third slower with them (Sapphire Rapids, 2026-11-24)."""


@dataclass(frozen=True)
class InstructionSet:
    """A set of instructions. flags: for the compiler; needs: features beyond x86-64, by Linux's names.

    machine: the kind of processor, by platform.machine()'s name; "" for this machine's.
    """

    name: str
    flags: tuple[str, ...]
    machine: str = ""
    needs: frozenset[str] = frozenset()

    def lacking(self) -> list[str]:
        """Return the needed features that this processor lacks; [] if the set runs, or if that is unknown."""
        if self.machine != machine():
            return [f"a processor of kind {self.machine}"]
        known = features()
        return sorted(self.needs - known) if known else []

    def is_known_to_run(self) -> bool:
        """Return True if this processor is of the right kind and is known to have all needed features."""
        return self.machine == machine() and self.needs <= features()


_V2 = frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"])
_V3 = _V2 | frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_ARM_V8_2 = frozenset(["asimdrdm", "atomics", "crc32"])

INSTRUCTION_SETS = {
    isa.name: isa
    for isa in (
        InstructionSet("x86-64-v2", ("-march=x86-64-v2",), "x86_64", _V2),
        InstructionSet("x86-64-v3", ("-march=x86-64-v3",), "x86_64", _V3),
        InstructionSet("x86-64-v4", ("-march=x86-64-v4",), "x86_64", _V4),
        InstructionSet("x86-64-v4-bf16", ("-march=x86-64-v4", "-mavx512bf16"), "x86_64", _V4 | {"avx512_bf16"}),
        InstructionSet("aarch64", ("-march=armv8-a",), "aarch64"),
        InstructionSet("aarch64-bf16", ("-march=armv8.2-a+bf16",), "aarch64", _ARM_V8_2 | {"bf16"}),
    )
}
"""Instruction sets by name, smallest first."""


@cache
def requested_instruction_set() -> InstructionSet:
    """Return the set named by LABENGINE_CPU; without it, all the processor's instructions. A process has one set.

    Raises ConfigError for an unknown set, and for a set that this processor lacks.
    """
    name = os.environ.get(VARIABLE) or NATIVE
    if name == NATIVE:
        if machine() == "aarch64":
            return InstructionSet(NATIVE, ("-mcpu=native",))  # the only form that clang accepts there
        return InstructionSet(NATIVE, ("-march=native", *(WIDENS if widens() else ())))
    if name not in INSTRUCTION_SETS:
        known = ", ".join((NATIVE, *INSTRUCTION_SETS))
        raise ConfigError(f"{VARIABLE} must be one of {known}, got {name!r}")
    lacking = INSTRUCTION_SETS[name].lacking()
    if lacking:
        raise ConfigError(f"{VARIABLE}={name} cannot run on this processor: it needs {', '.join(lacking)}")
    return INSTRUCTION_SETS[name]


def instruction_set_name() -> str:
    """Return the name of the set in use: the requested one, else the largest that this processor has."""
    isa = requested_instruction_set()
    if isa.name != NATIVE:
        return isa.name
    known = [isa.name for isa in INSTRUCTION_SETS.values() if features() and not isa.lacking()]
    return known[-1] if known else platform.machine()


def runnable_instruction_sets() -> list[InstructionSet]:
    """Return the sets whose prebuilt kernels can run here, the fastest first.

    That is the set of LABENGINE_CPU; without it, all sets that the processor is known to have.
    """
    if requested_instruction_set().name != NATIVE:
        return [requested_instruction_set()]
    slower = {"x86-64-v4-bf16"} if widens() else set()
    known = (isa for isa in reversed(INSTRUCTION_SETS.values()) if isa.is_known_to_run())
    return [isa for isa in known if isa.name not in slower]


def widens() -> bool:
    """Return True if products of bf16 are not faster here than products of floats."""
    return "Intel" in processor()


def machine() -> str:
    """Return the kind of processor, by Linux's name."""
    return {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())


def features() -> frozenset[str]:
    """Return the processor's features by Linux's names; none if the system does not report them."""
    if sys.platform == "darwin":
        return frozenset(feature for feature, name in APPLE_FEATURES.items() if _apple_has(name))
    if sys.platform == "win32":
        return _features_reported_by_torch()
    lines = (line.partition(":") for line in processor().splitlines())
    return frozenset(name for key, _, names in lines if key.strip() in ("flags", "Features") for name in names.split())


APPLE_FEATURES = {"asimdrdm": "FEAT_RDM", "atomics": "FEAT_LSE", "crc32": "armv8_crc32", "bf16": "FEAT_BF16"}
"""macOS's names for features that instruction sets need."""


@cache
def _apple_has(name: str) -> bool:
    value, size = ctypes.c_int(0), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    found = ctypes.CDLL(None).sysctlbyname
    failed = found(
        f"hw.optional.arm.{name}".encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return not failed and value.value == 1


TORCH_FEATURES = {
    **{name: name for name in ("avx", "avx2", "f16c", "popcnt", "sse4_1", "sse4_2", "ssse3", "avx512_bf16")},
    **{f"avx512{part}": f"avx512_{part}" for part in ("f", "bw", "cd", "dq", "vl")},
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "fma": "fma3",
}
"""torch's names for features that instruction sets need."""
NOT_REPORTED = {"ssse3": {"cx16", "lahf_lm"}, "avx2": {"movbe"}}
"""Features that torch does not report. All processors that run Windows and have the first feature have them too."""


def _features_reported_by_torch() -> frozenset[str]:
    """Return the features that processor and system have; none if torch is too old to report them."""
    from torch import cpu

    reported: dict[str, object] = getattr(cpu, "get_capabilities", dict)()
    known = {feature for feature, name in TORCH_FEATURES.items() if reported.get(name)}
    return frozenset(known.union(*(others for feature, others in NOT_REPORTED.items() if feature in known)))


def processor() -> str:
    """Return the processor's model and features, as far as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
