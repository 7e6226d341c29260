"""Messages as lines of JSON."""

from __future__ import annotations

import json
from typing import Any

try:  # vLLM has msgspec; it encodes five times as fast
    import msgspec

    encoded = msgspec.json.Encoder().encode
except ImportError:

    def encoded(message: Any) -> bytes:
        """Return a message as JSON."""
        return json.dumps(message, separators=(",", ":")).encode()


def line_of(message: dict[str, Any]) -> bytes:
    """Return a message of the tap as JSON. A keyframe is encoded in parts, so that none delays the engine long."""
    if "k" not in message:
        line: bytes = encoded(message)
        return line
    others = encoded({name: value for name, value in message.items() if name != "k"})
    return b"".join((others[:-1], b',"k":', *message["k"].parts(), b"}"))


def plain(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of the tap with only JSON types."""
    return {**message, "k": message["k"].document()} if "k" in message else message
