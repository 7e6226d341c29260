"""Sampling without state: a token depends only on the request's seed, its position and the logits.

So a rolled-back step or a preempted request draws the same tokens again, in any batch. Everything is computed on the
logits' device, for all rows at once, and the tokens are copied back in one transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labengine.config import SamplingParams
from labengine.core.beams import Likeliest
from labengine.core.step_plan import ScheduledRequest
from labengine.engine import triton_sampler
from labengine.engine.batch_sampling import BatchSampling, cuts
from labengine.engine.device import sent
from labengine.engine.splitmix import uniform

MAX_CELLS = {"cpu": 2**17, "cuda": 2**24}
"""Number of logits per batch of drawn rows: as doubles they fit into a CPU's cache, or take 128 MiB of a GPU."""


def sample(logits: Tensor, requests: Sequence[ScheduledRequest], argmax: Tensor | None = None) -> list[int]:
    """Return one token id per row of `logits`, [len(requests), vocab_size]. Raises FloatingPointError for NaN or
    infinity.

    argmax: a result of greedy_on_device for these logits, if known.
    """
    return read(sample_on_device(logits, requests, argmax), requests, logits) if requests else []


def sample_on_device(
    logits: Tensor,
    requests: Sequence[ScheduledRequest],
    argmax: Tensor | None = None,
    batch: BatchSampling | None = None,
) -> Tensor:
    """Return the tokens, and under them whether their logits are finite: int [2, rows] on the device.

    The host does not wait unless asks_the_host is true. batch: these requests' BatchSampling, if known.
    """
    batch = batch or BatchSampling(requests, logits.shape[1])
    cut, uncut = batch.cut, batch.uncut
    if argmax is None and uses_kernels(logits):
        numbers = batch.draws(requests)
        draws = None if numbers is None else _to_device(numbers, torch.float64, logits.device)
        sampled = triton_sampler.sample(logits, draws, cuts=bool(batch.few))
        cut, uncut = batch.many, []
    elif argmax is None and len(cut) + len(uncut) == len(requests):
        sampled = _are_finite(logits).repeat(2, 1)  # all tokens are drawn below
    elif argmax is None:
        sampled = greedy_on_device(logits)
    else:
        sampled = argmax.to(torch.int64, copy=True) if cut or uncut else argmax
    for rows in _batches((cut, uncut), logits):
        index = _to_device(rows, torch.int64, logits.device)
        selected = logits if len(rows) == len(logits) else logits[index]
        sampled[0, index] = draw(selected, [requests[row] for row in rows])
    return sampled


def uses_kernels(logits: Tensor) -> bool:
    """Return True if Triton kernels compute the argmax and draw all rows but those with a very large top-k."""
    is_suitable = logits.is_cuda and logits.dtype == torch.float32 and logits.stride(1) == 1
    return is_suitable and triton_sampler.refusal(logits.device) is None


def asks_the_host(batch: BatchSampling, logits: Tensor) -> bool:
    """Return True if sample_on_device has to wait for the device: torch draws a row with top-p without top-k."""
    return batch.has_top_p_alone and not uses_kernels(logits)


def sampling_line(device: torch.device) -> str:
    """Return a line on how tokens are sampled on a GPU, and why. The first call on a device tries the kernels."""
    refusal = triton_sampler.refusal(device)
    return "triton (our own kernels)" if refusal is None else f"torch (op by op; not triton: {refusal})"


def greedy_on_device(logits: Tensor) -> Tensor:
    """Return each row's argmax token, and under it whether the row's logits are finite: int64 [2, rows]."""
    return torch.stack((logits.argmax(dim=-1), _are_finite(logits)))


def _are_finite(logits: Tensor) -> Tensor:
    """Return 1 for each row without NaN and infinity, 0 for others: int64 [rows]."""
    return logits.amax(dim=-1).isfinite().long()


def read(sampled: Tensor, requests: Sequence[ScheduledRequest], logits: Tensor) -> list[int]:
    """Wait for a result of sample_on_device for these logits. Raises FloatingPointError for NaN or infinity.

    Rows for which top-p needs more tokens than the kernels have sorted are drawn here.
    """
    tokens, is_finite = sampled.tolist()
    broken = [str(request.request_id) for request, finite in zip(requests, is_finite, strict=True) if not finite]
    if broken:
        raise FloatingPointError(
            f"logits of request {', '.join(broken)} contain NaN or infinity: the KV it read or the weights are bad "
            "(with float16, try bfloat16 or float32)"
        )
    more = [row for row, state in enumerate(is_finite) if state == triton_sampler.MORE]
    for rows in _batches((more,), logits):
        index = _to_device(rows, torch.int64, logits.device)
        drawn = draw(logits[index], [requests[row] for row in rows]).tolist()
        for row, token in zip(rows, drawn, strict=True):
            tokens[row] = token
    return list(tokens)


