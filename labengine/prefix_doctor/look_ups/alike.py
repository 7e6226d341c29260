"""Similar look-ups: with one cause, and prompts that diverged in the same block after the same prefix."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from labengine.prefix_doctor.look_ups.examine import Examination
from labengine.prefix_doctor.look_ups.look_up import MAX_NAME, LookUp
from labengine.record.wording import counted, listed, readable

Alike = tuple[LookUp, ...]
"""In order; the last one represents all."""


def groups_of(examined: Iterable[tuple[Examination, LookUp]]) -> tuple[Alike, ...]:
    """Return the look-ups in groups, ordered by the newest one of each."""
    groups: dict[Hashable, list[LookUp]] = {}
    for examination, one in examined:
        key = one.verdict, one.is_first, bool(one.num_hit), _place(examination, one)
        groups[key] = groups.pop(key, [])  # at the end
        groups[key].append(one)
    return tuple(map(tuple, groups.values()))


def largest(groups: tuple[Alike, ...], most: int) -> tuple[Alike, ...]:
    """Return the `most` largest groups in order; of equally large ones, the newest."""
    kept = sorted(range(len(groups)), key=lambda number: (-len(groups[number]), -number))[:most]
    return tuple(groups[number] for number in sorted(kept))


def others_sentence(alike: Alike) -> str:
    """Return a sentence on a group's other look-ups; empty without any."""
    others = alike[:-1]
    if not others:
        return ""
    names = listed([readable(one.name, MAX_NAME) for one in others], 3)
    steps = f"step {others[0].step}" if len(others) == 1 else f"steps {others[0].step} to {others[-1].step}"
    num_hit, num_tokens = sum(one.num_hit for one in others), sum(one.num_tokens for one in others)
    return f"and {len(others):,} more like it ({names}; {steps}): hit {num_hit:,} of {counted(num_tokens, 'token')}"


def _place(examination: Examination, one: LookUp) -> Hashable:
    """Return the place where a prompt diverged from the nearest earlier one: its complete blocks up to there.

    A hit ends with a block, so one more or one fewer common token in the same block is the same place.
    """
    sequences, other, unit = examination.sequences, one.shared_with, examination.unit
    if one.verdict not in ("new", "short_of_a_block"):
        return "did not diverge"
    if other is None:
        return "begins differently"
    if sequences.has_tokens and one.num_shared >= len(sequences.tokens[other]):
        return "continues where the other one ends"
    return sequences.node_at(one.request_id, one.num_shared // unit * unit)
