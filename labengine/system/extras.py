"""The optional packages, by the extra that installs them, and errors that name a missing extra."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from labengine.config import ConfigError

EXTRAS: dict[str, tuple[str, ...]] = {
    "models": (
        "torch",
        "transformers",
        "tokenizers",
        "safetensors",
        "huggingface_hub",
        "gguf",
        "numpy",
        "psutil",
        "pydantic",
        "jinja2",
    ),
    "lab": ("jupyterlab", "ipykernel", "plotly", "orjson", "pandas"),
    "events": ("msgspec", "zmq"),
    "exports": ("perfetto", "prometheus_client"),
}
"""Packages of each extra in pyproject.toml, by the names of their modules."""


def require_extra_of(error: ModuleNotFoundError, purpose: str) -> None:
    """Raise ConfigError with the install command if the missing module belongs to an extra."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            require_extra(extra, purpose)


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Raise ConfigError with the install command unless these modules of an extra (default: all) can be imported.

    purpose: the subject of the sentence, such as "the model 'smollm2'". Nothing is imported.
    """
    missing = [module for module in modules or EXTRAS[extra] if find_spec(module) is None]
    if missing:
        named, num_more = missing[:3], len(missing) - 3
        needed = f"{', '.join(named)} and {num_more} more packages" if num_more > 1 else " and ".join(missing)
        instead = "; without it, Lab('simulated') runs the same scheduler and cache" * (extra == "models")
        raise ConfigError(f"{purpose} needs {needed}: {how_to_install(extra)}{instead}")


IS_ON_AN_INDEX = False
"""True once `pip install labengine` finds this project; until then no message suggests it."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra: from the clone, from a package index, or with the wheel."""
    clone = Path(__file__).parents[2]
    if (clone / "pyproject.toml").is_file():
        return f"pip install -e '{clone}[{extra}]'"
    if IS_ON_AN_INDEX:
        return f"pip install 'labengine[{extra}]'"
    return f"pip install 'WHEEL[{extra}]', where WHEEL is the file that labengine was installed from"
