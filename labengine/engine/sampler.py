"""From logits to tokens, without state: a draw depends on the request's seed, its position and the logits alone.

So a step that is rolled back, or a request that was preempted, draws the same token again, in whatever batch it runs.
"""

from __future__ import annotations

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

    The candidates are laid end to end, the likeliest first, each as long as its probability; the draw is the one under
    the request's uniform number for this position.
    """
    sampling = request.sampling
    scaled = (logits.float() - logits.max()) / sampling.temperature
    top, token_ids = _likeliest_first(scaled, sampling.top_k)
    probabilities = top.double().softmax(dim=-1)
    ends = probabilities.cumsum(dim=-1)
    if sampling.top_p is not None:
        num_kept = int((ends - probabilities < sampling.top_p * ends[-1]).sum())
        ends = ends[: max(num_kept, 1)]
    target = uniform(request.seed, request.end) * float(ends[-1])
    return int(token_ids[int((ends <= target).sum().clamp(max=len(ends) - 1))])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that looks random, the same for the same (seed, position): two rounds of splitmix64."""
    return _splitmix64(_splitmix64(seed & _MASK) + position) / 2**64


def _splitmix64(state: int) -> int:
    """Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014."""
    z = (state + _GOLDEN_GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _likeliest_first(logits: Tensor, top_k: int | None) -> tuple[Tensor, Tensor]:
    """The top_k logits (all without top_k) and their token ids; of equals, the lower token id comes first."""
    top, token_ids = logits.sort(descending=True, stable=True)
    return top[:top_k], token_ids[:top_k]


def _require_finite(logits: Tensor, requests: tuple[ScheduledRequest, ...]) -> None:
    is_bad = ~logits.amax(dim=-1).isfinite()
    if is_bad.any():
        names = ", ".join(str(requests[row].request_id) for row in is_bad.nonzero().flatten().tolist())
        raise FloatingPointError(
            f"logits of request {names} hold NaN or infinity: the KV it read, or the weights, are broken "
            "(with float16, try bfloat16 or float32)"
        )
