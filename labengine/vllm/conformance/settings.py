"""What a stream's header says of its scheduler: the edition that is held against it, and that edition's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from labengine.config import ConfigError, EngineConfig, GroupKind, GroupSpec
from labengine.core.editions import VLLM, VLLM_ASYNC
from labengine.core.parts import Parts
from labengine.record.wording import readable
from labengine.vllm.stream.header import StreamHeader
from labengine.vllm.stream.pieces import Piece

JUDGED_VERSIONS = ("0.32",)
"""Releases of vLLM whose decisions the editions take."""

LIMITS = ("max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold", "watermark", "hash_block_size")


class CannotJudgeError(Exception):
    """The edition cannot follow the stream from here on; the message names the feature, gap or version."""


def edition_for(header: StreamHeader) -> Parts:
    """Return the edition that takes this scheduler's decisions."""
    return VLLM_ASYNC if header.settings.get("is_async") is True else VLLM


def refuse_what_no_edition_has(header: StreamHeader) -> None:
    """Raise CannotJudgeError for a version or a feature whose decisions no edition takes."""
    engine = readable(header.engine)
    if not any(header.engine.startswith(f"vllm {version}.") for version in JUDGED_VERSIONS):
        known = ", ".join(JUDGED_VERSIONS)
        raise CannotJudgeError(f"the stream is of {engine}, and the editions take the decisions of vllm {known}")
    if not header.has_tokens:
        raise CannotJudgeError(
            "its token ids were left out, and prefix hits depend on them: record it without LABENGINE_TAP_TOKENS=0"
        )
    features = header.settings.get("features")
    if not isinstance(features, list):
        raise CannotJudgeError("its header does not say how the scheduler was set: record it with this release's tap")
    if features:
        raise CannotJudgeError(f"the engine runs with {readable(', '.join(map(str, features)), 300)}")


def config_of(header: StreamHeader, piece: Piece) -> EngineConfig:
    """Return the edition's settings. Raises CannotJudgeError where the header's cannot be its settings."""
    settings: Mapping[str, Any] = header.settings
    groups = tuple(
        GroupSpec(group.block_size, cast(GroupKind, group.kind), group.window) for group in piece.fold.groups
    )
    limits: dict[str, Any] = {name: settings.get(name) for name in (*LIMITS, "retention_interval")}
    try:
        return EngineConfig(num_blocks=len(piece.fold.ref_counts), groups=groups, **limits)
    except (ConfigError, TypeError) as error:
        raise CannotJudgeError(f"no edition can be set as its scheduler was: {readable(str(error), 300)}") from None


def longest_of(header: StreamHeader) -> int:
    """Return the tokens at which the engine ends every request. Raises CannotJudgeError if the header lacks it."""
    longest = header.settings.get("max_model_len")
    if type(longest) is not int or longest < 1:
        raise CannotJudgeError("its header does not say how long a request may become")
    return longest
