"""A ledger in another process: it judges prompts while this one runs the next."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.isolation.alone import exit_of, forked
from labengine.prefix_doctor.causes.ledger import Ledger
from labengine.prefix_doctor.look_ups.look_up import LookUp
from labengine.prefix_doctor.traffic.prompt import Prompt
from labengine.system.closing import Closing
from labengine.system.garbage_collection import garbage_collection_paused
from labengine.system.wide_pipe import receive, wide_pipe

if TYPE_CHECKING:
    from multiprocessing.connection import Connection  # a browser has none

BATCH = 16
"""Look-ups sent at once."""

_Added = tuple[int, Prompt, LookUp]


class LedgerBeside(Closing):
    """Sends what is added to a copy of a ledger, and returns that copy."""

    def __init__(self, ledger: Ledger) -> None:
        receiver, self._sender = wide_pipe()
        self._receiver, sender = wide_pipe()
        self._batch = list[_Added]()
        self._process = forked(_keep, ledger, receiver, sender, (self._sender, self._receiver))
        receiver.close()
        sender.close()

    def add(self, number: int, prompt: Prompt, look_up: LookUp) -> None:
        """Add one admission, as Ledger.add does."""
        self._batch.append((number, prompt, look_up))
        if len(self._batch) >= BATCH:
            self._send()

    def finish(self) -> Ledger:
        """Return the ledger with all that was added, which takes no more. Raises what adding has raised."""
        if self._batch:
            self._send()
        self._send()
        try:
            found = receive(self._receiver)
        except EOFError:
            raise self._ended() from None
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process."""
        self._sender.close()
        self._receiver.close()
        self._process.join()

    def _send(self) -> None:
        try:
            self._sender.send(self._batch)
        except BrokenPipeError:
            raise self._ended() from None
        self._batch = []

    def _ended(self) -> ConfigError:
        self._process.join()
        return ConfigError(f"the process that judges the prompts has ended: {exit_of(self._process.exitcode)}")


def _keep(ledger: Ledger, receiver: Connection, sender: Connection, theirs: tuple[Connection, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C, what is known so far is wanted
    for connection in theirs:
        connection.close()
    found: Any = ledger
    with suppress(EOFError, BrokenPipeError), garbage_collection_paused():
        while batch := receive(receiver):
            found = _added(ledger, batch) if found is ledger else found
        sender.send(found)


def _added(ledger: Ledger, batch: list[_Added]) -> Ledger | Exception:
    try:
        for number, prompt, look_up in batch:
            ledger.add(number, prompt, look_up)
    except Exception as error:
        return error
    return ledger
