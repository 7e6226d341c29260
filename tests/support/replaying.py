"""A recorded stream of vLLM behind a real unix socket, sent as far as a test wants it."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Self

from differential import vllm_streams
from waiting import PATIENCE


class ReplayedTap:
    """Listens in a folder as the tap on one rank does. num_sent: messages that every viewer has got, or gets first.

    names: {request id: name} in place of the recorded ones. lines: header and messages in place of the recorded run.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        rank: int = 0,
        names: dict[int, str] | None = None,
        lines: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        header, *self._messages = lines or _recorded(seed)
        self.header = header | {"rank": rank, "stream": f"{header['stream']}-{rank}"}
        for message in self._messages if names else ():
            message["names"] = {i: (names or {}).get(int(i), name) for i, name in message.get("names", {}).items()}
        self.num_sent = 1
        self._viewers: list[socket.socket] = []
        self._guard = Lock()
        """Held while a viewer gets what was sent before: what is sent next comes to it, too."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / f"rank{rank}-{seed}-replayed.sock"))
        self._socket.listen()
        self._thread = Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def num_messages(self) -> int:
        """All messages of the recorded run."""
        return len(self._messages)

    def send(self, num_messages: int | None = None) -> None:
        """Send so many further messages, or all of them."""
        with self._guard:
            end = len(self._messages) if num_messages is None else self.num_sent + num_messages
            new, self.num_sent = self._messages[self.num_sent : end], min(end, len(self._messages))
            for viewer in self._viewers:
                with suppress(OSError):  # it only asked which engine this is, or has gone
                    viewer.sendall(_lines(new))

    def close(self) -> None:
        """End the connections."""
        for one in (self._socket, *self._viewers):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._thread.join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                viewer, _ = self._socket.accept()
            except OSError:
                return
            with self._guard, suppress(OSError):
                viewer.sendall(_lines([self.header, *self._messages[: self.num_sent]]))
                self._viewers.append(viewer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _recorded(seed: int) -> list[dict[str, Any]]:
    _, items = next(islice(vllm_streams.read(), seed, None))
    return [json.loads(line) for line in vllm_streams.lines_of(items)]


def _lines(messages: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)
