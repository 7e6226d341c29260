"""The engines that can be driven: what they can do, and where to find them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from labengine.config import ConfigError, shown


@dataclass(frozen=True)
class Drivable:
    """One engine.

    operations: its calls, in the words of driver.py. editions: those that its states can be compared with, the one that
    equals it first; empty if its release tells. python, folder: environment variables that name its interpreter, and
    its folder if it is not installed there. options: what its requests have besides a prompt and max_tokens, by
    calls.WORDS. shares_process: several engines can live in one process. takes_drafts: it
    speculates with the guesses that it is told. package: what is imported from its folder instead of the installed one.
    """

    operations: tuple[str, ...]
    editions: tuple[str, ...] = ()
    python: str = ""
    folder: str = ""
    options: tuple[str, ...] = ()
    shares_process: bool = False
    takes_drafts: bool = False
    package: str = ""


ENGINES: Mapping[str, Drivable] = MappingProxyType(
    {
        "vllm": Drivable(
            ("add", "step", "abort", "reset"),
            python="LABENGINE_VLLM_PYTHON",
            options=("salt", "priority", "arrival", "adapter", "images", "unread"),
            takes_drafts=True,
            package="vllm",
            shares_process=True,
        ),
        "nano-vllm": Drivable(("add", "step"), ("nano-vllm", "nano-vllm+243"), folder="LABENGINE_NANO_VLLM"),
        "mini-sglang": Drivable(
            ("add", "step", "abort"),
            ("mini-sglang", "mini-sglang+142"),
            "LABENGINE_SGLANG_PYTHON",
            "LABENGINE_MINI_SGLANG",
        ),
        "sglang": Drivable(("add", "step", "abort"), ("sglang",), "LABENGINE_SGLANG_PYTHON", "LABENGINE_SGLANG"),
    }
)


def drivable(engine: str) -> Drivable:
    """Return an engine by its name. Raises ConfigError."""
    if engine not in ENGINES:
        raise ConfigError(f"engine must be one of {', '.join(ENGINES)}, got {shown(engine)}")
    return ENGINES[engine]


def refuse_edition(engine: str, edition: str) -> None:
    """Raise ConfigError for an edition that an engine cannot be compared with."""
    if edition not in (known := drivable(engine).editions):
        reason = f"{engine} is compared with {' or '.join(known)}" if known else "vLLM's release tells its edition"
        raise ConfigError(f"{reason}: omit edition {shown(edition)}")
