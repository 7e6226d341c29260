"""A prompt as the doctor reads it, and traffic: prompts in the order of their arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from labengine.core.request import ExtraKeys, Image

TokenText = Callable[[int], str]


@dataclass(slots=True)
class Prompt:
    """One request of a traffic. num_answer: the tokens to generate; answer: these tokens, as far as they are known.

    arrival: seconds since the traffic began; None for "as soon as there is room". session: prompts of one conversation,
    or of one user, have the same. message_starts: the tokens at which a chat's messages begin.
    """

    name: str
    token_ids: Sequence[int]
    arrival: float | None = None
    num_answer: int = 1
    answer: Sequence[int] = ()
    extra_keys: ExtraKeys = ()
    images: tuple[Image, ...] = ()
    tenant: str = ""
    session: str = ""
    replica: int | None = None
    """The replica that served it, if the traffic says so."""
    priority: int = 0
    skips_cache: bool = False
    message_starts: tuple[int, ...] = ()
    block_hashes: list[bytes] = field(default_factory=list)
    """Its hash chain, if its reader has computed it."""


@dataclass(frozen=True)
class Traffic:
    """Prompts that can be read again and again, in the order of their arrival.

    read: yields the prompts, from the first one on. token_text: None if the tokens have no text. notes: sentences on
    what was left out, complete once everything has been read.
    """

    title: str
    read: Callable[[], Iterator[Prompt]]
    token_text: TokenText | None = None
    notes: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[Prompt]:
        return self.read()
