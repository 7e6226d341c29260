"""Stores of the external tier: host memory, disk and asynchronous loads; and the meaning of `external=`."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from labengine.config import ConfigError
from labengine.core.connector import Connector
from labengine.core.overrides import refuse_wrong_overrides
from labengine.engine.external.disk import DiskStore
from labengine.engine.external.host import HostStore
from labengine.engine.external.late import Delayed, Threaded
from labengine.engine.external.store import KVStore

__all__ = ["Delayed", "DiskStore", "HostStore", "KVStore", "Threaded", "open_store"]


HOST_BYTES = 2**30
HOST_BLOCKS = 2**16
"""Cap on blocks for a simulated model, whose blocks have no bytes."""


def open_store(spec: str | PathLike[str] | Connector) -> Connector:
    """Return the tier for `external=spec`: "host", "disk" (in the user's cache), a folder, or a connector unchanged.

    A folder is a Path, or a text with a separator in it. Raises ConfigError for anything else, and for a connector with
    a misspelt method or a method whose parameters do not fit the engine's calls.
    """
    if isinstance(spec, Connector):
        refuse_wrong_overrides("external", type(spec), Connector)
        return spec
    if spec == "host":
        return HostStore(max_blocks=HOST_BLOCKS, max_bytes=HOST_BYTES)
    if spec == "disk":
        return DiskStore(_cache_folder())
    if _is_folder(spec):
        return DiskStore(spec)
    raise ConfigError(
        f"external must be 'host' (memory), 'disk' (your cache), a folder such as './kv' or a Connector, got {spec!r}"
    )


def _is_folder(spec: object) -> bool:
    return isinstance(spec, PathLike) or (isinstance(spec, str) and ("/" in spec or os.sep in spec))


def _cache_folder() -> Path:
    from labengine.engine.sources.cache import cache_root

    return cache_root() / "kv"
