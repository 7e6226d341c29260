"""nano-vLLM's workload at Qwen3-0.6B's shape with random weights, run by every engine here.

Speed does not depend on the values, so nothing is downloaded: transformers makes the model, with a tokenizer of a few
words for engines that want to load one.

    python workload.py MODEL_DIR      make the model there, unless it exists
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

QWEN3_0_6B = {
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
KV_BYTES_PER_TOKEN = 2 * 28 * 8 * 128 * 2
"""Bytes of a token's KV: keys and values, layers, heads, dimensions, bytes of a bfloat16."""
TEMPERATURE = 0.6
MAX_MODEL_LEN, MAX_BATCHED_TOKENS, MAX_NUM_SEQS = 4096, 16384, 256
"""Settings of all engines: those of nano-vLLM's bench and defaults, and as many requests at once as in the workload."""


@dataclass(frozen=True)
class Workload:
    """Prompts, and the number of tokens to generate for each."""

    prompts: list[list[int]]
    num_outputs: list[int]

    @property
    def num_prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    @property
    def num_output_tokens(self) -> int:
        return sum(self.num_outputs)

    def floor_seconds(self, weight_bytes: int, bytes_per_second: float) -> float:
        """Return the minimum time of decoding all requests together, reading weights and all contexts once per step.

        The first token of an answer comes from the prompt's step, so a request of n tokens decodes n - 1 times, reading
        its prompt and one token more each time.
        """
        num_steps = max(self.num_outputs) - 1
        tokens_read = sum(
            (n - 1) * len(prompt) + n * (n - 1) // 2 for prompt, n in zip(self.prompts, self.num_outputs, strict=True)
        )
        return (num_steps * weight_bytes + tokens_read * KV_BYTES_PER_TOKEN) / bytes_per_second


def nano_vllm_workload(num_requests: int = 256, longest: int = 1024) -> Workload:
    """Return the numbers that nano-vLLM's bench.py draws after seed(0), in the same order."""
    random = Random(0)
    lengths_and_tokens = [
        [random.randint(0, 10000) for _ in range(random.randint(100, longest))] for _ in range(num_requests)
    ]
    return Workload(lengths_and_tokens, [random.randint(100, longest) for _ in range(num_requests)])


def make_model(directory: Path, shape: Mapping[str, Any] = QWEN3_0_6B) -> int:
    """Make config, random bfloat16 weights and a tokenizer unless they exist; return the bytes of the weights."""
    weights = directory / "model.safetensors"
    if not weights.exists():
        directory.mkdir(parents=True, exist_ok=True)
        _save(directory, shape)
    return weights.stat().st_size


def _save(directory: Path, shape: Mapping[str, Any]) -> None:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = Qwen3ForCausalLM(Qwen3Config(**shape, dtype="bfloat16")).to(torch.bfloat16)
    words = {word: number for number, word in enumerate(["<bos>", "<eos>", "<unk>", "Benchmark", ":"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")
    fast.save_pretrained(directory)
    model.save_pretrained(directory, max_shard_size="20GB")


if __name__ == "__main__":
    print(f"{make_model(Path(sys.argv[1])) / 1e6:,.0f} MB of weights in {sys.argv[1]}")
