"""A name for what a model's KV depends on: weights, dtype, and how layers lie in blocks. Cheap: it reads samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from labengine.config import GroupSpec
from labengine.engine.sources.manifest import known_digests

SAMPLES, SAMPLE_BYTES = 256, 4096
"""How much of a weights file is read where no manifest says its digest."""


def fingerprint(model_dir: Path, dtype: str, groups: Sequence[GroupSpec], layer_groups: Sequence[int]) -> str:
    """32 hex digits; equal for equal weights, dtype and layout, on any device and in any number of blocks.

    Weights are known by the manifest's digests in a directory that has one, else by each file's size, time of change
    and 1 MiB spread over its content: weights written anew get a new name, even where the old one would do.
    """
    described = {
        "model": _files(model_dir),
        "dtype": dtype,
        "groups": [[spec.kind, spec.block_size, spec.window] for spec in groups],
        "layer_groups": list(layer_groups),
    }
    return _digest(json.dumps(described, sort_keys=True).encode())


def _files(model_dir: Path) -> dict[str, str]:
    """Something that changes with the content, by file name, for config.json and the weights."""
    paths = [model_dir / "config.json", *sorted(model_dir.glob("*.safetensors"))]
    known = known_digests(model_dir)
    return {path.name: known.get(path.name) or _sampled(path) for path in paths}


def _sampled(path: Path) -> str:
    stat = path.stat()
    pieces = [f"{stat.st_size} {stat.st_mtime_ns}".encode()]
    with path.open("rb") as file:
        for sample in range(SAMPLES):
            file.seek(stat.st_size * sample // SAMPLES)
            pieces.append(file.read(SAMPLE_BYTES))
    return _digest(b"".join(pieces))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
