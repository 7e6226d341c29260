"""Endpoints of taps on a running vLLM: sockets in a folder, or ports of this machine, each with a secret."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from labengine.config import ConfigError, shown
from labengine.system.regular_file import read_regular

SOCKET_SUFFIX = ".sock"
SECRETS = "LABENGINE_TAP_SECRETS"
"""Environment variable: the folder in which taps keep the secrets of their ports."""

LOOPBACK = ("127.0.0.1", "localhost")
_SOCKET = re.compile(rf"rank(?P<rank>\d+)-.+{re.escape(SOCKET_SUFFIX)}")
_SECRET = re.compile(r"tcp-(?P<port>\d+)\.json")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One rank's socket. address: a path, or a port of this machine. secret: to be sent to a port first."""

    address: Path | int
    rank: int
    secret: str = ""

    @property
    def place(self) -> str:
        """The text to attach to only this rank with."""
        return f"tcp:127.0.0.1:{self.address}" if isinstance(self.address, int) else f"unix:{self.address}"


def is_live(place: str | PathLike[str]) -> bool:
    """Return True for unix:..., tcp:... and a socket's path, as vLLM's log prints it; False for files."""
    return (isinstance(place, str) and place.startswith(("unix:", "tcp:"))) or Path(place).is_socket()


def endpoints(place: str | PathLike[str]) -> list[Endpoint]:
    """Return the sockets at a place, by rank; some may belong to engines that are gone.

    Raises ConfigError for an invalid place, or one without sockets.
    """
    kind, _, address = str(place).partition(":")
    if kind not in ("unix", "tcp"):
        kind, address = "unix", str(place)
    found = _sockets(Path(address)) if kind == "unix" else _ports(address)
    return sorted(found, key=lambda one: (one.rank, str(one.address)))


def _sockets(path: Path) -> list[Endpoint]:
    if path.is_socket():
        return [Endpoint(path, _rank_of(path.name))]
    if not path.is_dir():
        raise ConfigError(f"no folder {path}: set LABENGINE_TAP=unix:{path} to make vLLM's tap listen there")
    found = [Endpoint(file, _rank_of(file.name)) for file in path.glob(f"*{SOCKET_SUFFIX}") if file.is_socket()]
    if not found:
        raise ConfigError(f"no engine is listening in {path}: set LABENGINE_TAP=unix:{path} to make vLLM's tap do so")
    return found


def _rank_of(name: str) -> int:
    found = _SOCKET.fullmatch(name)
    return int(found["rank"]) if found else 0


def _ports(address: str) -> list[Endpoint]:
    host, _, port = address.rpartition(":")
    if host not in LOOPBACK:
        raise ConfigError(
            f"a tap must be on this machine, as tcp:127.0.0.1:PORT, got tcp:{address}. "
            "For another machine, use ssh -L PORT:127.0.0.1:PORT HOST and copy its secret file here"
        )
    if not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise ConfigError(f"a port must be a number from 0 to 65535, got {shown(port)}")
    wanted = int(port)
    found = [one for one, asked in _noted() if wanted in (one.address, asked)]
    if not found:
        raise ConfigError(
            f"no secret for port {wanted} in {secrets_folder()}: LABENGINE_TAP=tcp:127.0.0.1:{wanted} makes "
            f"vLLM's tap write one; for another machine, copy its file tcp-{wanted}.json there"
        )
    return found


def secrets_folder() -> Path:
    """Return the folder in which taps keep the secrets of their ports."""
    named = os.environ.get(SECRETS)
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "labengine-tap"


def _noted() -> Iterator[tuple[Endpoint, int]]:
    """Yield each port whose secret is known, and the port that LABENGINE_TAP asked for: 0 or that of rank 0."""
    for file in sorted(secrets_folder().glob("tcp-*.json")):
        found = _SECRET.fullmatch(file.name)
        try:
            noted = json.loads(read_regular(file)) if found else None
            if found and isinstance(noted, dict) and isinstance(noted["secret"], str):
                yield Endpoint(int(found["port"]), int(noted["rank"]), noted["secret"]), int(noted["asked"])
        except (OSError, ValueError, LookupError, TypeError):
            continue  # incomplete, or another program's
