"""A script written for nano-vLLM: what pull request 243 calls and reads, step by step. No test by itself."""

import os
from collections import Counter
from pathlib import Path

from nanovllm import LLM, SamplingParams
from transformers import AutoTokenizer

MODEL_PATH = str(Path(os.environ.get("MODEL_PATH", "~/huggingface/Qwen3-0.6B/")).expanduser().resolve())


def main():
    tokenizer = AutoTokenizer.from_pretrained(MODEL_PATH)
    llm = LLM(MODEL_PATH, enforce_eager=True, tensor_parallel_size=1)
    prompt = tokenizer.encode("This is a concurrent cache test prompt. " * 100)
    for _ in range(2):
        llm.add_request(prompt, SamplingParams(temperature=1.0, max_tokens=3))

    seen = []
    while not llm.is_finished():
        outputs, num_tokens = llm.step()
        manager = llm.scheduler.block_manager
        used = [manager.blocks[block_id] for block_id in manager.used_block_ids]
        hashes = Counter(block.hash for block in used if block.hash not in (None, -1))
        shared = [manager.blocks[manager.hash_to_block_id[h]].ref_count for h in hashes]
        step = {
            "used": len(used),
            "hashes": len(hashes),
            "duplicates": sum(count > 1 for count in hashes.values()),
            "ref_counts": shared,
            "free": len(manager.free_block_ids),
            "num_tokens": num_tokens,
            "finished": [len(token_ids) for _, token_ids in outputs],
        }
        print(f"step {len(seen) + 1}: {step}")
        seen.append(step)
    return seen


if __name__ == "__main__":
    main()
