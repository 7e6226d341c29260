"""Mixtral: Mistral with mixtures of experts."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from labengine.engine.families import llama
from labengine.engine.layers import LLAMA_NAMES, Family
from labengine.engine.mixture_sizes import MixtureSizes
from labengine.engine.model_files.config_fields import EXPERTS_NAMES, Eps, MixtureFields, WindowFields


class MixtralFields(MixtureFields, WindowFields):
    """Mixtral: a mixture in each layer, without a shared MLP."""

    default_theta: ClassVar = 1e6
    rms_norm_eps: Eps = 1e-5
    num_experts: Annotated[int, Field(ge=1, le=2**14)] = Field(8, validation_alias=EXPERTS_NAMES)

    @property
    def mixture(self) -> MixtureSizes:
        """The mixture of all layers."""
        layers = frozenset(range(self.num_hidden_layers))
        return MixtureSizes(layers, self.num_experts, self.num_experts_per_tok, self.intermediate_size)


NAMES = {
    **LLAMA_NAMES,
    "mlp.router": ("block_sparse_moe.gate",),
    "mlp.experts.gate_up": ("block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"),
    "mlp.experts.down": ("block_sparse_moe.experts.{}.w2",),
}

FAMILIES = {"mixtral": Family(MixtralFields, llama.ONLY, names=NAMES)}
