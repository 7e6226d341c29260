"""What is said of a file that cannot be opened."""

from __future__ import annotations

from labengine.config import ConfigError


class TraceError(ConfigError):
    """A trace that is damaged, foreign, or newer than this labengine; the message says which, and what to do."""
