"""Layers for which ops are chosen: a model's, of small sizes."""

from __future__ import annotations

import torch
from torch.nn.functional import silu

from labengine.engine.modules import RMSNorm
from labengine.engine.ops import OpsSetting

SMALL = OpsSetting(
    device=torch.device("cpu"),
    dtype=torch.float32,
    hidden_size=48,
    intermediate_size=80,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    norm=RMSNorm,
    has_head_norms=False,
    activation=silu,
)
