"""vLLM's core (0.32) for cases.py. It needs an interpreter with vLLM, but neither a model nor a GPU."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from itertools import count
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")

import torch
import vllm
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

logging.getLogger("vllm").setLevel(logging.ERROR)
init_none_hash(sha256)

MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 50_021,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": 8192,
    "torch_dtype": "float32",
}


class Core:
    """Prefix caching on, sha256 block hashes, synchronous scheduler, statistics off."""

    can_look_up = has_windows = True

    def __init__(self) -> None:
        self.name = f"vLLM {vllm.__version__}"
        self._ids = count()

    def pool(self, num_blocks: int) -> Any:
        return BlockPool(num_blocks, True, 16)

    def take(self, pool: Any, num_blocks: int) -> Any:
        return pool.get_new_blocks(num_blocks)

    def give_back(self, pool: Any, blocks: Any) -> None:
        pool.free_blocks(reversed(blocks))

    def end_step(self, pool: Any) -> None:
        pass

    def manager(self, num_blocks: int, block_size: int, windows: tuple[int, ...]) -> Any:
        config = _kv_config(num_blocks, block_size, windows)
        sizes = {"scheduler_block_size": block_size, "hash_block_size": block_size}
        manager = KVCacheManager(config, max_model_len=8192, enable_caching=True, **sizes)
        manager.hasher = get_request_block_hasher(block_size, sha256)
        return manager

    def request(self, manager: Any, tokens: list[int]) -> Any:
        return self._request(tokens, manager.hasher)

    def _request(self, tokens: list[int], hasher: Any) -> Any:
        sampling = SamplingParams(max_tokens=100_000, ignore_eos=True)
        return Request(str(next(self._ids)), tokens, sampling, None, block_hasher=hasher)

    def look_up(self, manager: Any, request: Any) -> int:
        return manager.get_computed_blocks(request)[1]

    def admit(self, manager: Any, request: Any) -> None:
        blocks, hit, _ = manager.get_computed_blocks(request)
        assert manager.allocate_slots(request, request.num_tokens - hit, hit, blocks) is not None
        request.num_computed_tokens = request.num_tokens

    def decode(self, manager: Any, request: Any, token: int) -> None:
        request.append_output_token_ids(token)
        assert manager.allocate_slots(request, 1) is not None
        request.num_computed_tokens += 1

    def free(self, manager: Any, request: Any) -> None:
        manager.free(request)

    def scheduler(self, num_requests: int, prompt_len: int, num_blocks: int, block_size: int) -> Any:
        budget = max(8192, num_requests * prompt_len)
        scheduling = SchedulerConfig(
            max_num_seqs=num_requests,
            max_num_batched_tokens=budget,
            max_model_len=8192,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        )
        cache = CacheConfig(block_size=block_size, cache_dtype="auto", enable_prefix_caching=True)
        cache.num_gpu_blocks = num_blocks
        config = VllmConfig(
            model_config=_model_config(),
            scheduler_config=scheduling,
            cache_config=cache,
            device_config=DeviceConfig("cpu"),
        )
        return Scheduler(
            vllm_config=config,
            kv_cache_config=_kv_config(num_blocks, block_size, ()),
            block_size=block_size,
            hash_block_size=block_size,
            structured_output_manager=StructuredOutputManager(config),
            log_stats=False,
        )

    def add(self, scheduler: Any, tokens: list[int]) -> None:
        scheduler.add_request(self._request(tokens, get_request_block_hasher(scheduler.block_size, sha256)))

    def schedule(self, scheduler: Any) -> Any:
        return scheduler.schedule()

    def output(self, scheduler: Any, plan: Any) -> Any:
        ids = list(plan.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: number for number, request_id in enumerate(ids)},
            sampled_token_ids=[[100 + number % 1000] for number in range(len(ids))],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )

    def update(self, scheduler: Any, plan: Any, output: Any) -> Any:
        return scheduler.update_from_output(plan, output)


def _kv_config(num_blocks: int, block_size: int, windows: tuple[int, ...]) -> Any:
    shape = {"block_size": block_size, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    specs = [FullAttentionSpec(**shape), *(SlidingWindowSpec(sliding_window=window, **shape) for window in windows)]
    groups = [KVCacheGroupSpec([str(number)], spec) for number, spec in enumerate(specs)]
    return KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=[], kv_cache_groups=groups)


def _model_config() -> Any:
    folder = tempfile.mkdtemp(prefix="tiny-llama-")
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(MODEL, file)
    return ModelConfig(
        model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=8192
    )
