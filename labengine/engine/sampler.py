"""From logits to tokens, without state: a draw depends on the request's seed, its position and the logits alone.

So a step that is rolled back, or a request that was preempted, draws the same token again, in whatever batch it runs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labengine.core.step_plan import ScheduledRequest

_MASK = 2**64 - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def sample(logits: Tensor, requests: tuple[ScheduledRequest, ...]) -> list[int]:
    """One token id per row of `logits`, [len(requests), vocab_size]. Raises FloatingPointError for NaN or infinity."""
    if not requests:
        return []
    _require_finite(logits, requests)
    greedy: list[int] = logits.argmax(dim=-1).tolist()
    return [
        draw(row, request) if request.sampling.temperature > 0 else token
        for row, request, token in zip(logits, requests, greedy, strict=True)
    ]


def draw(logits: Tensor, request: ScheduledRequest) -> int:
    """A token by temperature, then top-k, then top-p; logits [vocab_size].

    The tokens that are left lie end to end, each as long as its probability; drawn is the one under the request's
    uniform number for this position.
    """
    sampling = request.sampling
    scaled = (logits.float() - logits.max()).double() / sampling.temperature
    token_ids = top_k_ids(scaled, sampling.top_k or len(scaled))
    probabilities = scaled[token_ids].softmax(dim=-1)
    kept = top_p_indices(probabilities, sampling.top_p or 1.0)
    ends = probabilities[kept].cumsum(dim=-1)
    target = uniform(request.seed, request.end) * ends[-1]
    # The second term: rounding may put the target at the very end, behind tokens of probability 0.
    index = torch.minimum((ends <= target).sum(), (ends < ends[-1]).sum())
    return int(token_ids[kept[index]])


def top_k_ids(logits: Tensor, k: int) -> Tensor:
    """The ids of the k largest logits; of equals, the lower id stays. Without a cut, all ids in order."""
    if k >= len(logits):
        return torch.arange(len(logits), device=logits.device)
    candidates = (logits >= logits.topk(k).values[-1]).nonzero().flatten()
    return candidates[logits[candidates].sort(descending=True, stable=True).indices[:k]]


def top_p_indices(probabilities: Tensor, p: float) -> Tensor:
    """The fewest indices whose probabilities reach p, the likeliest first. Without a cut, all indices in order."""
    if p >= 1.0:
        return torch.arange(len(probabilities), device=probabilities.device)
    # What lies below this threshold adds up to less than 1 - p: nobody needs it to reach p, and few are left to sort.
    candidates = (probabilities >= (1 - p) / len(probabilities)).nonzero().flatten()
    values, order = probabilities[candidates].sort(descending=True, stable=True)
    num_kept = int((values.cumsum(dim=-1) - values < p).sum())
    return candidates[order[: max(num_kept, 1)]]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that looks random, the same for the same (seed, position): two rounds of splitmix64."""
    return (_splitmix64(_splitmix64(seed & _MASK) + position) >> 11) / 2**53


def _splitmix64(state: int) -> int:
    """Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014."""
    z = (state + _GOLDEN_GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _require_finite(logits: Tensor, requests: tuple[ScheduledRequest, ...]) -> None:
    is_bad = ~logits.amax(dim=-1).isfinite()
    if is_bad.any():
        names = ", ".join(str(requests[row].request_id) for row in is_bad.nonzero().flatten().tolist())
        raise FloatingPointError(
            f"logits of request {names} hold NaN or infinity: the KV it read, or the weights, are broken "
            "(with float16, try bfloat16 or float32)"
        )
