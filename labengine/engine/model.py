"""The model: token ids of a step in, logits of the sampling rows out, KV through block tables in between."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from labengine.engine.attention import StepAttention
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.layers import FAMILIES, LayerStep
from labengine.engine.model_config import ModelConfig
from labengine.engine.modules import Linear, TiedLinear
from labengine.engine.ops import Ops
from labengine.engine.ops.torch_ops import TorchOps
from labengine.engine.rope import Rotations
from labengine.engine.step_tensors import StepTensors

TORCH_OPS = TorchOps()


class PagedModel(nn.Module):
    """A decoder-only transformer whose KV lives in blocks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        family = FAMILIES[config.model_type]
        self.config = config
        self.embedding = family.embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(family.layer(config, family) for _ in config.layers)
        self.norm = family.norm(config.hidden_size, config.rms_norm_eps)
        self.lm_head: Linear
        if config.tie_word_embeddings:
            self.lm_head = TiedLinear(self.embedding)
        else:
            self.lm_head = Linear(config.hidden_size, config.vocab_size)

    def forward(
        self,
        step: StepTensors,
        kv: KVTensors,
        attention: Sequence[StepAttention],
        rotations: Rotations,
        ops: Ops = TORCH_OPS,
    ) -> Tensor:
        """Return logits float32 [num_sampling, vocab_size], in batch order; write KV to the step's slots and nowhere
        else.

        attention: one per KV-cache group. rotations: one per rope of the model, at the step's positions. ops: computes
        everything but attention; it must have adopted the model.
        """
        stream: Tensor = self.embedding(step.token_ids)
        part: Tensor | None = None
        for index, (layer, spec) in enumerate(zip(self.layers, self.config.layers, strict=True)):
            group_attention = attention[kv.layer_groups[index]]
            layer_step = LayerStep(rotations[spec.rope], kv.layer(index), group_attention, ops)
            stream, part = layer(stream, part, layer_step)
        rows = step.sample_rows
        assert part is not None, "a model has layers"
        normed, _ = ops.add_norm(stream[rows], part[rows], self.norm)
        logits: Tensor = self.lm_head(normed)
        return logits.float()
