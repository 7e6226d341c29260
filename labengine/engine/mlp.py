"""The MLPs of a layer: a dense one, or a mixture of experts, where each token passes through a few."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.modules import Linear, Stack
from labengine.engine.ops import Activation, Ops


class MLP(nn.Module):
    """down(activation(gate(x)) * up(x)), with gate and up in one matrix."""

    def __init__(self, hidden_size: int, inner_size: int, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.gate_up = Linear(hidden_size, inner_size, inner_size, is_gated=True)
        self.down = Linear(inner_size, hidden_size)

    def forward(self, hidden: Tensor, ops: Ops) -> Tensor:
        """Map [num_tokens, hidden_size] to the same shape."""
        out: Tensor = self.down(ops.gated(self.gate_up(hidden), self.activation))
        return out


class Router(Linear):
    """Chooses the experts of each token by the softmax over all experts. All but the matrix is float32."""

    def __init__(self, hidden_size: int, sizes: MixtureSizes) -> None:
        super().__init__(hidden_size, sizes.num_experts)
        self.sizes = sizes

    def choose(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the experts of each of [num_tokens, hidden_size], int64 [num_tokens, num_chosen], and their weights.

        The weights are float32 of the same shape.
        """
        weights, experts = self(hidden).float().softmax(-1).topk(self.sizes.num_chosen)
        return experts, self.scaled(weights)

    def scaled(self, weights: Tensor, eps: float = 0.0) -> Tensor:
        """Normalize each token's weights to sum 1 if the model does so, and multiply by the model's factor."""
        if self.sizes.is_normalized:
            weights = weights / (weights.sum(-1, keepdim=True) + eps)
        return weights * self.sizes.scale


class SigmoidRouter(Router):
    """Weighs each expert by a sigmoid; a bias per expert may take part in the choice, but not in the weight (LFM2).

    The bias balances the experts' loads (Wang et al. 2024, arXiv 2408.15664).
    """

    kept_float32: ClassVar = ("expert_bias",)

    def __init__(self, hidden_size: int, sizes: MixtureSizes) -> None:
        super().__init__(hidden_size, sizes)
        self.expert_bias = nn.Parameter(torch.empty(sizes.num_experts)) if sizes.has_bias else None

    def choose(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return experts and weights; see Router."""
        weights = self(hidden).float().sigmoid()
        scores = weights if self.expert_bias is None else weights + self.expert_bias
        experts = scores.topk(self.sizes.num_chosen).indices
        return experts, self.scaled(weights.gather(-1, experts), eps=1e-6)


class Experts(nn.Module):
    """MLPs of one size, with their matrices stacked in one tensor."""

    def __init__(self, hidden_size: int, sizes: MixtureSizes, activation: Activation) -> None:
        super().__init__()
        self.activation = activation
        self.gate_up = Stack(sizes.num_experts, hidden_size, sizes.expert_size, sizes.expert_size)
        self.down = Stack(sizes.num_experts, sizes.expert_size, hidden_size)

    def forward(self, hidden: Tensor, experts: Tensor, weights: Tensor, ops: Ops) -> Tensor:
        """Return for each of [num_tokens, hidden_size] the weighted sum of its experts' outputs, of the same shape.

        experts, weights: as returned by Router.choose. Each expert computes its tokens at once; the host reads back
        which ones. Sums are float32, in the order of the experts, so a token's sum does not depend on other tokens.
        """
        chosen = experts.flatten()
        rows, counts = chosen.argsort(stable=True), chosen.bincount(minlength=self.gate_up.num_matrices).tolist()
        scales = weights.flatten().unsqueeze(-1)
        out = hidden.new_zeros(hidden.shape, dtype=torch.float32)
        first = 0
        for expert, count in enumerate(counts):
            if count:
                of_expert = rows[first : first + count]
                tokens = of_expert // experts.shape[-1]
                inner = ops.gated(linear(hidden[tokens], self.gate_up.weight[expert]), self.activation)
                out.index_add_(0, tokens, linear(inner, self.down.weight[expert]).float() * scales[of_expert])
                first += count
        return out.to(hidden.dtype)


class Mixture(nn.Module):
    """A router and its experts; in some models also a shared MLP for every token, and in some of these a gate on it."""

    def __init__(self, hidden_size: int, sizes: MixtureSizes, router: type[Router], activation: Activation) -> None:
        super().__init__()
        self.router = router(hidden_size, sizes)
        self.experts = Experts(hidden_size, sizes, activation)
        self.shared = None if sizes.shared_size is None else MLP(hidden_size, sizes.shared_size, activation)
        self.shared_gate = Linear(hidden_size, 1) if sizes.has_shared_gate else None

    def forward(self, hidden: Tensor, ops: Ops) -> Tensor:
        """Map [num_tokens, hidden_size] to the same shape."""
        out: Tensor = self.experts(hidden, *self.router.choose(hidden), ops)
        if self.shared is None:
            return out
        shared: Tensor = self.shared(hidden, ops)
        return out + (shared if self.shared_gate is None else self.shared_gate(hidden).sigmoid() * shared)
