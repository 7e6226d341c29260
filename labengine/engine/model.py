"""The model: token ids of a step in, logits of the sampling rows out, KV through block tables in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from labengine.engine.attention import StepAttention
from labengine.engine.families.table import FAMILIES
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.layer_plan import StateSpec
from labengine.engine.layers import Attention, LayerStep, QKNormAttention, StateLayer, StateLayerStep, multiplied
from labengine.engine.model_config import ModelConfig
from labengine.engine.modules import Linear, TiedLinear
from labengine.engine.ops import Ops, OpsSetting
from labengine.engine.ops.torch_ops import TorchOps
from labengine.engine.rope import Rotations
from labengine.engine.states import LayerStates, StepStates
from labengine.engine.step_tensors import StepTensors

TORCH_OPS = TorchOps()


class PagedModel(nn.Module):
    """A decoder-only model whose KV and states live in blocks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.family = family = FAMILIES[config.model_type]
        self.embedding = family.embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            (StateLayer if isinstance(spec, StateSpec) else family.layer)(config, family, family.mlp(config, index))
            for index, spec in enumerate(config.layers)
        )
        self.norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.lm_head: Linear
        if config.tie_word_embeddings:
            self.lm_head = TiedLinear(self.embedding)
        else:
            self.lm_head = Linear(config.hidden_size, config.vocab_size)

    def first_layers(self, num_layers: int) -> PagedModel:
        """Return a model of the same modules with the first layers alone, under the same norm and head."""
        other = PagedModel.__new__(PagedModel)
        nn.Module.__init__(other)
        other.config = replace(self.config, layers=self.config.layers[:num_layers])
        other.family = self.family
        other.embedding, other.norm, other.lm_head = self.embedding, self.norm, self.lm_head
        other.layers = nn.ModuleList(list(self.layers)[:num_layers])
        return other

    @property
    def ops_setting(self) -> OpsSetting:
        """The requirements of the layers, where the weights are."""
        config, family, weight = self.config, self.family, self.norm.weight
        return OpsSetting(
            device=weight.device,
            dtype=weight.dtype,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            norm=family.norm,
            has_head_norms=issubclass(family.attention, QKNormAttention),
            activation=family.activation,
            rotates_whole_heads=family.attention.rotated in (Attention.rotated, QKNormAttention.rotated)
            and all(rope.share == 1.0 for rope in config.ropes),
        )

    def forward(
        self,
        step: StepTensors,
        kv: KVTensors,
        attention: Sequence[StepAttention | StepStates],
        rotations: Rotations,
        ops: Ops = TORCH_OPS,
        out: Tensor | None = None,
    ) -> Tensor:
        """Return logits float32 [num_sampling, vocab_size], in batch order; write KV and states to the step's slots and
        blocks, and nowhere else.

        attention: one per KV-cache group; of a state group the step's states. rotations: one per rope of the
        model, at the step's positions. ops: computes everything but attention and recurrences; it must have adopted the
        model. out: memory for the logits, else they are allocated.
        """
        stream = multiplied(self.embedding(step.token_ids), self.config.multipliers.embedding)
        part: Tensor | None = None
        for index, (layer, spec) in enumerate(zip(self.layers, self.config.layers, strict=True)):
            of_group = attention[kv.layer_groups[index]]
            layer_step: LayerStep | StateLayerStep
            if isinstance(spec, StateSpec):
                assert isinstance(of_group, StepStates), "a state group's layers have states"
                layer_step = StateLayerStep(LayerStates(of_group, kv.states(index)), ops)
            else:
                assert isinstance(of_group, StepAttention), "an attention group's layers attend"
                layer_step = LayerStep(rotations[spec.rope], kv.layer(index), of_group, ops)
            stream, part = layer(stream, part, layer_step)
        rows = step.sample_rows
        assert part is not None, "a model has layers"
        normed, _ = ops.add_norm(stream[rows], part[rows], self.norm)
        return self.logits(normed, out)

    def logits(self, normed: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the logits of normed rows, float32, in `out` if that is given."""
        logits = self.lm_head(normed)
        if self.config.multipliers.logits != 1.0:
            logits = logits / self.config.multipliers.logits
        return logits.float() if out is None else out.copy_(logits)
