"""transformers' continuous batching for worker.py, with one manager throughout, so that its prefix cache survives."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from generate_engine import loaded
from transformers import ContinuousBatchingConfig, GenerationConfig

PAGE_SIZE = 16


class Engine:
    """The manager's thread generates; ours waits for the results."""

    num_cached_tokens: int | None = None  # it does not report them

    def __init__(self, options: dict[str, Any]) -> None:
        self._model = loaded(options)
        self._manager = self._model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, eos_token_id=-1),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=PAGE_SIZE,
                num_blocks=options["pool_tokens"] // PAGE_SIZE,
                max_batch_tokens=2048,
                use_cuda_graph=False,
                use_async_batching=False,
                auto_switch_to_flash=False,
            ),
        )
        self._manager.start()
        self.name = f"transformers {transformers.__version__}, continuous batching"
        self.about = {"torch": torch.__version__, "attention": "sdpa, paged", "blocks": f"of {PAGE_SIZE} tokens"}

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Return the greedy outputs, to the last token."""
        request_ids = self._manager.add_requests(inputs=prompts, max_new_tokens=num_tokens)
        finished: dict[str, list[int]] = {}
        while len(finished) < len(prompts):
            result = self._manager.get_result(timeout=60)
            if result is None or result.error:
                raise RuntimeError(f"continuous batching failed: {result and result.error}")
            if result.is_finished():
                finished[result.request_id] = list(result.generated_tokens)
        return [finished[request_id] for request_id in request_ids]
