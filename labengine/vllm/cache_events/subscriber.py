"""Connections to publishers of KV events, over ZeroMQ: published messages, and replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any

from labengine.config import ConfigError
from labengine.system.extras import require_extra
from labengine.vllm.cache_events.places import PublisherPlace
from labengine.vllm.cache_events.stream import Message

SECONDS_FOR_REPLAY = 3.0
"""Seconds without an answer after which a replay is abandoned; vLLM answers between its batches."""

SLICE = 50
"""Milliseconds after which a wait checks whether it should end."""

MAX_MESSAGE_BYTES = 1 << 28
NUM_WAITING = 100_000
"""Most unread messages; ZeroMQ drops any further ones, which shows as a gap."""

END = (-1).to_bytes(8, "big", signed=True)
"""The number in a replay's last message."""


class Subscriber:
    """Receives the messages of several publishers. Raises ConfigError for an endpoint that cannot be used.

    topic: the prefix of messages; "" for all.
    """

    def __init__(self, publishers: Sequence[PublisherPlace], topic: str = "") -> None:
        require_extra("events", "attaching to a publisher of KV events", "zmq", "msgspec")
        import zmq

        self._zmq, self._publishers = zmq, publishers
        self.is_closing = False
        """Set from another thread to abandon a replay."""
        self._context = zmq.Context()
        self._sockets: dict[Any, int] = {}
        self._poller = zmq.Poller()
        try:
            for number, publisher in enumerate(publishers):
                self._open(number, publisher, topic)
        except BaseException:
            self.close()
            raise

    def messages(self, seconds: float) -> Iterator[Message]:
        """Yield received messages, waiting up to `seconds` for the first."""
        ready = dict(self._poller.poll(int(seconds * 1000)))
        for waiting, source in self._sockets.items():
            if waiting in ready:
                yield from self._received(waiting, source)

    def replay(self, source: int, number: int) -> Iterator[Message]:
        """Yield a publisher's messages from a batch on; none without a replay endpoint or an answer."""
        endpoint = self._publishers[source].replay
        if endpoint is None:
            return
        asking = self._context.socket(self._zmq.DEALER)  # one question has many answers
        asking.linger, asking.maxmsgsize = 0, MAX_MESSAGE_BYTES
        try:
            asking.connect(endpoint)
            asking.send_multipart((b"", number.to_bytes(8, "big")))
            while self._has_answer(asking):
                answer = _numbered(source, asking.recv_multipart())
                if answer is None:
                    return
                yield answer
        except self._zmq.ZMQError:  # treated like a missing answer: the gap is noted
            return
        finally:
            asking.close()

    def _has_answer(self, asking: Any) -> bool:
        until = monotonic() + SECONDS_FOR_REPLAY
        while not self.is_closing and monotonic() < until:
            if asking.poll(SLICE):
                return True
        return False

    def close(self) -> None:
        """End the connections. Twice is harmless."""
        self._context.destroy(linger=0)

    def _open(self, number: int, publisher: PublisherPlace, topic: str) -> None:
        listening = self._context.socket(self._zmq.SUB)
        listening.linger, listening.rcvhwm, listening.maxmsgsize = 0, NUM_WAITING, MAX_MESSAGE_BYTES
        listening.subscribe(topic)
        if "[" in publisher.endpoint:
            listening.ipv6 = True
        try:
            (listening.bind if publisher.is_bound else listening.connect)(publisher.endpoint)
        except self._zmq.ZMQError as error:
            listening.close()
            raise ConfigError(f"{publisher.name} cannot be used: {error}") from None
        self._sockets[listening] = number
        self._poller.register(listening, self._zmq.POLLIN)

    def _received(self, waiting: Any, source: int) -> Iterator[Message]:
        until = monotonic() + 0.2  # other sources must get their turn
        while monotonic() < until:
            try:
                frames = waiting.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return
            message = _numbered(source, frames)
            if message is not None:
                yield message


def _numbered(source: int, frames: Sequence[bytes]) -> Message | None:
    """Return (topic, number, payload) as a message; vLLM's replays have the topic, SGLang's do not.

    None for the end of a replay, and for anything but a message.
    """
    number, payload = frames[-2:] if len(frames) >= 2 else (END, b"")
    return None if number == END or len(number) != 8 else Message(source, int.from_bytes(number, "big"), payload)
