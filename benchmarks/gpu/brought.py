"""The content of a folder brought along for a machine without a network, and the environment made from it.

whl/*.whl                     packages that the machine lacks
fa3/_vllm_fa3_C.abi3.so.xz    FA3's kernels, if flash-attn cannot be built (see fa3/)
nano/                         nano-vLLM's sources
models/NAME/                  config and tokenizer of a known model, which gets random weights
triton_cache.tar.xz           compiled kernels (make gpu-cache)
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = Path(tempfile.gettempdir()) / "labengine-gpu"
"""Folder for unpacked and generated files, kept for the next command on the same machine."""
TRITON_CACHE = Path(tempfile.gettempdir()) / "lab_triton_cache"
"""Folder in which the packed kernels must lie, because their files refer to each other by this path."""
FA3_LIBRARY = "_vllm_fa3_C.abi3.so"
MODELS = ("smollm2", "gemma3-270m")
"""Known models that GPU tests load."""


@dataclass(frozen=True)
class Brought:
    """The parts brought along; a missing part is None or empty. work: the folder for unpacking."""

    wheels: tuple[Path, ...] = ()
    fa3: Path | None = None
    nano: Path | None = None
    models: tuple[Path, ...] = ()
    triton_cache: Path | None = None
    work: Path = WORK

    @property
    def site(self) -> Path:
        """The folder of the installed wheels."""
        return self.work / "site"

    @property
    def fa3_library(self) -> Path | None:
        """The unpacked file that FA3's package in fa3/ loads."""
        return self.work / FA3_LIBRARY if self.fa3 is not None and self.fa3.suffix == ".xz" else self.fa3

    def model_names(self) -> list[str]:
        return [folder.name for folder in self.models]

    def packages(self) -> set[str]:
        """Names of the wheels' packages, in PyPI's spelling."""
        return {wheel.name.partition("-")[0].lower().replace("_", "-") for wheel in self.wheels}

    def missing(self) -> Iterator[str]:
        """Yield each missing part and the consequence."""
        if not self.wheels:
            yield "no whl/*.whl: packages that the machine lacks stay missing"
        if self.fa3 is None:
            yield f"no fa3/{FA3_LIBRARY}.xz: FA3 runs only if flash-attn is installed"
        if self.nano is None:
            yield "no nano/: nano-vLLM is left out"
        if not self.models:
            yield "no models/: known models come from the user's cache, or from the network"
        if self.triton_cache is None:
            yield "no triton_cache.tar.xz: kernels are compiled here, which takes minutes"

    def environment(self) -> dict[str, str]:
        """Return the environment of every child: our packages, then the earlier PYTHONPATH; nothing from a hub."""
        settings = {
            "PYTHONPATH": self._path(),
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "TRITON_INTERPRET": "0",
            "COLUMNS": "200",  # pytest's last lines have the reasons
        }
        if self.models:  # their random weights must not get into the user's cache
            settings |= {"LABENGINE_CACHE": str(self.work / "models"), "PIP_NO_INDEX": "1"}
        if self.triton_cache is not None:
            settings["TRITON_CACHE_DIR"] = str(TRITON_CACHE)
        return settings

    def fa3_environment(self) -> dict[str, str]:
        """Return the additional environment of processes that compute by FA3; empty without it.

        Not for all processes, because transformers imports any flash_attn it finds, and fails if it does not load.
        """
        if self.fa3_library is None:
            return {}
        return {"PYTHONPATH": self._path(HERE / "fa3"), "LABENGINE_FA3_LIBRARY": str(self.fa3_library)}

    def _path(self, *more: Path) -> str:
        site = (self.site,) if self.wheels else ()
        ours = map(str, (ROOT, ROOT / "widgets", *site, *more))
        return os.pathsep.join(filter(None, [*ours, os.environ.get("PYTHONPATH")]))


def find_brought(folder: Path, nano: str | None = None, fa3: str | None = None, work: Path = WORK) -> Brought:
    """Look into the folder, which may be missing. nano, fa3: a checkout and a library from elsewhere."""
    library, sources, cache = folder / "fa3" / f"{FA3_LIBRARY}.xz", folder / "nano", folder / "triton_cache.tar.xz"
    return Brought(
        wheels=tuple(sorted(folder.glob("whl/*.whl"))),
        fa3=Path(fa3).resolve() if fa3 else library if library.exists() else None,
        nano=Path(nano).resolve() if nano else sources if sources.is_dir() else None,
        models=tuple(path for name in MODELS if (path := folder / "models" / name).is_dir()),
        triton_cache=cache if cache.exists() else None,
        work=work,
    )
