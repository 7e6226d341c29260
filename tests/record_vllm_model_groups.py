"""Record the KV-cache groups that vLLM builds for the configs in tests/golden/vllm-model-groups.json.

vllm/bin/python tests/record_vllm_model_groups.py [MODEL ...]

Runs in vLLM's environment, on a CPU. Each model is made without memory for weights (torch's meta device), and its
layers say what they keep. They are asked as on a GPU with FlashAttention: blocks of any multiple of 16 tokens, and the
layout that it prefers. The configs hold the public models' values; a multimodal model's are those of its text model.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm import __version__
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    destroy_model_parallel,
    ensure_model_parallel_initialized,
    init_distributed_environment,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models.config import MODELS_CONFIG_MAP
from vllm.platforms.interface import Platform
from vllm.utils.math_utils import cdiv
from vllm.v1.attention.backends import flash_attn
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

PATH = Path(__file__).parent / "golden" / "vllm-model-groups.json"
GIB = 8
MAX_MODEL_LEN = 8192
BUDGET = 2048
CASES = ((16, "auto"), (64, "auto"), (16, "fp8"))
"""(block size, dtype of the KV cache)"""


def made(config: dict[str, Any]) -> tuple[VllmConfig, dict[str, AttentionLayerBase]]:
    """Return vLLM's settings for a model, and its layers with a cache."""
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        settings = EngineArgs(
            model=folder, skip_tokenizer_init=True, load_format="dummy", enforce_eager=True, dtype="bfloat16",
            max_model_len=MAX_MODEL_LEN, max_num_batched_tokens=BUDGET, enable_prefix_caching=True,
        ).create_engine_config()  # fmt: skip
        with set_current_vllm_config(settings):
            if not torch.distributed.is_initialized():
                init_distributed_environment(1, 0, f"file://{mkdtemp()}/store", 0, "gloo")
            destroy_model_parallel()  # whether there is a group for experts depends on the model
            ensure_model_parallel_initialized(1, 1)
            with torch.device("meta"):
                initialize_model(settings)
        settings.cache_config.mamba_ssm_cache_dtype = "auto"  # on a CPU, vLLM makes it float32
        if rules := MODELS_CONFIG_MAP.get(settings.model_config.architecture):
            rules.verify_and_update_config(settings)
    layers = settings.compilation_config.static_forward_context
    return settings, {name: layer for name, layer in layers.items() if isinstance(layer, AttentionLayerBase)}


def case(settings: VllmConfig, layers: dict[str, AttentionLayerBase], block_size: int, dtype: str) -> dict[str, Any]:
    """Return the groups with a block size and a dtype of the KV cache."""
    cache = settings.cache_config
    cache.block_size, cache.user_specified_block_size, cache.cache_dtype = block_size, True, dtype
    cache.mamba_block_size, cache.mamba_page_size_padded, cache.kv_cache_layout = block_size, None, "LBNHC"
    for layer in layers.values():
        if not layer.get_attn_backend().is_ssm():
            layer.kv_cache_dtype = dtype
            layer.kv_cache_torch_dtype = torch.bfloat16 if dtype == "auto" else torch.uint8
            if not isinstance(layer, MLAAttention):
                layer.attn_backend = flash_attn.FlashAttentionBackend
    with set_current_vllm_config(settings):
        Platform.update_block_size_for_backend.__func__(Platform, settings)
        specs = {name: spec for name, layer in layers.items() if (spec := layer.get_kv_cache_spec(settings))}
        groups = kv_cache_utils.get_kv_cache_groups(settings, specs)
        found = kv_cache_utils.get_kv_cache_config_from_groups(settings, groups, GIB << 30)
        used = (cdiv(g.kv_cache_spec.max_memory_usage_bytes(settings), g.kv_cache_spec.page_size_bytes) for g in groups)
        return {
            "block_size": block_size,
            "kv_dtype": dtype,
            "groups": [row(group) for group in groups],
            "bytes_per_block": kv_cache_utils._pool_bytes_per_block(settings, groups),
            "num_blocks": found.num_blocks,
            "blocks_per_request": sum(used),
        }


def row(group: Any) -> list[Any]:
    """Return a group's kind, tokens per block, window, number of layers, and alignment of checkpoints."""
    spec = group.kv_cache_spec
    spec = spec.first_spec if isinstance(spec, UniformTypeKVCacheSpecs) else spec
    window = getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None)
    checkpoint = getattr(spec, "prefill_checkpoint_alignment", None)
    return [type(spec).__name__, spec.block_size, window, len(group.layer_names), checkpoint]


def main() -> None:
    """Record the models that are named, or all."""
    flash_attn.get_flash_attn_version = lambda *_, **__: 3
    document = json.loads(PATH.read_text())
    document["version"] = __version__
    for name, model in document["models"].items():
        if name in (sys.argv[1:] or document["models"]):
            settings, layers = made(model["config"])
            model["cases"] = [case(settings, layers, *one) for one in CASES]
            print(name, model["cases"], flush=True)
            PATH.write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
