"""Modules that hold weights: embeddings, matrices, norms. Parameters are created empty and filled from a file.

A matrix is either a parameter, or packed in an order that only the native kernels read. Then the parameter keeps only
shape and dtype, on the meta device. `to` drops the packed weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

Product = Callable[[Tensor, Tensor], Tensor]
"""Maps [rows, in_size] and a weight [out_size, in_size] to [rows, out_size]."""


class Matrix(nn.Module):
    """A weight [n, k]."""

    weight: nn.Parameter
    is_gated = False
    """True if the upper rows are a gate that multiplies the lower ones."""
    packed: Tensor | None = None
    """The weight in the native kernels' order; see native/library.py."""

    def keep_packed(self, packed: Tensor, dtype: torch.dtype) -> None:
        """Keep the packed weight, and only shape and dtype of the original."""
        self.packed = packed
        self.weight = shape_only(self.weight, dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move the module, without its packed weight."""
        self.packed = None
        return nn.Module._apply(self, fn, recurse)


def shape_only(weight: Tensor, dtype: torch.dtype) -> nn.Parameter:
    """Return a parameter of that shape without memory."""
    return nn.Parameter(torch.empty(weight.shape, dtype=dtype, device="meta"), requires_grad=False)


def can_compute(module: nn.Module) -> bool:
    """Return True if the module has its weight: as a parameter, or in its product's layout."""
    if isinstance(module, Linear) and module.product is not linear:
        return True
    weights = [module.weight] if isinstance(module, Linear) else module.parameters(recurse=False)
    return not any(weight.is_meta for weight in weights)


class Embedding(Matrix):
    """A learned vector per token id."""

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, hidden_size))

    def forward(self, token_ids: Tensor) -> Tensor:
        """Map int [num_tokens] to [num_tokens, hidden_size]."""
        return embedding(token_ids, self.weight)


class ScaledEmbedding(Embedding):
    """An embedding multiplied by the square root of its size, that root rounded to the weights' dtype (Gemma)."""

    def forward(self, token_ids: Tensor) -> Tensor:
        """Map int [num_tokens] to [num_tokens, hidden_size]."""
        scale = torch.tensor(self.weight.shape[1] ** 0.5, dtype=self.weight.dtype).item()
        return super().forward(token_ids) * scale


class Linear(Matrix):
    """A matrix without bias, or several of one input stacked: out_sizes are the rows of each, top to bottom."""

    def __init__(self, in_size: int, *out_sizes: int, is_gated: bool = False) -> None:
        super().__init__()
        self.out_sizes = out_sizes
        self.is_gated = is_gated
        self.weight = nn.Parameter(torch.empty(sum(out_sizes), in_size))
        self.product: Product = linear

    def forward(self, hidden: Tensor) -> Tensor:
        """Map [rows, in_size] to [rows, out_size]."""
        return self.product(hidden, self.weight)

    def multiply_by(self, product: Product) -> None:
        """Compute with `product` from now on. It has its own layout of the weight, so only the shape is kept here."""
        self.product = product
        self.weight = shape_only(self.weight, self.weight.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move the module, which then computes with its own weight again, and drop the product's copy."""
        self.product = linear
        return super()._apply(fn, recurse)


class Stack(nn.Module):
    """The matrices of a layer's experts, of one shape and without biases: [num_matrices, sum of out_sizes, in_size]."""

    def __init__(self, num_matrices: int, in_size: int, *out_sizes: int) -> None:
        super().__init__()
        self.num_matrices, self.out_sizes = num_matrices, out_sizes
        self.weight = nn.Parameter(torch.empty(num_matrices, sum(out_sizes), in_size))


class TiedLinear(Linear):
    """Multiplies by the weight of an embedding, which still owns it."""

    def __init__(self, embedding: Embedding) -> None:
        nn.Module.__init__(self)
        self._embedding = (embedding,)  # in a tuple, so that torch does not register it as a submodule
        self.product = linear

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The embedding's weight."""
        return self._embedding[0].weight

    def multiply_by(self, product: Product) -> None:
        """Compute with `product` from now on; the embedding keeps its weight."""
        self.product = product


class RMSNorm(nn.Module):
    """Scale the last dimension to a root mean square of 1, in float32, then by a learned weight."""

    offset: ClassVar[bool] = False
    """True if the weight is an offset from 1."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalize [..., size]; shape and dtype stay."""
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(hidden.dtype)


class OffsetRMSNorm(RMSNorm):
    """RMSNorm that multiplies by 1 + weight, and rounds to the input's dtype only after that (Gemma)."""

    offset = True

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalize [..., size]; shape and dtype stay."""
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight.float())).to(hidden.dtype)
