"""Sources of KV events: publishers' endpoints, or a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from labengine.config import ConfigError

SUFFIX = ".kvevents"
"""Suffix of a file of KV events."""

PREFIX = "kv:"
BIND = "bind:"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_TCP = re.compile(r"tcp://(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+\]|\*):(?P<port>\d{1,5})")
_IPC = re.compile(r"ipc://.+")


@dataclass(frozen=True, slots=True)
class PublisherPlace:
    """One publisher's endpoint. is_bound: True if the publisher connects, so that the reader must bind."""

    endpoint: str
    is_bound: bool
    replay: str | None = None

    @property
    def name(self) -> str:
        """The text to attach to it with."""
        return f"{BIND if self.is_bound else ''}{self.endpoint}"


def is_kv_place(place: object) -> bool:
    """Return True for kv:..., and for a file of KV events."""
    return str(place).startswith(PREFIX) or str(place).endswith(SUFFIX)


def file_of(place: str) -> Path | None:
    """Return the file named by a place; None for endpoints."""
    place = place.removeprefix(PREFIX)
    return None if place.removeprefix(BIND).startswith(("tcp:", "ipc:", "inproc:")) else Path(place)


def publishers(place: str, replay: str | None) -> tuple[PublisherPlace, ...]:
    """Return the endpoints of a place, separated by commas, each with its replay endpoint.

    Raises ConfigError for an invalid endpoint, or if the numbers of publishers and replay endpoints differ.
    """
    names = place.removeprefix(PREFIX).split(",")
    replays = [None] * len(names) if replay is None else [_checked(one) for one in replay.split(",")]
    if len(replays) != len(names):
        raise ConfigError(f"{len(names)} publishers need as many replay endpoints, got {len(replays)}")
    return tuple(map(_publisher, names, replays))


def _publisher(name: str, replay: str | None) -> PublisherPlace:
    endpoint, is_bound = _checked(name.removeprefix(BIND)), name.startswith(BIND)
    found = _TCP.fullmatch(endpoint)
    if is_bound and found and found["host"] not in LOOPBACK:
        raise ConfigError(
            f"labengine binds only loopback addresses, such as kv:{BIND}tcp://127.0.0.1:5557, got {endpoint}"
        )
    return PublisherPlace(endpoint, is_bound, replay)


def _checked(endpoint: str) -> str:
    found = _TCP.fullmatch(endpoint)
    if found and found["host"] == "*":
        raise ConfigError(
            f"an engine binds {endpoint} on all interfaces, but a reader must name the host: "
            f"kv:tcp://127.0.0.1:{found['port']}"
        )
    if (found and 0 < int(found["port"]) < 65536) or _IPC.fullmatch(endpoint):
        return endpoint
    raise ConfigError(f"an endpoint must be tcp://HOST:PORT or ipc://PATH, got {endpoint!r}")
