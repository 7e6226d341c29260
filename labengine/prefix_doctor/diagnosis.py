"""The result of doctor(): each look-up with its sentence, the sums, and the prefixes that would have saved most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labengine.config import ConfigError, checked_int
from labengine.prefix_doctor.diagnosis_page import html_of, html_of_look_ups, html_of_prefixes, html_of_sums
from labengine.prefix_doctor.look_ups.alike import Alike, largest, others_sentence
from labengine.prefix_doctor.look_ups.look_up import MAX_NAME, LookUp
from labengine.prefix_doctor.look_ups.pools import PoolComparison, with_pools
from labengine.prefix_doctor.look_ups.prefixes import LostPrefix
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.sums import Sums
from labengine.record.wording import counted, listed, readable, request_name

MAX_SHOWN = 50
"""Most groups of look-ups printed: the largest ones."""


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Why each request hit or missed the prefix cache.

    look_ups: one for each admission of a request, in order. groups: the same look-ups, with similar ones together.
    sums: of the prompts. sums_again: of requests readmitted after a preemption. prefixes: those that would have saved
    most. num_waiting: requests never admitted. notes: sentences on missing data. unit: tokens between two places at
    which a hit may end.
    """

    title: str
    unit: int
    look_ups: tuple[LookUp, ...]
    groups: tuple[Alike, ...]
    sums: Sums
    sums_again: Sums
    prefixes: tuple[LostPrefix, ...]
    num_waiting: int
    notes: tuple[str, ...] = ()
    most_shown: int = field(default=MAX_SHOWN, compare=False)
    recording: RecordedEngine | None = field(default=None, compare=False)
    """The examined recording; the first piece of a stream with gaps."""

    def of(self, request: int | str) -> tuple[LookUp, ...]:
        """Return the look-ups of one request, by its id, its letter or the engine's name.

        Raises ConfigError for a request without one.
        """
        found = tuple(
            one for one in self.look_ups if request in (one.request_id, one.name, request_name(one.request_id))
        )
        if not found:
            raise ConfigError(f"request {request!r} was not admitted in this recording")
        return found

    def with_pools(self, *num_blocks: int) -> PoolComparison:
        """Run the same requests again with pools of these sizes, by default with one twice as large.

        They come in the recorded steps and sample the recorded tokens; a stream of vLLM runs on its edition. Raises
        ConfigError if they cannot be repeated.
        """
        if self.recording is None:
            raise ConfigError("this diagnosis has no recording to repeat")
        sizes = [checked_int("num_blocks", one, 1) for one in num_blocks]
        return with_pools(self.recording, sizes or None)

    @property
    def shown(self) -> tuple[Alike, ...]:
        """The printed groups."""
        return largest(self.groups, self.most_shown)

    @property
    def num_hidden(self) -> int:
        """Number of look-ups in the other groups."""
        return len(self.look_ups) - sum(map(len, self.shown))

    @property
    def heading(self) -> str:
        """The numbers of look-ups and tokens in one line."""
        sums = self.sums
        waiting = f"; {counted(self.num_waiting, 'request')} never admitted" if self.num_waiting else ""
        return (
            f"{counted(sums.num_look_ups, 'prompt')} of {counted(sums.num_tokens, 'token')}: "
            f"{sums.num_hit:,} hit ({sums.share(sums.num_hit) or 'none'}){waiting}. "
            f"A hit ends after a multiple of {counted(self.unit, 'token')}."
        )

    @property
    def again(self) -> str:
        """A sentence on readmitted requests; empty without any."""
        one = self.sums_again
        if not one.num_look_ups:
            return ""
        return (
            f"After preemptions {counted(one.num_look_ups, 'look-up')} of {counted(one.num_tokens, 'token')} "
            f"hit {one.num_hit:,}; they are not included above."
        )

    def __repr__(self) -> str:
        lines = [self.title, self.heading, ""]
        width = max(len(what) for what, _ in self.sums.rows)
        lines += [f"{n:>10,}  {self.sums.share(n):>7}  {what.ljust(width)}".rstrip() for what, n in self.sums.rows]
        lines += [self.again] if self.again else []
        if self.prefixes:
            lines += ["", "Prefixes that would have saved the most, had they stayed cached:"]
            lines += [f"  {prefix_sentence(one)}" for one in self.prefixes]
        lines += [""]
        if self.num_hidden:
            lines.append(f"... {counted(self.num_hidden, 'other look-up')}: see `look_ups`")
        names = [readable(alike[-1].name, MAX_NAME) for alike in self.shown]
        width = max(map(len, names), default=0)
        for name, alike in zip(names, self.shown, strict=True):
            lines.append(f"{name.ljust(width)}  step {alike[-1].step:<5} {alike[-1].sentence}")
            lines += [f"{'':{width + 12}} {others}"] if (others := others_sentence(alike)) else []
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        look_ups = html_of_look_ups(self.shown, self.num_hidden)
        parts = html_of_sums(self.sums), html_of_prefixes(self.prefixes), look_ups
        return html_of(self.title, (self.heading, self.again, *self.notes), *parts)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "title": self.title,
            "unit": self.unit,
            "sums": self.sums.to_dict(),
            "sums_again": self.sums_again.to_dict(),
            "num_waiting": self.num_waiting,
            "prefixes": [one.to_dict() for one in self.prefixes],
            "notes": list(self.notes),
            "look_ups": [one.to_dict() for one in self.look_ups],
        }


def prefix_sentence(one: LostPrefix) -> str:
    """Return one line on the tokens that a prefix would have saved."""
    requests = "request" if len(one.names) == 1 else "requests"
    text = f", “{one.text}”" if one.text else ""
    return (
        f"{counted(one.num_saved, 'token')}: the first {counted(one.num_tokens, 'token')} of {requests} "
        f"{listed(one.names)} ({counted(one.num_blocks, 'block')}){text}"
    )
