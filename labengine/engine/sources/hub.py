"""A model by its id on the Hugging Face hub: fetched, or without a network taken from the hub's local cache."""

from __future__ import annotations

import re
from pathlib import Path

from labengine.engine.sources.catalogue import SourceError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
WANTED = ("*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt")
UNWANTED = ("*/*", "consolidated*")
"""Files not to fetch: subfolders, and Mistral's consolidated files, have the same weights in other formats."""
ANSWER_SECONDS = 10.0


def is_hub_id(name: str) -> bool:
    """Return True if the name has the form "organisation/model"."""
    return HUB_ID.fullmatch(name) is not None


def hub_snapshot(name: str) -> Path:
    """Return the directory of a hub model's newest revision or, without the hub, of the last fetched one.

    Only data is fetched: weights as safetensors, JSON, the tokenizer. Raises SourceError; if the hub cannot be reached,
    within seconds.
    """
    trouble = _trouble_with(name)
    try:
        return _snapshot(name, local_files_only=trouble is not None)
    except Exception as error:  # errors of the client and of its transport have no common ancestor
        raise SourceError(_not_fetched(name, trouble or error)) from error


def _trouble_with(name: str) -> Exception | None:
    """Ask for the model with a time limit, and return the error, as a download waits forever for a silent hub."""
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=ANSWER_SECONDS)
    except Exception as error:
        return error
    return None


def _snapshot(name: str, *, local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            name,
            allow_patterns=list(WANTED),
            ignore_patterns=list(UNWANTED),
            etag_timeout=ANSWER_SECONDS,
            local_files_only=local_files_only,
        )
    )


def _not_fetched(name: str, error: Exception) -> str:
    said = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return (
        f"no local directory {name!r}, and no model with that id on the Hugging Face hub, which said: {said}\n"
        "Check the id, the network and, for a gated model, `hf auth login`; for a directory, check the path"
    )
