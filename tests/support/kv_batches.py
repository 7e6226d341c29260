"""Batches of KV events as engines send them, and publishers of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import zmq

from labengine.vllm.cache_events.document import numbers_text
from labengine.vllm.cache_events.prefixes import CachedPrefixes
from labengine.vllm.cache_events.stream import EventStream, Message

SOURCE = "tcp://127.0.0.1:5557"
END = (-1).to_bytes(8, "big", signed=True)
BLOCK = 4


def stored(hashes: list[Any], tokens: Iterable[int], parent: Any = None, **others: Any) -> dict[str, Any]:
    """Return vLLM's BlockStored as a map, of blocks of 4 tokens on the GPU."""
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": list(tokens),
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    } | others


def removed(hashes: list[Any], **others: Any) -> dict[str, Any]:
    """Return vLLM's BlockRemoved as a map."""
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU", "group_idx": 0} | others


CLEARED = {"type": "AllBlocksCleared"}


def payload(*events: Any, at: float = 1_800_000_000.0, rank: int | None = 0) -> bytes:
    """Return a batch's bytes."""
    return msgspec.msgpack.encode([at, list(events), rank])


def messages(*batches: bytes, first: int = 0, source: int = 0) -> list[Message]:
    """Number batches."""
    return [Message(source, first + number, batch) for number, batch in enumerate(batches)]


def streamed(*batches: bytes, first: int = 0, **options: Any) -> EventStream:
    """Return the stream of these batches."""
    stream = EventStream((SOURCE,), **options)
    for message in messages(*batches, first=first):
        stream.take(message)
    return stream


def prefixes_of(*batches: bytes, **options: Any) -> CachedPrefixes:
    """Return the view of these batches."""
    return CachedPrefixes(streamed(*batches, **options), numbers_text)


class Publisher:
    """Publishes batches as vLLM does, or connects as it does for an endpoint that names a host; answers replays."""

    def __init__(self, folder: Path, batches: Iterable[bytes], *, topic_in_replay: bool = True) -> None:
        self.endpoint, self.replay = f"ipc://{folder}/events", f"ipc://{folder}/replay"
        self._batches, self._has_topic = list(batches), topic_in_replay
        self._context = zmq.Context()
        self._events, self._answers = self._context.socket(zmq.PUB), self._context.socket(zmq.ROUTER)
        self.num_asked = 0
        self._has_ended = False
        self._thread = Thread(target=self._answer, daemon=True)

    @contextmanager
    def running(self, *, connects_to: str | None = None) -> Iterator[Publisher]:
        """Bind, or connect, until the block ends."""
        if connects_to is None:
            self._events.bind(self.endpoint)
        else:
            self._events.connect(connects_to)
        self._answers.bind(self.replay)
        self._thread.start()
        try:
            yield self
        finally:
            self._has_ended = True
            self._thread.join()
            self._context.destroy(linger=0)

    def publish(self, number: int) -> None:
        """Send a batch; beyond the last one the first ones again, under new numbers."""
        batch = self._batches[number % len(self._batches)]
        self._events.send_multipart((b"kv", number.to_bytes(8, "big"), batch))

    def _answer(self) -> None:
        while not self._has_ended:
            if not self._answers.poll(5):
                continue
            client, _, first = self._answers.recv_multipart()
            self.num_asked += 1
            topic = (b"kv",) if self._has_topic else ()
            for number in range(int.from_bytes(first, "big"), len(self._batches)):
                self._answers.send_multipart((client, b"", *topic, number.to_bytes(8, "big"), self._batches[number]))
            self._answers.send_multipart((client, b"", *((b"",) if topic else ()), END, b""))
