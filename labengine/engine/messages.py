"""A conversation as a chat template wants it."""

from __future__ import annotations

from collections.abc import Sequence

from labengine.config import ConfigError, checked_text


def require_messages(messages: Sequence[dict[str, str]]) -> None:
    """Raise ConfigError for anything but a list of {role, content}, both texts, with at least one of them."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise ConfigError(f"a conversation is a list of messages, one at least, got {messages!r}")
    for message in messages:
        if not isinstance(message, dict) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
            raise ConfigError(f"a chat message is a dict with the texts 'role' and 'content', got {message!r}")
        checked_text("a chat message", message["content"])
