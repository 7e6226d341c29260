"""A runner whose decodes are replayed over static tensors on a CPU, like CUDA graphs on a GPU."""

from __future__ import annotations

import torch

from labengine.engine.attention.torch_static import StaticTorch
from labengine.engine.forward.graphs import Recorder, RunAgain
from labengine.engine.model_runner import ModelRunner


class StaticRunner(ModelRunner):
    """A ModelRunner that shows a GPU's padded rows, table width and stale columns on a machine without a GPU.

    Decodes run in the rows of `static_step`, in the sizes of CUDA graphs; other steps run module by module.
    """

    attention = StaticTorch

    @classmethod
    def recorder(cls, device: torch.device) -> Recorder | None:
        """Return a recorder that repeats the computation on a CPU; None on a GPU, where CUDA graphs record."""
        return None if device.type == "cuda" else RunAgain()
