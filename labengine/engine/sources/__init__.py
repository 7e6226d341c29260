"""Where models come from: a name that we know how to fetch and convert, or a directory that is ready."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from labengine.config import ConfigError
from labengine.engine.sources.cache import prepared_dir
from labengine.engine.sources.catalogue import KNOWN_MODELS
from labengine.engine.sources.errors import SourceError

__all__ = ["KNOWN_MODELS", "SourceError", "model_path"]


def model_path(name: str | os.PathLike[str] = "smollm2") -> Path:
    """The directory of a model: *.safetensors, config.json, and the tokenizer's files if it has any.

    A known name is fetched and converted on first use (with a progress bar) and found in the cache afterwards; anything
    else must be a local directory. A directory that has a known model's name is reached as "./name".
    Raises ConfigError for what is neither, SourceError when fetching or converting fails, or the cache is damaged.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise ConfigError(f"a model is a name or a directory, got {name!r}")
    known = KNOWN_MODELS.get(os.fspath(name))
    if known is not None:
        return prepared_dir(known)
    directory = Path(name).expanduser()
    if not os.fspath(name) or not directory.is_dir():
        raise ConfigError(_not_found(os.fspath(name)))
    for needed in ("config.json", "*.safetensors"):
        if not any(directory.glob(needed)):
            raise ConfigError(f"{directory} is no model directory: it holds no {needed}")
    return directory


def _not_found(name: str) -> str:
    match = get_close_matches(name, KNOWN_MODELS, n=1)
    meant = f", did you mean {match[0]!r}?" if match else "."
    known = ", ".join(KNOWN_MODELS)
    return f"no model {name!r}{meant} Known: {known}; a local directory with config.json and *.safetensors works too"
