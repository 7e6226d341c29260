"""The settings that a scheduler's decisions depend on, so that a reader can repeat them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from labengine_vllm.engine import Engine

Settings = dict[str, Any]


def settings(engine: Engine) -> Settings:
    """Return limits and features in JSON types. For an unknown scheduler limits are None, and `features` is missing."""
    scheduler, coordinator = engine.scheduler, getattr(engine.manager, "coordinator", None)
    limits = getattr(scheduler, "scheduler_config", None)
    found = {
        "is_async": engine.is_async,
        "max_num_seqs": getattr(scheduler, "max_num_active_reqs", None),
        "max_num_batched_tokens": getattr(scheduler, "max_num_scheduled_tokens", None),
        "max_model_len": getattr(scheduler, "max_model_len", None),
        "long_prefill_token_threshold": getattr(limits, "long_prefill_token_threshold", None),
        "watermark": getattr(limits, "watermark", None),
        "hash_block_size": getattr(scheduler, "hash_block_size", None),
        "retention_interval": getattr(coordinator, "retention_interval", None),
    }
    with suppress(AttributeError):  # it has none
        if scheduler.mamba_has_prefill_checkpoint_blocks:
            found |= _inner_states(engine)
    with suppress(AttributeError):  # unknown features must not look like none
        found["features"] = [*_features(scheduler), *_features_of_states(engine)]
        if speculation := _speculation(scheduler):
            found["speculation"] = speculation
    return found


def _inner_states(engine: Engine) -> Settings:
    """Return where a chunk can leave a state inside it: at the last multiple of checkpoint_unit tokens, if that is a
    multiple of checkpoint_alignment after the chunk's start.

    The unit is a link of the hash chain before vLLM 0.32, whose worker knows where hits can end.
    """
    scheduler = engine.scheduler
    knows_hits = hasattr(scheduler.cache_config, "cache_hit_alignment_tokens")
    unit = engine.groups[0].cache_hit_alignment_tokens if knows_hits else scheduler.hash_block_size
    return {"checkpoint_alignment": scheduler.mamba_prefill_checkpoint_alignment, "checkpoint_unit": unit}


def _speculation(scheduler: Any) -> Settings | None:
    """Return the settings of speculation that affect scheduling; None without speculation.

    num_lookahead: slots after a request's tokens and drafts, for the drafter's KV. num_draft_slots: tokens of a step's
    budget that each request takes besides its own. drops_last_block: per group, True if hits lose their last block.
    """
    config = scheduler.vllm_config.speculative_config
    if config is None:
        return None
    coordinator = scheduler.kv_cache_manager.coordinator
    return {
        "method": str(config.method),
        "num_drafts": scheduler.num_spec_tokens,
        "num_lookahead": scheduler.num_lookahead_tokens,
        "num_draft_slots": config.max_num_new_slots_for_drafting,
        "num_prefill_lookahead": scheduler.num_prefill_lookahead,
        "is_dynamic": scheduler.dynamic_sd_lookup is not None,
        "drops_last_block": [number in coordinator.eagle_group_ids for number in range(len(_groups(scheduler)))],
    }


def _groups(scheduler: Any) -> Any:
    return scheduler.kv_cache_manager.coordinator.single_type_managers


def _features(scheduler: Any) -> Iterator[str]:
    """Yield features that change decisions beyond the limits.

    Raises AttributeError for a feature that this scheduler does not know.
    """
    config = scheduler.vllm_config
    limits, cache, parallel = scheduler.scheduler_config, scheduler.cache_config, scheduler.parallel_config
    if limits.policy != "fcfs":
        yield f"policy {limits.policy}"
    if scheduler.max_num_scheduled_tokens != limits.max_num_batched_tokens:
        yield "max_num_scheduled_tokens"
    found = {
        "no chunked prefill": not limits.enable_chunked_prefill,
        "an adaptive long_prefill_token_threshold": limits.long_prefill_token_threshold_adaptive,
        "scheduler_reserve_full_isl=False": not limits.scheduler_reserve_full_isl,
        "no prefix caching": not cache.enable_prefix_caching,
        "speculative decoding": config.speculative_config is not None or scheduler.num_lookahead_tokens > 0,
        "a KV connector": scheduler.connector is not None,
        "an encoder cache connector": scheduler.ec_connector is not None,
        "an encoder and a decoder": scheduler.is_encoder_decoder,
        "pooling or diffusion": scheduler.num_sampled_tokens_per_step != 1,
        "replay of windows": scheduler.prefix_replay_tokens > 0,
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "context parallelism": scheduler.dcp_world_size > 1 or scheduler.pcp_world_size > 1,
    }
    yield from (words for words, is_on in found.items() if is_on)


def _features_of_states(engine: Engine) -> Iterator[str]:
    """Yield features of state groups besides keeping the state at the end of a chunk."""
    states = [group for group in engine.groups if type(group).__name__ == "MambaManager"]
    if any(group.mamba_cache_mode != "align" for group in states):
        yield "states that are not cached at block boundaries"
    if any(group.has_prefill_checkpoint_blocks for group in states):
        yield "checkpoints of states inside a chunk"
    if states and getattr(engine.manager.coordinator, "enable_partial_hash_hits", False):
        yield "hits inside a block of a state"
    if any(group.block_size != engine.scheduler.cache_config.block_size for group in states):
        yield "chunks that do not end where blocks of states do"
