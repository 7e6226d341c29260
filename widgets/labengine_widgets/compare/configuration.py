"""The differences between two engines' configurations: sizes, groups, the null block. Decisions are not compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from labengine import events as ev
from labengine.record.wording import block_name, counted, listed
from labengine_widgets.why.past import Recording


@dataclass(frozen=True, slots=True)
class Configuration:
    """An engine's configuration. groups: (kind, tokens per block, window) of each; null_block: -1 for none."""

    num_blocks: int
    groups: tuple[tuple[str, int, int | None], ...]
    null_block: int

    @classmethod
    def of(cls, timeline: Recording) -> Configuration:
        """Return the configuration of a recording's engine."""
        state = timeline.state(timeline.num_dropped)
        if not state.groups:  # it begins before the engine does
            state = timeline.state(min(timeline.end, timeline.num_dropped + 1))
        groups = tuple((group.kind, group.block_size, group.window) for group in state.groups)
        return cls(len(state.ref_counts), groups, state.null_block)

    def words(self, names: Sequence[str]) -> str:
        """Describe the fields of these names."""
        text = {
            "num_blocks": counted(self.num_blocks, "block"),
            "groups": listed(map(_group_words, self.groups)),
            "null_block": f"block {block_name(self.null_block)} set aside as the null block, {self.num_free} left"
            if self.null_block >= 0
            else "no null block set aside",
        }
        return ", ".join(text[name] for name in names)

    @property
    def num_free(self) -> int:
        """Blocks that requests can hold: all but a null block set aside."""
        return self.num_blocks - (self.null_block >= 0)


def _group_words(group: tuple[str, int, int | None]) -> str:
    kind, block_size, window = group
    text = f"blocks of {counted(block_size, 'token')}"
    if kind == "full" and window is None:
        return text
    return f"{text} ({kind.replace('_', ' ')}{'' if window is None else f' of {window}'})"


def configuration_difference(left: Recording, right: Recording, names: tuple[str, str]) -> str:
    """Return a sentence on the settings that differ between two engines; empty when all are equal."""
    sides = Configuration.of(left), Configuration.of(right)
    other = [f.name for f in fields(Configuration) if getattr(sides[0], f.name) != getattr(sides[1], f.name)]
    if not other:
        return ""
    text = "; ".join(f"{name} has {side.words(other)}" for name, side in zip(names, sides, strict=True))
    return f"Their configurations differ: {text}."


def is_of_configuration(left: Sequence[ev.Event], right: Sequence[ev.Event]) -> bool:
    """True if all events are EngineStarted: such a difference is one of configuration, not a decision."""
    return bool(left and right) and all(isinstance(event, ev.EngineStarted) for event in (*left, *right))


def shift_of(left: Recording, right: Recording) -> int:
    """Return the right engine's first block id minus the left one's: a null block in the pool takes id 0."""
    return Configuration.of(right).null_block - Configuration.of(left).null_block