def draw(logits: Tensor, requests: Sequence[ScheduledRequest]) -> Tensor:
    """Draw tokens by temperature, then top-k, then top-p: int64 [rows]; logits [rows, vocab_size].

    Either all rows are cut by top-k or top-p, or none is. A row's remaining tokens are laid end to end, each as long as
    its probability, in order of ids, or in descending order in a cut row; the token at the request's uniform number is
    drawn.
    """
    samplings = [request.sampling for request in requests]
    numbers = [[s.temperature for s in samplings], [uniform(r.seed, r.end) for r in requests]]
    temperatures, targets = _to_device(numbers, torch.float64, logits.device).unsqueeze(2)
    shifted = logits.float()
    shifted = shifted - shifted.amax(dim=-1, keepdim=True)
    if not cuts(samplings[0], logits.shape[1]):
        return pick(_weights(shifted, temperatures), targets)
    ids, kept = likeliest(shifted, temperatures, samplings)
    return ids.gather(1, pick(kept, targets).unsqueeze(1)).squeeze(1)


def pick(weights: Tensor, targets: Tensor) -> Tensor:
    """Return the index found at targets * sum when the weights are laid end to end: int64 [rows].

    weights: [rows, n]. targets: [rows, 1].
    """
    ends = weights.cumsum(dim=-1)
    totals = ends[:, -1:]
    # The second term: rounding may put the target at the very end, after tokens of weight 0.
    index = torch.minimum((ends <= targets * totals).sum(dim=-1), (ends < totals).sum(dim=-1))
    return index.clamp_(max=weights.shape[1] - 1)


def likeliest(shifted: Tensor, temperatures: Tensor, samplings: Sequence[SamplingParams]) -> tuple[Tensor, Tensor]:
    """Return the ids [rows, n] left by top-k and top-p, likeliest first, and their weights; 0 for ids cut off.

    shifted: float32 [rows, vocab_size], logits whose largest is 0. temperatures: [rows, 1].
    """
    vocab_size = shifted.shape[1]
    limits, shares = zip(*(sampling.kept(vocab_size) for sampling in samplings), strict=True)
    top_k, top_p = _to_device([limits, shares], torch.float64, shifted.device).unsqueeze(2)
    num_ids, totals = max(limits), None
    if num_ids == vocab_size:
        weights = _weights(shifted, temperatures)
        totals = weights.sum(dim=-1, keepdim=True)
        num_ids = _num_needed(weights, totals, top_k, top_p)
    ids = _in_order(shifted, num_ids)
    ranks = torch.arange(num_ids, device=ids.device)
    kept = _weights(shifted.gather(1, ids), temperatures).masked_fill_(ranks >= top_k, 0.0)
    sums = kept.cumsum(dim=-1)
    totals = sums[:, -1:] if totals is None else torch.where(top_k < vocab_size, sums[:, -1:], totals)
    return ids, kept.masked_fill_((sums - kept >= top_p * totals) & (ranks > 0) & (top_p < 1), 0.0)


def likeliest_tokens(logits: Tensor, num_tokens: int) -> list[Likeliest]:
    """Return each row's num_tokens likeliest tokens (at most the vocabulary) with their log-probabilities."""
    log_probabilities = logits.float().log_softmax(dim=-1)
    ids = _in_order(log_probabilities, min(num_tokens, logits.shape[1]))
    values = log_probabilities.gather(1, ids)
    return [tuple(zip(*row, strict=True)) for row in zip(ids.tolist(), values.tolist(), strict=True)]


def _weights(shifted: Tensor, temperatures: Tensor) -> Tensor:
    """Return unnormalized probabilities, float64; the largest is 1."""
    return shifted.double().div_(temperatures).exp_()


def _num_needed(weights: Tensor, totals: Tensor, top_k: Tensor, top_p: Tensor) -> int:
    """Return how many of the likeliest tokens a row may need. The host waits for the result.

    Tokens below a threshold add up to less than 1 - p, so no row needs them to reach p.
    """
    vocab_size = weights.shape[1]
    reach_p = (weights >= (1 - top_p) / vocab_size * totals).sum(dim=-1, keepdim=True)
    return max(1, int(torch.where(top_k < vocab_size, top_k, reach_p).max()))


def _in_order(values: Tensor, n: int) -> Tensor:
    """Return the indices of each row's n largest float32 values, int64 [rows, n]; of equals, the lower index first.

    The sorted integers combine value and index; no two are equal, so the order does not depend on the device.
    """
    keys = (values + 0.0).view(torch.int32).long()  # + 0.0: minus zero equals zero
    keys ^= (keys >> 63) & 0x7FFFFFFF  # as integers, negative floats are in reverse order
    last = values.shape[1] - 1
    keys <<= 32
    keys += torch.arange(last, -1, -1, device=values.device)
    return last - (keys.topk(n, dim=-1).values & 0xFFFFFFFF)


def _batches(kinds: Iterable[list[int]], logits: Tensor) -> Iterator[list[int]]:
    """Yield batches of rows of one kind."""
    size = max(1, MAX_CELLS[logits.device.type] // logits.shape[1])
    for rows in kinds:
        yield from (rows[start : start + size] for start in range(0, len(rows), size))


def _to_device(values: Sequence[object] | NDArray[np.float64], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy values to the device without waiting for it."""
    return sent(torch.tensor(values, dtype=dtype, device="cpu"), device)
