"""The options of a request, passed from `Lab.add` to the engine and kept in the inputs that repeat it."""

from __future__ import annotations

from dataclasses import dataclass

from labengine.config import MAX_PRIORITY, SamplingParams, checked_int, checked_text
from labengine.core.request import ExtraKeys, Image, Request

_SALT = "cache_salt"


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """All options of a request besides its prompt. Raises ConfigError for an invalid priority."""

    sampling: SamplingParams
    extra_keys: ExtraKeys = ()
    """Requests share blocks only under equal keys; a cache salt is the last key, see `salted`."""
    priority: int = 0
    """-MAX_PRIORITY to MAX_PRIORITY; smaller is more urgent, if the waiting queue uses priorities."""
    images: tuple[Image, ...] = ()
    """Images inside the prompt, in order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "priority", checked_int("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY))

    @classmethod
    def of(cls, request: Request) -> RequestOptions:
        """Return a request's options."""
        return cls(request.sampling, request.extra_keys, request.priority, request.images)

    @property
    def cache_salt(self) -> str | None:
        """The cache salt; None without one."""
        return salt_of(self.extra_keys)

    @property
    def other_keys(self) -> dict[str, str]:
        """The keys without the cache salt; KV depends on them."""
        return {domain: value for domain, value in self.extra_keys if domain != _SALT}


def salted(extra_keys: ExtraKeys, cache_salt: str | None) -> ExtraKeys:
    """Return the keys with the salt, if it is not None or empty. Raises ConfigError for a salt that is not a text."""
    salt = None if cache_salt is None else checked_text(_SALT, cache_salt)
    return (*extra_keys, (_SALT, salt)) if salt else extra_keys


def salt_of(extra_keys: ExtraKeys) -> str | None:
    """Return the cache salt among a request's keys; None without one."""
    return dict(extra_keys).get(_SALT)
