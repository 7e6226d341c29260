"""Tokens drawn by sums of another precision: a token is right where the number, moved by a little, draws it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labengine.config import SamplingParams
from labengine.core.step_plan import ScheduledRequest
from labengine.engine import sampler
from labengine.engine.batch_sampling import cuts

FLOAT32 = 4e-6
"""Of a row's weights: what borders between tokens may be moved by, when weights and their sums are float32.

An exponent of 16 is rounded by up to 2e-6, a weight by as much; tokens with larger ones weigh nothing together.
"""


def are_drawn(
    tokens: Sequence[int], logits: Tensor, requests: Sequence[ScheduledRequest], tolerance: float = FLOAT32
) -> bool:
    """Return True if each row's number lies within its token's length, made longer by the tolerance at both ends."""
    rows = zip(tokens, logits.cpu(), requests, strict=True)
    return all(_is_drawn(token, row, request, tolerance) for token, row, request in rows)


def _is_drawn(token: int, row: Tensor, request: ScheduledRequest, tolerance: float) -> bool:
    if request.sampling.temperature == 0:
        return token == int(row.argmax())
    ids, weights = laid_out(row, request.sampling)
    ends = weights.cumsum(0) / weights.sum()
    place = int((ids == token).nonzero().item()) if token in ids else -1
    if place < 0 or weights[place] == 0:
        return False
    begin, end = float(ends[place] - weights[place] / weights.sum()), float(ends[place])
    return begin - tolerance <= sampler.uniform(request.seed, request.end) < end + tolerance


def laid_out(row: Tensor, sampling: SamplingParams) -> tuple[Tensor, Tensor]:
    """Return the ids of a drawn row as they are laid end to end, and their weights in float64, as torch has them."""
    shifted = row.float().unsqueeze(0)
    shifted = shifted - shifted.amax()
    temperatures = torch.tensor([[sampling.temperature]], dtype=torch.float64)
    if cuts(sampling, row.numel()):
        ids, weights = sampler.likeliest(shifted, temperatures, [sampling])
        return ids[0], weights[0]
    return torch.arange(row.numel()), sampler._weights(shifted, temperatures)[0]
