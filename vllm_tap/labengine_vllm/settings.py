"""The settings that a scheduler's decisions depend on: a reader makes the same decisions again with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from labengine_vllm.engine import Engine

Settings = dict[str, Any]


def settings(engine: Engine) -> Settings:
    """Return limits and features in JSON types. Of an unknown scheduler limits are None, and `features` is left out."""
    scheduler, coordinator = engine.scheduler, getattr(engine.manager, "coordinator", None)
    limits = getattr(scheduler, "scheduler_config", None)
    found = {
        "is_async": _is_async(scheduler),
        "max_num_seqs": getattr(scheduler, "max_num_active_reqs", None),
        "max_num_batched_tokens": getattr(scheduler, "max_num_scheduled_tokens", None),
        "max_model_len": getattr(scheduler, "max_model_len", None),
        "long_prefill_token_threshold": getattr(limits, "long_prefill_token_threshold", None),
        "watermark": getattr(limits, "watermark", None),
        "hash_block_size": getattr(scheduler, "hash_block_size", None),
        "retention_interval": getattr(coordinator, "retention_interval", None),
    }
    with suppress(AttributeError):  # not known: a reader must not take it for none
        found["features"] = [*_features(scheduler)]
    return found


def _is_async(scheduler: Any) -> bool:
    return any(base.__name__ == "AsyncScheduler" for base in type(scheduler).__mro__)


def _features(scheduler: Any) -> Iterator[str]:
    """Yield features that change decisions in ways which the limits do not tell.

    Raises AttributeError for one that this scheduler does not know.
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
