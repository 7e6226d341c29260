"""Recurrences over the tokens of n chunks of t tokens each, from the states before the chunks to those after them.

Both scans go through a chunk in pieces. Inside a piece, a product of matrices gives each token's contribution to the
outputs of later tokens; the state is carried from piece to piece:

    decay[i]      product of the decays of tokens 0 to i of the piece
    decay[i, j]   product of the decays of tokens j + 1 to i, 0 for j > i
"""

from __future__ import annotations

import torch
from torch import Tensor

PIECE = 64
"""Tokens per piece: its matrices are PIECE x PIECE per head."""


def convolution(inputs: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the causal convolution of each channel, [n, t, channels], and its last inputs.

    inputs: [n, t, channels]. state: the inputs before them, [n, kernel - 1, channels]. weight: [channels, 1, kernel].
    Products and sums are float32. Shifted rows are added, as torch's conv1d is slow for single tokens and bfloat16.
    """
    row, num_tokens = torch.cat((state, inputs), dim=1), inputs.shape[1]
    out = torch.zeros_like(inputs, dtype=torch.float32) if bias is None else bias.float()
    for tap in range(weight.shape[2]):
        out = out + row[:, tap : tap + num_tokens].float() * weight[:, 0, tap].float()
    return out.to(inputs.dtype), row[:, num_tokens:]


def mamba2_scan(
    inputs: Tensor, log_decays: Tensor, keys: Tensor, queries: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the outputs [n, t, heads, head_dim] and the state after them, both float32.

    For each head and token: state = decay * state + input key^T; output = state query.
    inputs: [n, t, heads, head_dim], times their step sizes. log_decays: [n, t, heads], at most 0. keys, queries (B and
    C): [n, t, heads, state_size]. state: [n, heads, head_dim, state_size]. All are float32.
    Source: Dao and Gu, Transformers are SSMs, 2024 (arXiv 2405.21060), section 6.
    """
    outs = []
    for x, logs, key, query in _pieces(inputs, log_decays, keys, queries):
        decay, pairs, rest = _decays(logs)
        old = (query * decay) @ state.mT
        outs.append(old + (query @ key.mT * pairs) @ x)
        state = state * decay[:, :, -1:] + x.mT @ (key * rest)
    return torch.cat(outs, dim=2).transpose(1, 2), state


def delta_scan(
    queries: Tensor, keys: Tensor, values: Tensor, log_decays: Tensor, rates: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the outputs [n, t, heads, value_dim] and the state after them, both float32.

    For each head and token: state = decay * state; state += key (rate * (value - state^T key))^T;
    output = state^T query.
    queries, keys: [n, t, heads, key_dim]. values: [n, t, heads, value_dim]. log_decays, rates: [n, t, heads].
    state: [n, heads, key_dim, value_dim]. All are float32.
    Source: Yang, Kautz and Hatamizadeh, Gated Delta Networks, 2024 (arXiv 2412.06464), section 3.3.
    """
    outs = []
    for query, key, value, logs, rate in _pieces(queries, keys, values, log_decays, rates.unsqueeze(-1)):
        decay, pairs, rest = _decays(logs)
        # A token's update depends on the updates of earlier tokens in the piece: a triangular system.
        system = (key * rate) @ key.mT * pairs
        written = torch.linalg.solve_triangular(
            system, rate * (value - (key * decay) @ state), upper=False, unitriangular=True
        )
        outs.append((query * decay) @ state + (query @ key.mT * pairs) @ written)
        state = state * decay[:, :, -1:] + (key * rest).mT @ written
    return torch.cat(outs, dim=2).transpose(1, 2), state


def _pieces(*tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the pieces of each tensor [n, t, heads, ...], as [n, heads, tokens, ...]."""
    return list(zip(*(torch.split(tensor.transpose(1, 2), PIECE, dim=2) for tensor in tensors), strict=True))


def _decays(logs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return decay[i], decay[i, j] and decay[last, i] of a piece.

    logs: [n, heads, tokens]. The first and last result are [n, heads, tokens, 1].
    """
    sums = logs.cumsum(-1)
    differences = sums.unsqueeze(-1) - sums.unsqueeze(-2)
    is_later = torch.ones(differences.shape[-2:], dtype=torch.bool, device=logs.device).triu(1)
    pairs = differences.masked_fill(is_later, -torch.inf).exp()
    return sums.exp().unsqueeze(-1), pairs, (sums[..., -1:] - sums).exp().unsqueeze(-1)
