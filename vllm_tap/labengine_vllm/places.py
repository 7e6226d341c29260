"""Places for viewers to connect to: a socket in a private folder, or a port of this machine with a secret."""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

SUFFIX = ".sock"
LOOPBACK = ("127.0.0.1", "localhost")
SECRETS = "LABENGINE_TAP_SECRETS"
"""Environment variable: the folder for the secrets of TCP ports."""


class Place:
    """A listening socket. secret: to be sent first by a viewer; None: the folder's mode decides who may connect."""

    def __init__(self, listener: socket.socket, file: Path, described: str, secret: str | None = None) -> None:
        self.listener, self.secret, self.described = listener, secret, described
        self._file = file
        listener.setblocking(False)

    def close(self) -> None:
        """Stop listening, and remove the socket or the file with its secret."""
        self.listener.close()
        with suppress(OSError):
            self._file.unlink()


def unix_place(folder: str, name: str) -> Place:
    """Listen on the socket DIR/NAME.sock. Raises ValueError for a folder that others may enter, OSError."""
    path = Path(folder)
    _make_private(path)
    _remove_stale(path)
    file, unready = path / (name + SUFFIX), path / f".{name}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(unready))
        unready.chmod(0o600)
        listener.listen()
        unready.rename(file)  # renamed once it answers, because another starting rank removes silent sockets
    except OSError as error:
        listener.close()
        raise OSError(f"no socket can be created at {file} ({error}): a shorter path may help") from error
    return Place(listener, file, str(file))


def tcp_place(address: str, header: dict[str, Any]) -> Place:
    """Listen on 127.0.0.1:PORT + rank, or on any free port for 0; the secret is written to a separate file.

    Raises ValueError for another machine's address, OSError.
    """
    host, _, port = address.rpartition(":")
    if host not in LOOPBACK:
        raise ValueError(
            f"a tap must listen on this machine, as tcp:127.0.0.1:PORT, got {address!r}. "
            "From another machine, use ssh -L PORT:127.0.0.1:PORT HOST"
        )
    if not _is_port(port):
        raise ValueError(f"a port must be a number from 0 to 65535, got {port[:40]!r}")
    asked = int(port)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", asked + header["rank"] if asked else 0))
        listener.listen()
        secret, bound = secrets.token_urlsafe(32), listener.getsockname()[1]
        file = _write_secret({"port": bound, "asked": asked, "secret": secret, **_named(header)})
    except BaseException:
        listener.close()
        raise
    return Place(listener, file, f"tcp:127.0.0.1:{bound} (its secret: {file})", secret)


def _named(header: dict[str, Any]) -> dict[str, Any]:
    return {name: header[name] for name in ("stream", "rank", "pid")}


def _make_private(folder: Path) -> None:
    """Make a folder that only this user may enter. Raises ValueError for an existing folder that others may enter."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ValueError(
            f"{folder} must be accessible only to you, because it holds sockets: chmod 700 {folder}, or use another"
        )


def _remove_stale(folder: Path) -> None:
    """Remove the sockets of engines that are gone, at which no process listens."""
    for file in folder.glob(f"*{SUFFIX}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(file))
            except ConnectionRefusedError:
                file.unlink(missing_ok=True)
            except OSError:
                pass


def _remove_stale_secrets(folder: Path) -> None:
    """Remove the secrets of ports at which no process listens, because their engines were killed."""
    for file in folder.glob("tcp-*.json"):
        port = file.stem.removeprefix("tcp-")
        if not _is_port(port):
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(("127.0.0.1", int(port)))
            except ConnectionRefusedError:
                file.unlink(missing_ok=True)
            except OSError:
                pass


def _write_secret(document: dict[str, Any]) -> Path:
    folder = Path(os.environ.get(SECRETS) or _cache() / "labengine-tap")
    _make_private(folder)
    _remove_stale_secrets(folder)
    file = folder / f"tcp-{document['port']}.json"
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as text:
        json.dump(document, text)
    return file


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _is_port(text: str) -> bool:
    """Return True for a number up to 65535; Python refuses to read one of 4,301 digits."""
    return text.isdecimal() and len(text) <= 5 and int(text) <= 65535
