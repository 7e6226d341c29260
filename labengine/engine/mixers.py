"""Mixers that mix tokens through a state instead of attention: short convolution, Mamba-2, gated delta net.

Matrices are applied to all rows of a step at once, the recurrences to its chunks (recurrences.py).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from labengine.engine.modules import Linear, RMSNorm
from labengine.engine.recurrence_sizes import DeltaNetSizes, Mamba2Sizes, ShortConvSizes
from labengine.engine.recurrences import convolution, delta_scan, mamba2_scan
from labengine.engine.states import Chunks, LayerStates


class ChannelFilters(nn.Module):
    """A causal filter per channel, over the last `kernel` tokens."""

    def __init__(self, channels: int, kernel: int, *, has_bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, kernel))
        self.bias = nn.Parameter(torch.empty(channels)) if has_bias else None

    def forward(self, inputs: Tensor, chunks: Chunks, states: LayerStates) -> Tensor:
        """Filter the chunks of [num_tokens, channels]; return [n, t, channels] and advance the states."""
        state = states.read("conv", chunks)
        out, state = convolution(chunks.gathered(inputs), state, self.weight, self.bias)
        states.write("conv", chunks, state)
        return out


class ShortConv(nn.Module):
    """LFM2's mixer: out(C * conv(B * x)), with B, C and x from one matrix."""

    def __init__(self, hidden_size: int, sizes: ShortConvSizes, eps: float) -> None:
        super().__init__()
        self.inputs = Linear(hidden_size, 3 * sizes.channels)
        self.conv = ChannelFilters(sizes.channels, sizes.kernel)
        self.out = Linear(sizes.channels, hidden_size)

    def forward(self, hidden: Tensor, states: LayerStates) -> Tensor:
        """Map [num_tokens, hidden_size] to the same shape, and advance the requests' states."""
        gate, out_gate, values = self.inputs(hidden).chunk(3, dim=-1)
        gated = gate * values
        mixed = states.joined([self.conv(gated, chunks, states) for chunks in states.chunks()])
        out: Tensor = self.out(out_gate * mixed)
        return out


class GatedGroupNorm(RMSNorm):
    """RMSNorm of hidden * silu(gate), over each group of numbers separately (Mamba-2)."""

    def __init__(self, size: int, num_groups: int, eps: float) -> None:
        super().__init__(size, eps)
        self._num_groups = num_groups

    def gated(self, hidden: Tensor, gate: Tensor) -> Tensor:
        """Gate and normalize [..., size], in float32; the result has the gate's dtype."""
        wide = torch.unflatten(hidden.float() * silu(gate.float()), -1, (self._num_groups, -1))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.flatten(-2).to(gate.dtype)


