"""The user's cache of digests: large weights are read once, and again only when their identity has changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from labengine.atomic_write import write_atomically
from labengine.engine.sources.cache import cache_root
from labengine.engine.sources.digests import FileIdentity, Known

IS_KEPT = os.name == "posix"
"""On other systems ctime is the time of creation, and does not show changes."""
MAX_FILES = 1_000
"""Number of newest digests that are kept."""
LOCK_SECONDS = 10.0


class RememberedDigests:
    """digests.json in the user's cache. A lock orders processes that write at the same time."""

    def known(self) -> Known:
        """Return the file's digests; none if it is missing, damaged, or not trusted on this system."""
        if not IS_KEPT:
            return {}
        try:
            return _parsed(json.loads(_path().read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return {}

    def add(self, fresh: Known) -> None:
        """Write digests to the file, or leave it unchanged on an error: a missing cache costs only time."""
        from filelock import FileLock, Timeout

        if not IS_KEPT:
            return
        with suppress(OSError, NotImplementedError, Timeout):
            _path().parent.mkdir(parents=True, exist_ok=True)
            with FileLock(_path().with_name(".digests.lock"), timeout=LOCK_SECONDS):
                older = {path: entry for path, entry in self.known().items() if path not in fresh}
                newest = list((older | fresh).items())[-MAX_FILES:]
                write_atomically(_path(), _written({path: [*entry[0], entry[1]] for path, entry in newest}))


def _path() -> Path:
    return cache_root() / "digests.json"


def _written(files: Mapping[str, list[int | str]]) -> bytes:
    return json.dumps({"files": files, "sha256": _checksum(files)}, indent=1).encode()


def _parsed(content: Any) -> Known:
    """Parse the file. Raises ValueError or similar for anything that _written did not write."""
    files = content["files"]
    if content["sha256"] != _checksum(files):
        raise ValueError("the file is damaged")
    return {path: (FileIdentity(*map(int, identity)), str(digest)) for path, (*identity, digest) in files.items()}


def _checksum(files: Any) -> str:
    return sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
