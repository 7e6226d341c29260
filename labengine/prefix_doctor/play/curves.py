"""The same traffic with other values of one setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from labengine.config import ConfigError, EngineConfig
from labengine.prefix_doctor.play.bound import Bound, blocks_of
from labengine.prefix_doctor.play.player import play
from labengine.prefix_doctor.play.setting import Setting
from labengine.prefix_doctor.report.report import Curve, CurveName, Point
from labengine.prefix_doctor.traffic.prompt import Prompt, Traffic

FACTORS = (0.5, 1, 2, 4, 8)
"""Values of a curve, as multiples of the current one."""

MAX_TOKENS = 2_000_000
"""Prompt tokens of the traffic that is played again and again: its first prompts."""

Changed = Callable[[EngineConfig, int], EngineConfig]


def curves_of(traffic: Traffic, setting: Setting) -> Iterator[Curve]:
    """Yield a curve for each setting that decides about hits; points that some prompt does not fit are left out."""
    config = setting.config
    yield _with_bound(_curve("pool", "blocks", config.num_blocks, traffic, setting, _with_pool), traffic, setting)
    if len(config.groups) == 1 and config.groups[0].kind == "full":
        yield _curve("block_size", "tokens", config.groups[0].block_size, traffic, setting, with_block_size)
    limit = config.max_num_batched_tokens
    yield _curve("max_num_batched_tokens", "tokens", limit, traffic, setting, _with_budget)
    states = [group.block_size for group in config.groups if group.kind == "state"]
    if states:
        yield _curve("state_interval", "tokens", states[0], traffic, setting, _with_state_interval)


def first_of(traffic: Traffic, most: int = MAX_TOKENS) -> tuple[Traffic, int | None]:
    """Return the first prompts of a traffic, up to `most` tokens, and their number; None if these are all.

    They stay in memory: reading a file and splitting its texts takes as long as playing them.
    """
    kept, num_tokens = list[Prompt](), 0
    for prompt in traffic:
        num_tokens += len(prompt.token_ids)
        if num_tokens > most and kept:
            return replace(traffic, read=partial(iter, kept)), len(kept)
        kept.append(prompt)
    return replace(traffic, read=partial(iter, kept)), None


def _curve(name: CurveName, unit: str, current: int, traffic: Traffic, setting: Setting, changed: Changed) -> Curve:
    values = sorted({value for factor in FACTORS if (value := int(current * factor)) >= 1})
    points = list[Point]()
    for value in values:
        if point := _point(traffic, setting, changed, value):
            points.append(point)
        if points and name == "pool" and value >= current and not points[-1].figures.num_evicted_blocks:
            break  # more blocks change nothing
    return Curve(name, unit, tuple(points), current)


def _with_bound(curve: Curve, traffic: Traffic, setting: Setting) -> Curve:
    """Add Belady's bound, which is known for one engine with one group of full attention."""
    (group, *others), bound = setting.config.groups, Bound()
    if others or group.kind != "full" or setting.num_replicas > 1:
        return curve
    num_reserved = setting.parts.block_pool.null_block >= 0
    for prompt in traffic:
        bound.add(*blocks_of(prompt, group.block_size))
    points = (
        replace(
            one,
            bound_hit_rate=bound.most_hits(one.value - num_reserved)
            * group.block_size
            / max(1, one.figures.num_tokens),
        )
        for one in curve.points
    )
    return replace(curve, points=tuple(points))


def _point(traffic: Traffic, setting: Setting, changed: Changed, value: int) -> Point | None:
    try:
        found = play(traffic, replace(setting, config=changed(setting.config, value)))
    except ConfigError:  # such a setting is impossible
        return None
    return None if found.num_refused else Point(value, found.figures)


def _with_pool(config: EngineConfig, value: int) -> EngineConfig:
    return replace(config, num_blocks=value)


def with_block_size(config: EngineConfig, value: int) -> EngineConfig:
    """Change the size of the blocks, and their number so that the pool holds as many tokens."""
    (group,) = config.groups
    num_blocks = max(2, config.num_blocks * group.block_size // value)
    return replace(config, groups=(replace(group, block_size=value),), num_blocks=num_blocks, hash_block_size=0)


def _with_budget(config: EngineConfig, value: int) -> EngineConfig:
    return replace(config, max_num_batched_tokens=value)


def _with_state_interval(config: EngineConfig, value: int) -> EngineConfig:
    """Change the tokens between two cached states, and end chunks there: states are cached at chunks' ends.

    The present value leaves the examined engine as it is.
    """
    if all(group.block_size == value for group in config.groups if group.kind == "state"):
        return config
    groups = tuple(replace(group, block_size=value) if group.kind == "state" else group for group in config.groups)
    budget = min(config.max_num_batched_tokens, value)
    return replace(config, groups=groups, hash_block_size=0, max_num_batched_tokens=budget, retention_interval=None)
