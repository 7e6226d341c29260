"""NoTestError: why a session gives no test."""

from __future__ import annotations

from labengine.config import ConfigError


class NoTestError(ConfigError):
    """Raised if a test would catch nothing, or would fail with the right classes. The message says what to do.

    suggestion: an assertion that tells the run from the right one, for `to_test(asserting=...)`; empty without one.
    """

    def __init__(self, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.suggestion = suggestion
