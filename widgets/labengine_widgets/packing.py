"""A document on its way to a browser: JSON as bytes, gzipped where it is long."""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from labengine.trace.codec import dumps, plain

LONG = 8_000
"""Bytes from which a document is gzipped: half of a step's are hashes in hex, and unpacking takes a browser no time."""

_GZIP, _WINDOW, _TABLES = 16, 13, 6
"""zlib's words for a gzip header, a window of 8 KB, and small tables: a step fits in them, and clearing the default's
256 KB takes as long as zipping it.
"""


def packed(document: dict[str, Any]) -> bytes:
    """The document as `codec.dumps` writes it, and gzipped where that is long."""
    data = _json(document)
    return _gzipped(data) if len(data) > LONG else data


def _json(document: dict[str, Any]) -> bytes:
    """A running lab is told 50 times a second, so that the fastest writer there is does it; what it refuses (half a
    surrogate pair in a model's text, an integer beyond 64 bits) the plain one writes.
    """
    try:
        return orjson.dumps(document, default=plain)
    except orjson.JSONEncodeError:
        return dumps(document)


def _gzipped(data: bytes) -> bytes:
    stream = zlib.compressobj(level=1, wbits=_GZIP + _WINDOW, memLevel=_TABLES)
    return stream.compress(data) + stream.flush()
