"""A stream of vLLM's, sent at a given pace by the tap's own thread: the process that stream_to_pixels.py attaches to.

    python benchmarks/replayed_stream.py FOLDER REQUESTS

REQUESTS 0: the longest recorded run of vLLM 0.32 (tests/golden), over and over, with the prefix cache reset between two
rounds. Otherwise edition `vllm`, which decides as vLLM does, with so many requests decoding.

Each line of standard input is {"rate": steps a second, "seconds": s}; the answer is one line of JSON: `steps` with
[moment, milliseconds of the epoch] for the end of each step as the tap's queue got it, and the bytes written.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support"), str(ROOT / "vllm_tap")]

import labengine  # noqa: E402
from differential import vllm_streams  # noqa: E402
from labengine.events import ForwardRan, RequestFinished, SlotsWritten  # noqa: E402
from labengine.record.files.codec import KINDS, dumps, rows  # noqa: E402
from labengine.record.files.file_access import MAX_ALLOWED_SECONDS, Limits  # noqa: E402
from labengine.record.files.keyframe import keyframe  # noqa: E402
from labengine.vllm.stream.reader import StreamReader  # noqa: E402
from labengine_vllm.broadcast import Broadcast  # noqa: E402
from labengine_vllm.encoding import line_of  # noqa: E402
from labengine_vllm.places import unix_place  # noqa: E402

SEED = 8
"""The longest recorded run: 174 steps of at most three requests, with four groups of a hybrid model."""

NUM_STEPS = 4_000
"""Steps that are prepared."""

NUM_WAITING = 4
"""Requests of an edition's stream that wait while the others decode."""

UPDATED_AFTER = 0.8
"""The share of a step's time after which the forward pass has ended, and the second half of its events is sent."""

Document = dict[str, Any]


class State(NamedTuple):
    """A keyframe, as the tap's encoder takes it."""

    document: Document

    def parts(self) -> tuple[bytes, ...]:
        """Return the JSON, in one part."""
        return (dumps(self.document),)


class Step(NamedTuple):
    """The messages of one step. moment: events of the recording up to its end. num_bytes: on the socket."""

    messages: list[Document]
    moment: int
    num_bytes: int


class Prepared(NamedTuple):
    """A stream, ready to be sent."""

    header: Document
    state: Document
    steps: list[Step]


# -- the recorded run, over and over -----------------------------------------------------------------------------------


