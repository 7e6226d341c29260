"""A file of prompts or of a trace, read as a stream again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from os import PathLike
from typing import Any

from labengine.prefix_doctor.traffic.arrivals import Arrivals
from labengine.prefix_doctor.traffic.encoding import Encoding
from labengine.prefix_doctor.traffic.json_lines import JsonLines
from labengine.prefix_doctor.traffic.line import MAX_REPLICAS, Line
from labengine.prefix_doctor.traffic.prompt import Prompt
from labengine.record.wording import counted, listed

BATCH = 64
"""Most lines whose texts are encoded together."""
BATCH_CHARACTERS = 1 << 20

ReadLine = Callable[[int, dict[str, Any]], Line]


class PromptsFile:
    """The prompts of a file. read_line: makes a line of a number and an object, or raises ValueError.

    notes: what was left out, or cannot be told, complete once everything has been read.
    """

    def __init__(self, path: str | PathLike[str], read_line: ReadLine, encoding: Encoding, note: str = "") -> None:
        self._path, self._read_line, self._encoding, self._note = path, read_line, encoding, note
        self._newest: JsonLines | None = None
        self.notes: list[str] = []

    def share_read(self) -> float:
        """Return the share of the file that the newest reading has read."""
        return 0.0 if self._newest is None else self._newest.share_read

    def read(self) -> Iterator[Prompt]:
        """Yield the prompts from the first one on. Raises ConfigError for a file without prompts."""
        with closing(JsonLines(self._path)) as lines:
            self._newest = lines
            facts = _Facts()
            try:
                for batch in self._encoded(_batches(self._lines(lines))):
                    for line in batch:
                        if why := line.why_bad or facts.why_refused(line):
                            lines.reject(line.number, why)
                        else:
                            yield facts.prompt(line)
                lines.check()
            finally:
                notes = [self._note, self._encoding.note * facts.has_texts, *lines.notes, *facts.notes()]
                self.notes[:] = filter(None, notes)

    def _lines(self, lines: JsonLines) -> Iterator[Line]:
        for number, found in lines.objects():
            try:
                yield self._read_line(number, found)
            except ValueError as error:
                lines.reject(number, str(error))
            except RecursionError:
                lines.reject(number, "it is nested too deeply")

    def _encoded(self, batches: Iterable[list[Line]]) -> Iterator[list[Line]]:
        return _beside(self._encode, batches) if self._encoding.runs_beside else map(self._encode, batches)

    def _encode(self, lines: list[Line]) -> list[Line]:
        self._encoding.encode(lines)
        return lines


def _beside(encode: Callable[[list[Line]], list[Line]], batches: Iterable[list[Line]]) -> Iterator[list[Line]]:
    """Yield encoded batches, encoding the next one in a thread while the caller uses the one before it."""
    with ThreadPoolExecutor(1) as pool:
        pending: Future[list[Line]] | None = None
        for batch in batches:
            following = pool.submit(encode, batch)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()


def _batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    batch, num_characters = list[Line](), 0
    for line in lines:
        batch.append(line)
        num_characters += len(line.text or "") + sum(len(one["content"]) for one in line.chat or ())
        if len(batch) >= BATCH or num_characters > BATCH_CHARACTERS:
            yield batch
            batch, num_characters = [], 0
    if batch:
        yield batch


class _Facts:
    """What all lines of one reading have in common: the clock, the names of replicas, and counts for the notes."""

    def __init__(self) -> None:
        self.has_texts = False
        self._arrivals = Arrivals()
        self._replicas: dict[str, int] = {}
        self._num_limits = self._num_unknown = self._num_images = 0

    def why_refused(self, line: Line) -> str:
        """Return why a line with its tokens cannot be used; empty if it can."""
        if not line.prompt.token_ids:
            return "its prompt has no tokens"
        if isinstance(line.replica, str) and line.replica not in self._replicas:
            if len(self._replicas) >= MAX_REPLICAS:
                return f"there are more than {MAX_REPLICAS:,} replicas"
            self._replicas[line.replica] = len(self._replicas)
        return ""

    def prompt(self, line: Line) -> Prompt:
        """Return the prompt of a line, complete."""
        prompt = line.prompt
        prompt.arrival = self._arrivals.of(line.time)
        prompt.replica = self._replicas[line.replica] if isinstance(line.replica, str) else line.replica
        self._num_limits += line.is_limit
        self._num_unknown += not (prompt.num_answer or prompt.answer)
        self._num_images += line.has_images
        self.has_texts |= line.text is not None or line.chat is not None
        prompt.num_answer = prompt.num_answer or len(prompt.answer) or 1
        return prompt

    def notes(self) -> Iterator[str]:
        """Yield sentences on the arrivals, answers, pictures and replicas."""
        yield from self._arrivals.notes()
        if self._num_limits:
            yield (
                f"{counted(self._num_limits, 'prompt')} with only a limit of the answer: each generates as many tokens "
                "as max_tokens allows."
            )
        if self._num_unknown:
            yield f"{counted(self._num_unknown, 'prompt')} without any length of the answer: each generates 1 token."
        if self._num_images:
            yield f"{counted(self._num_images, 'chat')} with pictures: each picture is only a few tokens of text here."
        if self._replicas:
            yield f"Replicas from 0 on: {listed(self._replicas)}."
