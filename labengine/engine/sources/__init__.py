"""Sources of models: a known name (fetched and converted), a local directory, or a hub id."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from labengine.config import ConfigError, checked_path, shown
from labengine.engine.sources.cache import cached_dir, prepared_dir
from labengine.engine.sources.catalogue import KNOWN_MODELS, SourceError
from labengine.engine.sources.hub import hub_snapshot, is_hub_id
from labengine.system.extras import EXTRAS, require_extra

__all__ = ["KNOWN_MODELS", "SourceError", "model_path"]

CONVERSION = {"gguf"}
"""Modules needed only to prepare a known model."""


def model_path(name: str | os.PathLike[str] = "smollm2") -> Path:
    """Return the directory of a model: *.safetensors, config.json, and the tokenizer's files, if any.

    A model with a known name is fetched and converted on first use (with a progress bar), and later found in the cache.
    Any other name is a local directory or, if there is none, the id of a model on the Hugging Face hub ("org/name").
    For a directory that has a known model's name use "./name".
    Raises ConfigError for anything else, and without the extra `models`; SourceError if fetching or converting fails.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise ConfigError(f"a model must be a name or a directory, got {shown(name)}")
    checked_path("a model's name", name)
    text = os.fspath(name)
    known = KNOWN_MODELS.get(text)
    unneeded = CONVERSION if known is None or cached_dir(known).exists() else set()
    require_extra("models", f"the model {shown(text)}", *(m for m in EXTRAS["models"] if m not in unneeded))
    if known is not None:
        return prepared_dir(known)
    directory = Path(name).expanduser()
    if not text or not directory.is_dir():
        if not isinstance(name, str) or not is_hub_id(name):
            raise ConfigError(_not_found(text))
        directory = hub_snapshot(name)
    for needed in ("config.json", "*.safetensors"):
        if not any(directory.glob(needed)):
            raise ConfigError(f"{directory} is not a model directory: it has no {needed}")
    from labengine.engine.model_files.tokenizer_files import check_tokenizer_file

    check_tokenizer_file(directory)
    return directory


def _not_found(name: str) -> str:
    match = get_close_matches(name, KNOWN_MODELS, n=1)
    meant = f", did you mean {match[0]!r}?" if match else "."
    known = ", ".join(KNOWN_MODELS)
    return (
        f"no model {shown(name)}{meant} Known: {known}; a local directory with config.json and *.safetensors works "
        'too, and a hub id like "org/name"'
    )
