"""Where Triton's cases run: interpreted on the CPU when TRITON_INTERPRET=1, else on the GPU."""

from __future__ import annotations

import torch

from labengine.engine.attention.triton import is_interpreted

DEVICE = torch.device("cpu" if is_interpreted() else "cuda")
