"""vLLM's own scheduler and KV cache without a model: requests are added, steps taken, tokens sampled by position."""

from __future__ import annotations

import atexit
import functools
import json
import logging
import math
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import vllm
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

logging.getLogger("vllm").setLevel(logging.ERROR)
kv_cache_utils.init_none_hash(sha256)

VERSION = str(vllm.__version__)
MAX_MODEL_LEN = 8192
MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 50021,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": MAX_MODEL_LEN,
    "torch_dtype": "float32",
}
"""The scheduler asks for a model's configuration, and for nothing in it that matters here."""


class VllmCore:
    """One scheduler with an empty cache.

    settings: num_blocks, groups [[block_size, window or None], ...], hash_block_size, max_num_seqs,
    max_num_batched_tokens, watermark, long_prefill_token_threshold, retention_interval, is_async. tokens: the token
    that a request samples at each position.
    """

    def __init__(self, settings: Mapping[str, Any], tokens: Sequence[int]) -> None:
        self.scheduler = new_scheduler(json.dumps(settings))
        self.requests: dict[str, Any] = {}
        self.plan: dict[str, tuple[int, int]] = {}
        """Per request of the newest planned step: the first position that it computes, and how many tokens."""
        self.after_call: Callable[[str], object] = lambda call: None
        """Called after each call of the scheduler: add, schedule, update, abort, reset."""
        self._tokens = tokens
        self._hasher = kv_cache_utils.get_request_block_hasher(settings["hash_block_size"], sha256)
        self._in_flight: deque[tuple[Any, list[bool]]] = deque()
        self._num_in_flight = 2 if settings["is_async"] else 1

    @property
    def is_idle(self) -> bool:
        """True when nothing waits, nothing runs, and every step is booked."""
        return not self._in_flight and not self.scheduler.has_requests()

    def add(self, name: str, prompt: Sequence[int], max_tokens: int, salt: str | None = None) -> None:
        """Queue a request."""
        self.requests[name] = request = Request(
            request_id=name,
            prompt_token_ids=list(prompt),
            sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0),
            pooling_params=None,
            cache_salt=salt,
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(request)
        self.after_call("add")

    def step(self) -> bool:
        """Do what EngineCore does in a step: schedule ahead while there is room, else book the oldest step.

        Returns False if nothing was scheduled and nothing was booked.
        """
        if self.is_idle:
            return False
        if self.scheduler.has_requests():
            plan = self.scheduler.schedule()
            samples = [not self.requests[name].is_prefill_chunk for name in plan.num_scheduled_tokens]
            self._in_flight.append((plan, samples))
            self.plan = {
                name: (self.requests[name].num_computed_tokens - num_tokens, num_tokens)
                for name, num_tokens in plan.num_scheduled_tokens.items()
            }
            self.after_call("schedule")
            if len(self._in_flight) < self._num_in_flight and plan.total_num_scheduled_tokens:
                return True
        return self._book(*self._in_flight.popleft())

    def _book(self, plan: Any, samples: Sequence[bool]) -> bool:
        names = list(plan.num_scheduled_tokens)
        sampled = [
            [self._tokens[self.requests[name].num_tokens]] if has_token else []
            for name, has_token in zip(names, samples, strict=True)
        ]
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        self.scheduler.update_from_output(plan, output)
        self.after_call("update")
        return bool(names)

    def abort(self, name: str) -> None:
        """Abort a request that has not ended."""
        if name in self.scheduler.requests:
            self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
            self.after_call("abort")

    def reset(self) -> None:
        """Reset the prefix cache; while a request holds blocks nothing happens."""
        self.scheduler.reset_prefix_cache()
        self.after_call("reset")

    def content_of(self, name: str) -> list[Any]:
        """Return a request's salt, and its tokens with those that it will sample: what its KV depends on."""
        request = self.requests[name]
        prompt = list(request.prompt_token_ids)
        return [request.cache_salt, *prompt, *self._tokens[len(prompt) :]]

    def state(self) -> dict[str, Any]:
        """Return status and tables of the open requests, reference counts, the free queue and the cached blocks."""
        manager = self.scheduler.kv_cache_manager
        pool = manager.block_pool
        return {
            "requests": {
                name: [request.status.name.lower(), [*map(list, manager.get_block_ids(name))]]
                for name, request in self.scheduler.requests.items()
            },
            "ref_counts": [0, *(block.ref_cnt for block in pool.blocks[1:])],
            "free_queue": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            "cached": [block.block_id for block in pool.blocks if block.block_hash is not None],
        }


CORE = VllmCore
"""What the finder drives."""


def new_scheduler(settings: str) -> Any:
    """Return an empty scheduler for settings, which are JSON."""
    config, kv_cache, sizes = _configs(settings)
    return (AsyncScheduler if config.scheduler_config.async_scheduling else Scheduler)(
        vllm_config=config, kv_cache_config=kv_cache, structured_output_manager=StructuredOutputManager(config), **sizes
    )


@functools.lru_cache(maxsize=64)
def _configs(text: str) -> tuple[VllmConfig, KVCacheConfig, dict[str, int]]:
    settings = json.loads(text)
    step_size = math.lcm(*(size for size, _ in settings["groups"]))
    cache = CacheConfig(block_size=step_size, cache_dtype="auto", enable_prefix_caching=True)
    cache.num_gpu_blocks = settings["num_blocks"]
    limits = SchedulerConfig(
        max_num_seqs=settings["max_num_seqs"],
        max_num_batched_tokens=settings["max_num_batched_tokens"],
        max_model_len=MAX_MODEL_LEN,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=False,
        policy="fcfs",
        watermark=settings["watermark"],
        long_prefill_token_threshold=settings["long_prefill_token_threshold"],
    )
    config = VllmConfig(
        model_config=_model(), scheduler_config=limits, cache_config=cache, device_config=DeviceConfig("cpu")
    )
    config.scheduler_config.async_scheduling = settings["is_async"]
    kv_cache = KVCacheConfig(
        num_blocks=settings["num_blocks"],
        kv_cache_tensors=[],
        kv_cache_groups=[_group(number, *group) for number, group in enumerate(settings["groups"])],
        prefix_cache_retention_interval=settings["retention_interval"],
    )
    return config, kv_cache, {"block_size": step_size, "hash_block_size": settings["hash_block_size"]}


def _group(number: int, block_size: int, window: int | None) -> KVCacheGroupSpec:
    import torch

    shape: dict[str, Any] = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    spec = FullAttentionSpec(**shape) if window is None else SlidingWindowSpec(sliding_window=window, **shape)
    return KVCacheGroupSpec([f"layer.{number}"], spec)


@functools.cache
def _model() -> ModelConfig:
    folder = tempfile.mkdtemp(prefix="no-weights-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    Path(folder, "config.json").write_text(json.dumps(MODEL))
    return ModelConfig(
        model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=MAX_MODEL_LEN
    )
