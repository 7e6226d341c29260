"""The edition to compare a stream's scheduler with, and its settings, from the stream's header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from labengine.config import TUNING, ConfigError, Drafter, EngineConfig, GroupKind, GroupSpec
from labengine.core.editions import VLLM, VLLM_ASYNC
from labengine.core.parts import Parts
from labengine.core.vllm.waiting_queue import VllmPriorityQueue
from labengine.record.wording import readable
from labengine.vllm.stream.header import StreamHeader
from labengine.vllm.stream.pieces import Piece

JUDGED_VERSIONS = ("0.32",)
"""Releases of vLLM that the editions decide like."""

LIMITS = ("max_num_seqs", "max_num_batched_tokens", *TUNING)
"""Settings that bear on a lab's or an engine's scheduling, besides pool and groups."""


class CannotJudgeError(Exception):
    """Raised if the edition cannot follow the stream any further; the message names the feature, gap or version."""


PRIORITY, SPECULATION = "policy priority", "speculative decoding"
CHECKPOINTS = "checkpoints of states inside a chunk"
"""Features of a header that an edition may have; the last one only if the header gives the checkpoints' tokens."""


def edition_for(header: StreamHeader) -> Parts:
    """Return the edition that decides like this scheduler."""
    return by_policy(VLLM_ASYNC if header.settings.get("is_async") is True else VLLM, header)


def by_policy(parts: Parts, header: StreamHeader) -> Parts:
    """Return parts of edition vllm or vllm-async with the scheduler's order of the waiting queue."""
    if not has_priorities(header):
        return parts
    return Parts(name=f"{parts.name}, priority", waiting_queue=VllmPriorityQueue).overriding(parts)


def has_priorities(header: StreamHeader) -> bool:
    """Return True if the scheduler orders waiting requests by priority."""
    return PRIORITY in (header.features or ())


def has_drafts(header: StreamHeader) -> bool:
    """Return True if the scheduler judges drafts."""
    return SPECULATION in (header.features or ())


def refuse_what_no_edition_has(header: StreamHeader) -> None:
    """Raise CannotJudgeError for a version or a feature that no edition covers."""
    engine = readable(header.engine)
    if not any(header.engine.startswith(f"vllm {version}.") for version in JUDGED_VERSIONS):
        known = ", ".join(JUDGED_VERSIONS)
        raise CannotJudgeError(f"the stream is from {engine}, but the editions decide like vllm {known}")
    if not header.has_tokens:
        raise CannotJudgeError(
            "it has no token ids, which prefix hits depend on: record it without LABENGINE_TAP_TOKENS=0"
        )
    if header.features is None:
        raise CannotJudgeError("its header is missing the scheduler's settings: record it with this release's tap")
    known_features = [PRIORITY, SPECULATION]
    if (inner := header.inner_states) is not None and inner.unit == inner.link and not has_drafts(header):
        known_features.append(CHECKPOINTS)
    others = [name for name in header.features if name not in known_features]
    if others:
        raise CannotJudgeError(f"the engine runs with {readable(', '.join(others), 300)}")
    if has_drafts(header):
        _refuse_other_speculation(header)


def _refuse_other_speculation(header: StreamHeader) -> None:
    """Raise CannotJudgeError unless an edition speculates like this scheduler."""
    speculation = _speculation_of(header)
    if speculation.get("is_dynamic") is not False:
        raise CannotJudgeError("its number of drafts depends on the batch, unlike in the vllm edition")
    if _drafter_of(speculation) is None:
        method = readable(str(speculation.get("method")), 100)
        raise CannotJudgeError(f"it drafts with method {method}, whose slots and hits no edition models")


def drops_last_block(header: StreamHeader) -> bool:
    """Return True if the last block of a hit is recomputed, because EAGLE's head needs it."""
    speculation = header.settings.get("speculation")
    return isinstance(speculation, dict) and any(_drops(speculation))


def _speculation_of(header: StreamHeader) -> Mapping[str, Any]:
    found = header.settings.get("speculation")
    if not isinstance(found, dict):
        raise CannotJudgeError("its header does not say how it speculates: record it with this release's tap")
    return found


def _drafter_of(speculation: Mapping[str, Any]) -> Drafter | None:
    """Return the drafter with this speculation: slots after a request's tokens, share of the budget, tokens read ahead,
    and hits. None without one.
    """
    num_drafts = speculation.get("num_drafts")
    names = ("num_lookahead", "num_draft_slots", "num_prefill_lookahead")
    found = *(speculation.get(name) for name in names), any(_drops(speculation))
    drafters: dict[tuple[Any, ...], Drafter] = {
        (0, 0, 0, False): "lookup",
        (num_drafts, 1, 0, False): "draft_model",
        (num_drafts, 0, num_drafts, True): "mtp",
        (num_drafts, 0, 1, True): "eagle",
    }
    return drafters.get(found)


def _drops(speculation: Mapping[str, Any]) -> list[bool]:
    """Return, per group, True if a hit loses its last block."""
    drops = speculation.get("drops_last_block")
    return [*map(bool, drops)] if isinstance(drops, list) else []


def _drafts_of(header: StreamHeader) -> dict[str, Any]:
    if not has_drafts(header):
        return {}
    speculation = _speculation_of(header)
    drops = _drops(speculation)
    return {
        "num_drafts": speculation.get("num_drafts"),
        "drafter": _drafter_of(speculation),
        "max_model_len": longest_of(header),
        "eagle_groups": () if all(drops) else tuple(index for index, one in enumerate(drops) if one),
    }


def config_of(header: StreamHeader, piece: Piece) -> EngineConfig:
    """Return the edition's settings. Raises CannotJudgeError if the header's do not fit the edition."""
    settings: Mapping[str, Any] = header.settings
    inner = header.inner_states
    groups = tuple(
        GroupSpec(
            group.block_size,
            cast(GroupKind, group.kind),
            group.window,
            inner.alignment if inner is not None and group.keeps_states else None,
        )
        for group in piece.fold.groups
    )
    limits: dict[str, Any] = {name: settings.get(name) for name in LIMITS}
    try:
        return EngineConfig(num_blocks=len(piece.fold.ref_counts), groups=groups, **limits, **_drafts_of(header))
    except (ConfigError, TypeError) as error:
        raise CannotJudgeError(f"no edition supports its scheduler's settings: {readable(str(error), 300)}") from None


def longest_of(header: StreamHeader) -> int:
    """Return the length at which the engine ends every request. Raises CannotJudgeError if the header lacks it."""
    longest = header.settings.get("max_model_len")
    if type(longest) is not int or longest < 1:
        raise CannotJudgeError("its header is missing the maximum length of a request")
    return longest
