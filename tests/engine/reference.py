"""Logits by transformers, to hold ours against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


def transformers_rows(model_dir: Path) -> Callable[[list[int], list[int]], dict[int, Tensor]]:
    """Token ids and positions to the logits after each of these: for vocabularies too large to keep every row."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, local_files_only=True).eval()

    @torch.inference_mode()
    def rows(token_ids: list[int], positions: list[int]) -> dict[int, Tensor]:
        output = model(torch.tensor([token_ids]), logits_to_keep=torch.tensor(positions), use_cache=False)
        return dict(zip(positions, output.logits[0], strict=True))

    return rows


def largest_difference(
    runner: ModelRunner,
    texts: list[list[int]],
    expected: Sequence[Tensor | Mapping[int, Tensor]],
    *,
    chunk: int,
    num_decodes: int,
) -> float:
    """Compute all texts together, in chunks and then token by token; the largest |logit - expected logit| seen.

    expected: of each text, the logits after each position.

    Every text but its last num_decodes tokens is prefilled in chunks. They start one step after the other, so that
    steps mix first chunks, later chunks and decodes. Every chunk's last row is compared. Slots hold NaN before the
    first write, and again once they lie outside of the window.
    """
    dealer = Dealer(runner.kv_tensors.num_blocks, runner.groups, seed=runner.groups[0].block_size)
    poison(runner, range(dealer.num_blocks))
    requests = [dealer.request(text) for text in texts]
    worst, step = 0.0, 0
    while any(request.num_computed < len(request.token_ids) for request in requests):
        started = [r for r in requests[: step + 1] if r.num_computed < len(r.token_ids)]
        poison(runner, [block for request in started for block in request.dropped_blocks()])
        scheduled = [_next(request, chunk, num_decodes) for request in started]
        logits = runner.forward(plan_of(*scheduled)).cpu()
        wanted = torch.stack([expected[entry.request_id][entry.end - 1] for entry in scheduled])
        assert logits.shape == wanted.shape and logits.dtype == torch.float32
        assert logits.isfinite().all(), "max() below is blind to NaN"
        worst = max(worst, (logits - wanted).abs().max().item())
        step += 1
    return worst


def poison(runner: ModelRunner, block_ids: Iterable[int]) -> None:
    """Fill blocks with NaN, in all layers of all groups."""
    blocks = torch.tensor(list(block_ids), dtype=torch.long, device=runner.model.norm.weight.device)
    for layer in range(runner.num_layers):
        states = runner.kv_tensors.states(layer)
        kv = None if states else runner.kv_tensors.layer(layer)
        for tensor in states.values() if kv is None else (kv.keys, kv.values):
            tensor[blocks] = torch.nan


def _next(request: HandMadeRequest, chunk: int, num_decodes: int) -> ScheduledRequest:
    left = len(request.token_ids) - num_decodes - request.num_computed
    return request.take(min(chunk, left) if left > 0 else 1)
