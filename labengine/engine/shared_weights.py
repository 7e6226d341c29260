"""Loaded weights, and who computes with them: several runners may, each over a KV pool of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakSet

import torch

from labengine.engine.fingerprint import ModelFiles
from labengine.engine.model import PagedModel


@dataclass(frozen=True, eq=False)
class Weights:
    """A model on a device, as it was loaded from a directory."""

    model: PagedModel
    files: ModelFiles
    """What they were loaded from."""
    device: torch.device
    dtype: torch.dtype
    reasons: dict[str, str]
    """Why there, and why so: readable lines by name."""
    cuda_graphs: bool
    _users: WeakSet[object] = field(default_factory=WeakSet)
    _guard: Lock = field(default_factory=Lock)

    def join(self, user: object) -> None:
        """Compute with them, until `leave`."""
        with self._guard:
            self._users.add(user)

    def leave(self, user: object) -> bool:
        """Compute with them no more; True when nobody does. Twice is harmless. Any thread may come and go."""
        with self._guard:
            self._users.discard(user)
            return not self._users
