"""Logits by transformers, to hold ours against."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from labengine.core.step_plan import ScheduledRequest
from labengine.engine.model_runner import ModelRunner

Reference = Callable[[list[int]], Tensor]
"""Token ids to logits of every position, [num_tokens, vocab_size]."""


def transformers_logits(model_dir: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Reference:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=dtype, local_files_only=True).to(device).eval()

    @torch.inference_mode()
    def logits(token_ids: list[int]) -> Tensor:
        result: Tensor = model(torch.tensor([token_ids], device=device)).logits[0].float().cpu()
        return result

    return logits


def largest_difference(
    runner: ModelRunner,
    texts: list[list[int]],
    expected: list[Tensor],
    *,
    block_size: int,
    chunk: int,
    num_decodes: int,
) -> float:
    """Compute all texts together, in chunks and then token by token; the largest |logit - expected logit| seen.

    Every text but its last num_decodes tokens is prefilled in chunks. They start one step after the other, so that
    steps mix first chunks, later chunks and decodes. Every chunk's last row is compared.
    """
    dealer = Dealer(runner.kv_tensors.num_blocks, block_size, seed=block_size)
    requests = [dealer.request(text) for text in texts]
    worst, step = 0.0, 0
    while any(request.num_computed < len(request.token_ids) for request in requests):
        started = [r for r in requests[: step + 1] if r.num_computed < len(r.token_ids)]
        scheduled = [_next(request, chunk, num_decodes) for request in started]
        logits = runner.forward(plan_of(*scheduled)).cpu()
        wanted = torch.stack([expected[entry.request_id][entry.end - 1] for entry in scheduled])
        assert logits.shape == wanted.shape and logits.dtype == torch.float32
        worst = max(worst, (logits - wanted).abs().max().item())
        step += 1
    return worst


def _next(request: HandMadeRequest, chunk: int, num_decodes: int) -> ScheduledRequest:
    left = len(request.token_ids) - num_decodes - request.num_computed
    return request.take(min(chunk, left) if left > 0 else 1)
