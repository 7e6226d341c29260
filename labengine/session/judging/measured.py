"""The figures of two runs of one request: the differences of KV and logits, and the margin of the differing token."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from labengine.record.violation import Violation
from labengine.session.judging.repetition import Repetition
from labengine.session.judging.run import JudgedRun
from labengine.session.session import Session

if TYPE_CHECKING:  # torch is loaded for real models only
    from labengine.engine.model_runner import ModelRunner
    from labengine.engine.probe import LayerDifference, Reading

LIMITS = {"torch.float32": 1e-3, "torch.float16": 0.05, "torch.bfloat16": 0.4}
"""Per dtype, a relative difference of K or V too large for rounding. SmolLM2 (30 layers, cold and warm, one and four
requests, whole and in chunks of 8, plain torch on a CPU): 4e-6 in float32, 0.05 in bfloat16. Another token's KV differs
by 1 or more."""

Pair = tuple[JudgedRun, JudgedRun]


@dataclass(frozen=True, slots=True)
class TieMargin:
    """The first differing token: the token that each run sampled there, and its margin.

    tokens: as text. margins: per run, its highest logit minus its second highest. logit_difference: the largest
    difference between the runs' logits there. is_possible: each run sampled a token with its highest logit (several
    tokens may have it), or drew one.
    """

    position: int
    tokens: tuple[str, str]
    margins: tuple[float, float]
    logit_difference: float
    is_possible: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """The differences of two runs of a request, up to the first differing token, or else the last common one.

    num_tokens: number of compared sampled tokens. num_positions: number of positions with compared KV: those that the
    last compared token reads. layers: the difference of each layer. logit_difference: the largest of all compared
    tokens. relative_logits: the largest distance of two tokens' logits, divided by their spread. limit: a relative
    difference of KV or logits too large for rounding. distances: per run, the largest relative difference from the
    request computed alone; None unless the runs differ by more than the limit.
    """

    num_tokens: int
    num_positions: int
    layers: tuple[LayerDifference, ...]
    logit_difference: float
    relative_logits: float
    limit: float
    margin: TieMargin | None = None
    distances: tuple[float, float] | None = None

    @property
    def key_difference(self) -> float:
        """The largest absolute difference of K."""
        return max(layer.key for layer in self.layers)

    @property
    def value_difference(self) -> float:
        """The largest absolute difference of V."""
        return max(layer.value for layer in self.layers)

    @property
    def farthest_layer(self) -> int:
        """The (first) layer with the largest relative difference."""
        return max(range(len(self.layers)), key=lambda layer: self.layers[layer].relative)

    @property
    def first_far_layer(self) -> int | None:
        """The first layer whose K or V differ by more than the limit, or None."""
        return next((i for i, layer in enumerate(self.layers) if layer.relative > self.limit), None)

    @property
    def is_bitwise_equal(self) -> bool:
        """True if K, V and logits are equal bit for bit."""
        return self.key_difference == self.value_difference == self.logit_difference == 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON. An infinite difference, from NaN in K, V or logits, is None."""
        margin = self.margin
        return {
            "num_tokens": self.num_tokens,
            "num_positions": self.num_positions,
            "key_differences": _finite(layer.key for layer in self.layers),
            "value_differences": _finite(layer.value for layer in self.layers),
            "relative_differences": _finite(layer.relative for layer in self.layers),
            "limit": self.limit,
            "logit_difference": _finite([self.logit_difference])[0],
            "relative_logits": _finite([self.relative_logits])[0],
            "distances": None if self.distances is None else _finite(self.distances),
            "margin": None
            if margin is None
            else {
                "position": margin.position,
                "tokens": list(margin.tokens),
                "margins": _finite(margin.margins),
                "logit_difference": _finite([margin.logit_difference])[0],
            },
        }


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence from repeating two runs. misreads: per run. step: per run, that of the first differing token."""

    figures: Figures
    misreads: tuple[tuple[Violation, ...], tuple[Violation, ...]]
    steps: tuple[int, int]


def _finite(values: Iterable[float]) -> list[float | None]:
    return [value if isfinite(value) else None for value in values]


def last_compared(runs: Pair) -> tuple[int, bool]:
    """Return the position of the first differing token, or else of the last common one; and True if tokens differ."""
    one, other = (run.token_ids for run in runs)
    for position, (token, its) in enumerate(zip(one, other, strict=False)):
        if token != its:
            return position, True
    return min(len(one), len(other)) - 1, False


def evidence_of(runs: Pair) -> Evidence:
    """Repeat both runs step by step, in parallel. Raises ConfigError for a run that cannot be repeated."""
    last, differs = last_compared(runs)
    with closing(Repetition(runs[0], last)) as one, closing(Repetition(runs[1], last)) as other:
        figures = _compared((one, other), runs, last, differs)
        steps = one.step_of(last), other.step_of(last)
        misreads = tuple(
            run.misreads if run.misreads is not None else again.misreads()
            for run, again in zip(runs, (one, other), strict=True)
        )
        return Evidence(figures, cast(Any, misreads), steps)


def _compared(repetitions: tuple[Repetition, Repetition], runs: Pair, last: int, differs: bool) -> Figures:
    from labengine.engine.probe import largest_difference, layer_differences, relative_distance

    difference, relative, first = 0.0, 0.0, runs[0].num_prompt_tokens
    for position in range(first, last + 1):  # in parallel, to keep the logits of only one position at a time
        readings = repetitions[0].reading(position), repetitions[1].reading(position)
        logits = readings[0].logits, readings[1].logits
        difference = max(difference, largest_difference(*logits))
        relative = max(relative, relative_distance(*logits))
    one, other = (reading.layers for reading in readings)
    assert one is not None and other is not None
    layers = tuple(layer_differences(one, other, last))
    margin = _margin(readings, runs, last) if differs else None
    found = Figures(
        last - first + 1, max(len(keys) for keys, _ in one), layers, difference, relative, _limit(runs), margin
    )
    return found if found.first_far_layer is None else replace(found, distances=_distances(repetitions, runs, readings))


def _margin(readings: tuple[Reading, Reading], runs: Pair, position: int) -> TieMargin:
    from labengine.engine.probe import largest_difference, margin_of

    tokens = [run.token_ids[position] for run in runs]
    margins = [margin_of(reading.logits) for reading in readings]
    is_drawn = not runs[0].sampling.is_greedy
    return TieMargin(
        position,
        (runs[0].session.token_text(tokens[0]), runs[1].session.token_text(tokens[1])),
        (margins[0], margins[1]),
        largest_difference(readings[0].logits, readings[1].logits),
        is_drawn or all(bool(r.logits[token] == r.logits.max()) for r, token in zip(readings, tokens, strict=True)),
    )


def _distances(
    repetitions: tuple[Repetition, Repetition], runs: Pair, readings: tuple[Reading, Reading]
) -> tuple[float, float]:
    """Return, per run, the relative difference of its KV from the KV of the request computed alone."""
    from labengine.engine.probe import content_alone, layer_differences

    found = []
    for repetition, run, reading in zip(repetitions, runs, readings, strict=True):
        session = repetition.session
        runner = cast("ModelRunner", session.model.runner)
        request = session.inspection.snapshot().requests[run.request_id]
        alone = content_alone(runner, request, reading.position)
        assert reading.layers is not None
        found.append(max(d.relative for d in layer_differences(reading.layers, alone, reading.position)))
    return found[0], found[1]


def _limit(runs: Pair) -> float:
    return max(LIMITS[_dtype(run.session)] for run in runs)


def _dtype(session: Session) -> str:
    return str(cast("ModelRunner", session.model.runner).model.norm.weight.dtype)
