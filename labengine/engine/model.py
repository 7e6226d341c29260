"""The model: token ids of a whole step in, logits of the rows that sample out, KV through block tables in between."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.functional import linear

from labengine.engine.attention import StepAttention
from labengine.engine.families import FAMILIES
from labengine.engine.kv_tensors import KVTensors
from labengine.engine.layers import LayerStep, Linear
from labengine.engine.model_config import ModelConfig
from labengine.engine.rope import Rotations
from labengine.engine.step_tensors import StepTensors


class PagedModel(nn.Module):
    """A decoder-only transformer whose KV lives in blocks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        family = FAMILIES[config.model_type]
        self.config = config
        self.embedding = family.embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(family.layer(config, family) for _ in config.layers)
        self.norm = family.norm(config.hidden_size, config.rms_norm_eps)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size)

    def forward(
        self, step: StepTensors, kv: KVTensors, attention: Sequence[StepAttention], rotations: Rotations
    ) -> Tensor:
        """Logits float32 [num_sampling, vocab_size], in batch order; writes KV to the step's slots and nowhere else.

        attention: one per KV-cache group. rotations: one per rope of the model, at the step's positions.
        """
        hidden: Tensor = self.embedding(step.token_ids)
        for index, (layer, spec) in enumerate(zip(self.layers, self.config.layers, strict=True)):
            hidden = layer(hidden, LayerStep(rotations[spec.rope], kv.layer(index), attention[kv.layer_groups[index]]))
        return self.logits(hidden[step.sample_rows])

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden_size] to float32 [rows, vocab_size]."""
        head = self.embedding.weight if self.config.tie_word_embeddings else self.lm_head.weight
        return linear(self.norm(hidden), head).float()
