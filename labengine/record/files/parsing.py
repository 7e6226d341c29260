"""Parsing of untrusted JSON, and the shapes of headers and lines of files."""

from __future__ import annotations

import json
from typing import Any

from labengine.config import ConfigError
from labengine.events import Exact
from labengine.record.files.shapes import Shape, shape_of
from labengine.record.wording import visible


class TraceError(ConfigError):
    """A trace that is damaged, of another kind, or newer than this labengine; the message names the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))  # it may quote the file, and repr keeps some invisible characters


INT, TEXT, FACTS, SECONDS = map(shape_of, (Exact, str, dict, float))


def parsed(text: bytes) -> Any:
    """Return the JSON document. Raises TraceError for invalid JSON, NaN and Infinity included."""
    try:
        return _DECODER.decode(text.decode(json.detect_encoding(text), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise TraceError(f"the trace is damaged ({error}): download it again") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def parsed_as(shape: Shape, text: bytes) -> Any:
    """Return the JSON document, read as a shape. Raises TraceError for another shape."""
    document = parsed(text)
    try:
        return shape(document)
    except (TypeError, ValueError) as error:
        raise TraceError(f"the trace is damaged ({error}): download it again") from None
