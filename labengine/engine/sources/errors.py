"""What goes wrong on a model's way from its source into the cache."""

from __future__ import annotations


class SourceError(RuntimeError):
    """A model could not be fetched, verified or converted, or its cache is damaged; the message says what to do."""
