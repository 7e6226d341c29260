"""A runner whose decodes replay over static tensors on a CPU, as CUDA graphs do on a GPU."""

from __future__ import annotations

import torch

from labengine.engine.attention.torch_static import StaticTorch
from labengine.engine.forward.graphs import Recorder, RunAgain
from labengine.engine.model_runner import ModelRunner


class StaticRunner(ModelRunner):
    """A ModelRunner that shows a GPU's padded rows, table width and stale columns where there is no GPU.

    Decodes run through the rows of `static_step`, in the sizes of CUDA graphs; other steps run module by module.
    """

    attention = StaticTorch

    @classmethod
    def recorder(cls, device: torch.device) -> Recorder | None:
        """Return a recorder that runs again on a CPU; None on a GPU, where CUDA graphs record."""
        return None if device.type == "cuda" else RunAgain()
