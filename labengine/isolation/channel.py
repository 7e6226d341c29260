"""Messages from a copy of this process. They are framed, so other data that a part writes into the pipe is ignored.

They are pickled, because findings and results have many classes. The copy runs with the same user's rights, so it gains
nothing from our unpickling.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any, cast
from zlib import crc32

_HEAD = struct.Struct("<QI")
"""Header of a frame, after its mark: the message's length and checksum."""
_MARK_BYTES = 16
_MAX_READ = 1 << 18


class Sender:
    """The write end of a pipe, for the copy."""

    def __init__(self, descriptor: int, mark: bytes) -> None:
        self._descriptor, self._mark = descriptor, mark
        self._owner = 0
        self._pipe: tuple[int, int] | None = None

    def own(self) -> None:
        """Let only this process send, not copies that a part makes of it."""
        self._owner, self._pipe = os.getpid(), self._identity()

    @property
    def is_closed(self) -> bool:
        """True if a part has closed the pipe, even if it opened another file under the same descriptor."""
        return self._identity() != self._pipe

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def send(self, message: object) -> None:
        """Send a message. Raises OSError if the receiver is gone or a part has closed the pipe."""
        if os.getpid() != self._owner:
            os._exit(0)
        packed = pickle.dumps(message)
        data = memoryview(self._mark + _HEAD.pack(len(packed), crc32(packed)) + packed)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Close this process's descriptor."""
        os.close(self._descriptor)


class Receiver:
    """The read end of a pipe. sender: the write end, for the copy; close it here once the copy has started."""

    def __init__(self) -> None:
        self._descriptor, end = os.pipe()
        os.set_blocking(self._descriptor, False)
        self._mark = os.urandom(_MARK_BYTES)
        self.sender = Sender(end, self._mark)
        self.is_at_end = False
        """True once no process can send any more."""
        self._data = bytearray()

    def fileno(self) -> int:
        """Return the descriptor, for waiting."""
        return self._descriptor

    def is_ready(self, seconds: float) -> bool:
        """Wait up to `seconds` for data; return True if there is any."""
        from multiprocessing.connection import wait  # for processes only: a browser's Python has none

        return bool(wait([cast(Any, self)], seconds))

    def received(self) -> list[Any]:
        """Return the messages that have arrived, without waiting, and update `is_at_end`."""
        found = []
        while not self.is_at_end:
            try:
                data = os.read(self._descriptor, _MAX_READ)
            except BlockingIOError:
                break
            self.is_at_end = not data
            self._data += data
            found += self._unpacked()
        return found

    def _unpacked(self) -> list[Any]:
        found: list[Any] = []
        while (start := self._data.find(self._mark)) >= 0:
            del self._data[:start]
            if len(self._data) < _MARK_BYTES + _HEAD.size:
                return found
            length, checksum = _HEAD.unpack_from(self._data, _MARK_BYTES)
            end = _MARK_BYTES + _HEAD.size + length
            if len(self._data) < end:
                return found
            packed = bytes(self._data[end - length : end])
            if crc32(packed) != checksum:  # a part wrote into the frame
                del self._data[:_MARK_BYTES]
                continue
            del self._data[:end]
            found.append(pickle.loads(packed))
        del self._data[: 1 - _MARK_BYTES]  # drop a part's data; the last bytes may begin a mark
        return found

    def close(self) -> None:
        """Close the descriptor. Calling it twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
