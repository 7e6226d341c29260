"""The duration of a step, as a function of its tokens and contexts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from labengine.config import ConfigError, shown


@dataclass(frozen=True, slots=True)
class Clock:
    """Seconds of a step: a fixed part, what its tokens take, and what their attention takes.

    step: of any step, as each reads all weights. token: per token up to `knee` tokens; token_beyond: per token behind
    them. An accelerator computes a few tokens in the time in which it reads the weights; on a CPU, a token of a large
    step takes less than one of a small step. So either may be the larger one. pair: per pair of a computed token and a
    token it attends to. context: per token of the contexts that the step reads.

    No value is negative: a step never gets faster with more work.
    """

    step: float
    token: float
    token_beyond: float
    knee: float
    pair: float = 0.0
    context: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < inf:
                raise ConfigError(f"clock: {field.name} must be a finite number >= 0, got {shown(value)}")

    @classmethod
    def of_rates(cls, prefill_tokens_per_s: float, decode_step_s: float) -> Clock:
        """Return a clock by two numbers: the speed of a long prefill, and the seconds of a step that only decodes.

        A step takes as long as the slower of the two.
        """
        for name, value in (
            ("tokens per second of prefill", prefill_tokens_per_s),
            ("seconds of a step", decode_step_s),
        ):
            if not 0 < value < inf:
                raise ConfigError(f"clock: the {name} must be above 0, got {value}")
        return cls(decode_step_s, 0.0, 1 / prefill_tokens_per_s, prefill_tokens_per_s * decode_step_s)

    def duration(self, num_tokens: int, attended: int, read: int) -> float:
        """Return the seconds of one step.

        num_tokens: that it computes. attended: the sum over requests of tokens times mean context. read: the sum over
        requests of the tokens up to the end of the step.
        """
        few = min(num_tokens, self.knee)
        tokens = few * self.token + (num_tokens - few) * self.token_beyond
        return self.step + tokens + attended * self.pair + read * self.context

    def prefill_seconds(self, num_tokens: int) -> float:
        """Return by how many seconds prefill lengthens steps that are full, without its attention."""
        return num_tokens * self.token_beyond

    def to_dict(self) -> dict[str, float]:
        """Return plain JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Clock:
        """Return the clock that to_dict described. Raises ConfigError for anything else."""
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            raise ConfigError(f"a clock has the fields {', '.join(sorted(names))}; got {', '.join(sorted(values))}")
        return cls(**values)


def attended_pairs(start: int, num_tokens: int) -> int:
    """Return the sum of the contexts of `num_tokens` behind `start` tokens; each token attends to itself, too."""
    return num_tokens * start + num_tokens * (num_tokens + 1) // 2


def clock_of(words: str) -> Clock:
    """Return the clock of the command line: "8000,0.025", or a file that holds Clock.to_dict() as JSON.

    Raises ConfigError for anything else.
    """
    try:
        rates = [float(word) for word in words.split(",")]
    except ValueError:
        return _of_file(Path(words))
    if len(rates) != 2:
        raise ConfigError(
            f"--clock needs two numbers, tokens per second of prefill and seconds of a decode step "
            f"(8000,0.025), or a file; got {shown(words)}"
        )
    return Clock.of_rates(*rates)


def _of_file(path: Path) -> Clock:
    try:
        values = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"--clock {path} cannot be read ({error.strerror}); two numbers work too: 8000,0.025"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a clock, one JSON object, got {shown(values)}")
    return Clock.from_dict(values)
