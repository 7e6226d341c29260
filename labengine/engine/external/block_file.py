"""One block as a safetensors file: its tensors, the name of their content, and a digest over both."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from labengine.core.block import Key
from labengine.core.connector import BlockKV
from labengine.engine.external.store import StoreError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "labengine-kv-1"


def encode(fingerprint: str, key: Key, kv: BlockKV | None) -> bytes:
    """Return the file's bytes. A simulated model's block has metadata only."""
    metadata = _metadata(fingerprint, key, kv)
    if not kv:
        from safetensors import serialize

        return bytes(serialize({}, metadata=metadata))
    from safetensors.torch import save

    # Copies, since safetensors refuses views that share memory.
    return save({name: tensor.clone().contiguous() for name, tensor in kv.items()}, metadata=metadata)


def decode(fingerprint: str, key: Key, data: bytes) -> BlockKV | None:
    """Return the block in a file. Raises StoreError unless it is exactly the one saved under this name."""
    tensors, metadata = _parse(data)
    expected = _metadata(fingerprint, key, tensors)
    if metadata != expected:
        raise StoreError(_difference(metadata, expected))
    return tensors


def _difference(found: dict[str, Any], expected: dict[str, str]) -> str:
    differing = [name for name in expected if found.get(name) != expected[name]]
    if "format" in differing:
        return f"its file is not in the format {FORMAT}"
    if differing in ([], ["digest"]):
        return "its file is damaged: the digest is wrong"
    return f"its file is another block's, or damaged: {differing[0]} is {found.get(differing[0])}"


def _parse(data: bytes) -> tuple[BlockKV | None, dict[str, Any]]:
    from safetensors import SafetensorError

    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        tensors = _tensors(data) if header.keys() - {"__metadata__"} else _no_tensors(data)
        return tensors, header.get("__metadata__") or {}
    except (SafetensorError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(f"its file is damaged: {error}") from None


def _tensors(data: bytes) -> BlockKV:
    from safetensors.torch import load

    return load(data)


def _no_tensors(data: bytes) -> BlockKV | None:
    """Check a file without tensors, without loading torch."""
    from safetensors import deserialize

    deserialize(data)
    return None


def _metadata(fingerprint: str, key: Key, kv: BlockKV | None) -> dict[str, str]:
    group, block_hash = key
    named = {"format": FORMAT, "model": fingerprint, "group": str(group), "block_hash": block_hash.hex()}
    return {**named, "digest": _digest(named, kv or {})}


def _digest(named: dict[str, str], kv: BlockKV) -> str:
    """Return the SHA-256 of the block's name and of every tensor's name, dtype, shape and bytes."""
    digest = hashlib.sha256(json.dumps(named, sort_keys=True).encode())
    for name, tensor in sorted(kv.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _bytes_of(tensor: Tensor) -> memoryview:
    import torch

    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