class Mamba2(nn.Module):
    """Mamba-2's mixer in Bamba's form."""

    def __init__(self, hidden_size: int, sizes: Mamba2Sizes, eps: float) -> None:
        super().__init__()
        self.sizes = sizes
        self.inputs = Linear(hidden_size, sizes.inner_size + sizes.channels + sizes.num_heads)
        self.conv = ChannelFilters(sizes.channels, sizes.kernel, has_bias=sizes.has_conv_bias)
        self.A_log = nn.Parameter(torch.empty(sizes.num_heads))
        self.D = nn.Parameter(torch.empty(sizes.num_heads))
        self.dt_bias = nn.Parameter(torch.empty(sizes.num_heads))
        self.norm = GatedGroupNorm(sizes.inner_size, sizes.num_groups, eps)
        self.out = Linear(sizes.inner_size, hidden_size)

    def forward(self, hidden: Tensor, states: LayerStates) -> Tensor:
        """Map [num_tokens, hidden_size] to the same shape, and advance the requests' states."""
        sizes = self.sizes
        gate, mixed, steps = self.inputs(hidden).split((sizes.inner_size, sizes.channels, sizes.num_heads), dim=-1)
        scanned = states.joined([self._scanned(mixed, steps, chunks, states) for chunks in states.chunks()])
        out: Tensor = self.out(self.norm.gated(scanned, gate))
        return out

    def _scanned(self, mixed: Tensor, steps: Tensor, chunks: Chunks, states: LayerStates) -> Tensor:
        """Return the scan's outputs of the chunks, [n, t, inner_size]."""
        sizes = self.sizes
        bc_size = sizes.num_groups * sizes.state_size
        filtered = silu(self.conv(mixed, chunks, states)).float()
        inputs, keys, queries = torch.split(filtered, [sizes.inner_size, bc_size, bc_size], dim=-1)
        inputs = torch.unflatten(inputs, -1, (sizes.num_heads, sizes.head_dim))
        keys, queries = (self._of_each_head(shared) for shared in (keys, queries))
        step = softplus(chunks.gathered(steps) + self.dt_bias).float()
        log_decays = -self.A_log.float().exp() * step
        state = states.read("matrices", chunks)
        out, state = mamba2_scan(inputs * step.unsqueeze(-1), log_decays, keys, queries, state)
        states.write("matrices", chunks, state)
        return (out + inputs * self.D.float().unsqueeze(-1)).flatten(-2)

    def _of_each_head(self, shared: Tensor) -> Tensor:
        """Repeat B or C, [n, t, groups * state_size], for each group's heads: [n, t, heads, state_size]."""
        groups = torch.unflatten(shared, -1, (self.sizes.num_groups, -1))
        return groups.repeat_interleave(self.sizes.num_heads // self.sizes.num_groups, dim=2)


class NormThenGate(RMSNorm):
    """RMSNorm of each head, times silu(gate) (gated delta nets)."""

    def gated(self, hidden: Tensor, gate: Tensor) -> Tensor:
        """Normalize [..., size] and gate, in float32; the result has the gate's dtype."""
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return ((self.weight * wide.to(gate.dtype)) * silu(gate.float())).to(gate.dtype)


class DeltaNet(nn.Module):
    """A gated delta net in Qwen3.5's form: queries, keys and values, gates, rates and step sizes from one matrix."""

    def __init__(self, hidden_size: int, sizes: DeltaNetSizes, eps: float) -> None:
        super().__init__()
        self.sizes = sizes
        values_size = sizes.num_value_heads * sizes.value_dim
        self.build_inputs(hidden_size, values_size)
        self.conv = ChannelFilters(sizes.channels, sizes.kernel)
        self.A_log = nn.Parameter(torch.empty(sizes.num_value_heads))
        self.dt_bias = nn.Parameter(torch.empty(sizes.num_value_heads))
        self.norm = NormThenGate(sizes.value_dim, eps)
        self.out = Linear(values_size, hidden_size)

    def forward(self, hidden: Tensor, states: LayerStates) -> Tensor:
        """Map [num_tokens, hidden_size] to the same shape, and advance the requests' states."""
        sizes = self.sizes
        qkv, gates, rates, steps = self.inputs_of(hidden)
        scanned = states.joined([self._scanned(qkv, rates, steps, chunks, states) for chunks in states.chunks()])
        heads = torch.unflatten(scanned, -1, (sizes.num_value_heads, sizes.value_dim))
        normed = self.norm.gated(heads, gates.reshape(heads.shape))
        out: Tensor = self.out(normed.flatten(1))
        return out

    def build_inputs(self, hidden_size: int, values_size: int) -> None:
        """Make the matrices that `inputs_of` applies. values_size: numbers of all value heads."""
        heads = self.sizes.num_value_heads
        self.inputs = Linear(hidden_size, self.sizes.channels, values_size, heads, heads)

    def inputs_of(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """Return the convolution's inputs, the gates (z), rates (b) and step sizes (a): [num_tokens, size] each."""
        parts: tuple[Tensor, ...] = self.inputs(hidden).split(self.inputs.out_sizes, dim=-1)
        return parts

    def _scanned(self, qkv: Tensor, rates: Tensor, steps: Tensor, chunks: Chunks, states: LayerStates) -> Tensor:
        """Return the scan's outputs of the chunks, [n, t, heads * value_dim]."""
        sizes = self.sizes
        key_size = sizes.num_key_heads * sizes.key_dim
        filtered = silu(self.conv(qkv, chunks, states)).float()
        queries, keys, values = torch.split(filtered, [key_size, key_size, filtered.shape[-1] - 2 * key_size], dim=-1)
        queries, keys = (self._of_each_value_head(heads) for heads in (queries, keys))
        rate = chunks.gathered(rates).sigmoid().float()
        log_decays = -self.A_log.float().exp() * softplus(chunks.gathered(steps).float() + self.dt_bias)
        out, state = delta_scan(
            queries * sizes.key_dim**-0.5,
            keys,
            torch.unflatten(values, -1, (sizes.num_value_heads, sizes.value_dim)),
            log_decays,
            rate,
            states.read("matrices", chunks),
        )
        states.write("matrices", chunks, state)
        return out.flatten(-2)

    def _of_each_value_head(self, heads: Tensor) -> Tensor:
        """Bring queries or keys to length 1, and repeat each for its value heads: [n, t, value heads, key_dim]."""
        heads = torch.unflatten(heads, -1, (self.sizes.num_key_heads, self.sizes.key_dim))
        return unit_length(heads).repeat_interleave(self.sizes.values_per_key, dim=2)


class DeltaNetByKeyHead(DeltaNet):
    """The gated delta net of Qwen3-Next. Its matrices' rows are in order of the key heads:

    qkvz  per key head: query, key, the values of its value heads, the gates of its value heads
    ba    per key head: rates (b), then step sizes (a) of its value heads
    """

    def build_inputs(self, hidden_size: int, values_size: int) -> None:
        """Make the two matrices."""
        self.qkvz = Linear(hidden_size, self.sizes.channels + values_size)
        self.ba = Linear(hidden_size, 2 * self.sizes.num_value_heads)

    def inputs_of(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """Return the same inputs, in DeltaNet's order."""
        sizes = self.sizes
        values_size = sizes.values_per_key * sizes.value_dim
        by_key = self.qkvz(hidden).unflatten(-1, (sizes.num_key_heads, -1))
        *mixed, gates = by_key.split((sizes.key_dim, sizes.key_dim, values_size, values_size), dim=-1)
        rates, steps = self.ba(hidden).unflatten(-1, (sizes.num_key_heads, -1)).chunk(2, dim=-1)
        qkv = torch.cat([part.flatten(1) for part in mixed], dim=-1)
        return qkv, gates.flatten(1), rates.flatten(1), steps.flatten(1)


def unit_length(heads: Tensor) -> Tensor:
    """Divide vectors by their lengths, with 1e-6 under the root as in the models' training."""
    return heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + 1e-6)
