"""Sizes of mixtures of experts: each token passes through a few of many MLPs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MixtureSizes:
    """The mixtures of a model: the layers that have one, and its sizes."""

    layers: frozenset[int]
    """The layers with a mixture; the others have a dense MLP."""
    num_experts: int
    num_chosen: int
    """Number of experts that compute a token."""
    expert_size: int
    """Inner size of an expert."""
    shared_size: int | None = None
    """Inner size of the shared MLP, which computes every token as well; None without one."""
    has_shared_gate: bool = False
    """True if the shared MLP's output is multiplied by the sigmoid of a gate."""
    is_normalized: bool = True
    """True if the weights of a token's experts add up to 1, before `scale`."""
    scale: float = 1.0
    """Factor of the weights."""
    has_bias: bool = False
    """True if a bias per expert takes part in the choice, but not in the weights."""
