"""vLLM on a CPU for worker.py, run by an interpreter with vLLM. Its engine core runs in this process."""

from __future__ import annotations

import os
import sys
from typing import Any


class Engine:
    """vLLM with its defaults (compiled, prefix caching on), and our dtype and threads."""

    def __init__(self, options: dict[str, Any]) -> None:
        os.environ.update(
            VLLM_CPU_KVCACHE_SPACE=str(options["kv_gib"]),
            VLLM_CPU_OMP_THREADS_BIND=f"0-{options['threads'] - 1}",
            VLLM_CPU_NUM_OF_RESERVED_CPU="0",
            VLLM_ENABLE_V1_MULTIPROCESSING="0",
            VLLM_NO_USAGE_STATS="1",
            HF_HUB_OFFLINE="1",
            CUDA_VISIBLE_DEVICES="",
            PATH=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]),
        )
        import torch
        import vllm

        self._llm = vllm.LLM(
            model=options["model"],
            dtype=options["dtype"],
            max_model_len=options["max_length"],
            max_num_seqs=options["max_batch"],
            enable_prefix_caching=True,
            seed=0,
        )
        self._sampling = vllm.SamplingParams
        self.name = f"vLLM {vllm.__version__} (CPU)"
        block_size = self._llm.llm_engine.vllm_config.cache_config.block_size
        self.about = {"torch": torch.__version__, "blocks": f"of {block_size} tokens"}
        self.num_cached_tokens: int | None = None

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Return the greedy outputs, to the last token."""
        sampling = self._sampling(temperature=0, max_tokens=num_tokens, ignore_eos=True)
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self._llm.generate(asked, sampling, use_tqdm=False)
        self.num_cached_tokens = sum(output.num_cached_tokens or 0 for output in outputs)
        return [list(output.outputs[0].token_ids) for output in outputs]
