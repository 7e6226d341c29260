"""transformers' generate() for worker.py: prompts of one length as a batch, nothing kept between calls."""

from __future__ import annotations

import os
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers


def loaded(options: dict[str, Any]) -> Any:
    """Load the model with its fastest attention on a CPU."""
    torch.set_num_threads(options["threads"])
    dtype = getattr(torch, options["dtype"])
    model = transformers.AutoModelForCausalLM.from_pretrained(options["model"], dtype=dtype, attn_implementation="sdpa")
    model.generation_config.eos_token_id = None
    return model.eval()


class Engine:
    """Static batching, in which all prompts begin and end together."""

    num_cached_tokens = 0

    def __init__(self, options: dict[str, Any]) -> None:
        self._model = loaded(options)
        self.name = f"transformers {transformers.__version__}, generate"
        self.about = {"torch": torch.__version__, "attention": "sdpa"}

    @torch.inference_mode()
    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        """Return the greedy outputs, to the last token."""
        ids = torch.tensor(prompts)
        mask = torch.ones_like(ids)
        outputs = self._model.generate(ids, attention_mask=mask, max_new_tokens=num_tokens, do_sample=False)
        return outputs[:, ids.shape[1] :].tolist()