def recorded() -> Prepared:
    """Return the recorded run, as often as the steps need."""
    header, first, *messages = _recorded_lines()
    of_run = [message for message in messages if "e" in message]
    kinds = [kind for kind, *_ in header["kinds"]]
    reset = [[kinds.index("BlockEvicted"), i, "reset"] for i in _cached([header, first, *of_run])]
    of_run.append({"e": [*reset, [kinds.index("PrefixCacheReset")]], "names": {}})
    num_steps = sum(row[0] == kinds.index("StepStarted") for message in of_run for row in message["e"])
    num_requests = sum(row[0] == kinds.index("RequestAdded") for message in of_run for row in message["e"])
    rounds = range(NUM_STEPS // num_steps + 1)
    shifted = (_shifted(one, header, i * num_steps, i * num_requests) for i in rounds for one in of_run)
    return Prepared(header, first["k"], list(_steps(header, first["k"], shifted)))


def _cached(lines: list[Document]) -> list[int]:
    """Return the blocks that have a hash at the end."""
    reader = _reader()
    for line in lines:
        reader.take_document(line)
    return [i for i, keys in enumerate(reader.pieces[-1].fold.block_keys) if keys]


def _shifted(message: Document, header: Document, num_steps: int, num_requests: int) -> Document:
    """Return the message as that of a later round: its steps and requests have later numbers."""
    by_field = {"step": num_steps, "request_id": num_requests}
    added = [[0, *(by_field.get(field, 0) for field in fields)] for _, *fields in header["kinds"]]
    moved = [
        [value + more if more else value for value, more in zip(row, added[row[0]], strict=True)]
        for row in message["e"]
    ]
    names = {str(int(number) + num_requests): name for number, name in message.get("names", {}).items()}
    return {"e": moved, "names": names}


# -- edition vllm ------------------------------------------------------------------------------------------------------


def of_edition(num_requests: int) -> Prepared:
    """Return what edition `vllm` does with so many requests decoding in 4,096 blocks; prompts begin in common."""
    settings = {"num_blocks": 4096, "block_size": 16, "max_num_seqs": num_requests, "max_num_batched_tokens": 2048}
    lab = labengine.Lab("simulated", edition="vllm", check=False, **settings)
    header, *_ = _recorded_lines()
    header |= {"kinds": KINDS, "num_blocks": 4096, "groups": [["full", 16, None]], "scheduler": "edition vllm"}
    state = json.loads(dumps(keyframe(lab.fold())))
    return Prepared(header, state, list(islice(_steps(header, state, _acts(lab, num_requests)), NUM_STEPS)))


def _acts(lab: labengine.Lab, num_requests: int) -> Iterator[Document]:
    """Yield two messages a step: what it schedules, with the requests that came before it, and its update."""
    random, timeline, number, num_finished, begun = Random(num_requests), lab.timeline, 0, 0, 1
    while True:
        while number - num_finished < num_requests + NUM_WAITING:
            prompt = [number % 5] * 32 + [random.randrange(5000) for _ in range(random.randint(10, 200))]
            lab.add(token_ids=prompt, max_tokens=random.randint(40, 300))
            number += 1
        lab.step()
        events = [one for one in timeline.events(begun, timeline.end) if not isinstance(one, SlotsWritten)]
        begun = timeline.end
        num_finished += sum(isinstance(one, RequestFinished) for one in events)
        forward = next((i for i, one in enumerate(events) if isinstance(one, ForwardRan)), len(events) - 1)
        for part in (events[: forward + 1], events[forward + 1 :]):
            yield json.loads(dumps({"e": rows(part)}))


# -- both --------------------------------------------------------------------------------------------------------------


def _recorded_lines() -> list[Document]:
    _, items = next(islice(vllm_streams.read(), SEED, None))
    return [json.loads(line) for line in vllm_streams.lines_of(items)]


def _reader() -> StreamReader:
    return StreamReader(Limits("the stream", max_seconds=MAX_ALLOWED_SECONDS / 10), 10**4)


def _steps(header: Document, state: Document, messages: Iterator[Document]) -> Iterator[Step]:
    """Yield the messages of each step, up to the one with its end, and the moment that attach will have then."""
    reader, waiting = _reader(), list[Document]()
    ended = [kind for kind, *_ in header["kinds"]].index("StepEnded")
    for document in (header, {"n": 0, "t": 0, "k": state}):
        reader.take_document(document)
    for number, message in enumerate(messages, 1):
        reader.take_document({"n": number, "t": number, **message})
        waiting.append(message)
        if any(row[0] == ended for row in message["e"]):
            num_bytes = sum(len(line_of({"n": number, "t": time.time(), **one})) + 1 for one in waiting)
            yield Step(waiting, reader.pieces[-1].timeline.end, num_bytes)
            waiting = []


class Replay:
    """Sends a prepared stream to the viewers of a socket."""

    def __init__(self, prepared: Prepared, folder: str) -> None:
        self._state, self._steps = State(prepared.state), iter(prepared.steps)
        self._number = 0
        self._broadcast = Broadcast(unix_place(folder, "rank0-replayed"), prepared.header)
        self._broadcast.on_waiting = lambda: self._put({"k": self._state, "names": {}}, 1)

    def play(self, rate: float, seconds: float) -> Document:
        """Send so many steps a second. Returns what the answer is made of."""
        num_bytes, period, sent = 0, 1 / rate, []
        due = started = time.monotonic()
        for step in islice(self._steps, round(rate * seconds)):
            first, *others = step.messages
            self._put_at(due, first)
            for message in others:
                self._put_at(due + UPDATED_AFTER * period, message)
            sent.append((step.moment, time.time() * 1000))
            num_bytes += step.num_bytes
            due += period
        duration = time.monotonic() - started
        return {"steps": sent, "seconds": duration, "bytes": num_bytes}

    def _put_at(self, due: float, message: Document) -> None:
        time.sleep(max(0.0, due - time.monotonic()))
        self._put(message, len(message["e"]))

    def _put(self, message: Document, num_events: int) -> None:
        numbered = {"n": self._number, "t": time.time(), **message}
        self._number += 1
        self._broadcast.put(numbered, num_events)


def main(folder: str, num_requests: str) -> None:
    prepared = of_edition(int(num_requests)) if int(num_requests) else recorded()
    replay = Replay(prepared, folder)
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(replay.play(asked["rate"], asked["seconds"])), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
