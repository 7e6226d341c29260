"""The record of what a request is asked for with: from `Lab.add` to the engine, and in the inputs that repeat it."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.config import MAX_PRIORITY, SamplingParams, checked_int, checked_text
from labengine.core.request import ExtraKeys, Image, Request

_SALT = "cache_salt"


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """All that a request is asked for with besides its prompt. Raises ConfigError for a priority that is none."""

    sampling: SamplingParams
    extra_keys: ExtraKeys = ()
    """Requests share blocks only under equal keys, of which a cache salt is the last; see `salted`."""
    priority: int = 0
    """-MAX_PRIORITY to MAX_PRIORITY; smaller is more urgent, where the waiting queue takes notice of it."""
    images: tuple[Image, ...] = ()
    """In order, inside the prompt."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "priority", checked_int("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY))

    @classmethod
    def of(cls, request: Request) -> RequestOptions:
        """Return the options that a request has."""
        return cls(request.sampling, request.extra_keys, request.priority, request.images)

    @property
    def cache_salt(self) -> str | None:
        """The cache salt; None without one."""
        return salt_of(self.extra_keys)

    @property
    def other_keys(self) -> dict[str, str]:
        """The keys but for the cache salt: KV depends on them."""
        return {domain: value for domain, value in self.extra_keys if domain != _SALT}


def salted(extra_keys: ExtraKeys, cache_salt: str | None) -> ExtraKeys:
    """Return the keys and the salt, unless that is None or empty. Raises ConfigError for a salt that is no text."""
    salt = None if cache_salt is None else checked_text(_SALT, cache_salt)
    return (*extra_keys, (_SALT, salt)) if salt else extra_keys


def salt_of(extra_keys: ExtraKeys) -> str | None:
    """Return the cache salt among a request's keys; None without one."""
    return dict(extra_keys).get(_SALT)
