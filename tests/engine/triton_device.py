"""Where Triton's cases run: on the CPU when TRITON_INTERPRET=1, else where the driver's tensors are: on the GPU."""

from __future__ import annotations

import torch
from triton.runtime.driver import driver

from labengine.engine.attention.triton import is_interpreted

DEVICE = torch.device("cpu" if is_interpreted() else driver.active.get_active_torch_device().type)
