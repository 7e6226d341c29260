"""JSON of a file that nobody vouches for."""

from __future__ import annotations

import json
from typing import Any

from labengine.trace.errors import TraceError
from labengine.trace.shapes import Shape


def parsed(text: bytes) -> Any:
    """Return the JSON document. TraceError for what is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"the trace is damaged ({error}): get it again") from None


def parsed_as(shape: Shape, text: bytes) -> Any:
    """Return the JSON document, which must be of a shape. TraceError for what is not."""
    document = parsed(text)
    try:
        return shape(document)
    except (TypeError, ValueError) as error:
        raise TraceError(f"the trace is damaged ({error}): get it again") from None
