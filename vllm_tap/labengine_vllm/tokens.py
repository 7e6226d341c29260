"""The token ids of requests, or a number that replaces each of them with LABENGINE_TAP_TOKENS=0."""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "LABENGINE_TAP_TOKENS"

LEFT_OUT = -1
"""Replaces each token id that is left out."""


class TokenIds:
    """Reads token ids of vLLM's requests. are_sent: False leaves them out, but keeps their number."""

    def __init__(self, *, are_sent: bool = True) -> None:
        self.are_sent = are_sent

    @classmethod
    def by_environment(cls) -> TokenIds:
        """Return the setting of LABENGINE_TAP_TOKENS: 1 (the default) or 0. Raises ValueError for anything else."""
        text = os.environ.get(VARIABLE, "1")
        if text not in ("0", "1"):
            raise ValueError(f"{VARIABLE} must be 0 (omit token ids) or 1, got {text!r}")
        return cls(are_sent=text == "1")

    def of(self, request: Any) -> list[int]:
        """Return one number per token of a request."""
        return list(request._all_token_ids) if self.are_sent else [LEFT_OUT] * request.num_tokens

    def at(self, request: Any, position: int) -> int:
        """Return the number of one token."""
        return int(request._all_token_ids[position]) if self.are_sent else LEFT_OUT

    def drafts(self, request: Any) -> tuple[int, ...]:
        """Return one number per guess of a request's next tokens."""
        drafts = tuple(request.spec_token_ids)
        return drafts if self.are_sent else (LEFT_OUT,) * len(drafts)
