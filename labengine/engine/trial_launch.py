"""A trial launch of compiled kernels, to find missing requirements before a user's first step.

Triton compiles its launcher with a C compiler and Python.h, its kernels with ptxas, and compares their shared memory
with the GPU's when it loads them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch


def launch_refusal(device: torch.device, launch: Callable[[], object]) -> str | None:
    """Return why `launch` fails on the device, as half a sentence; None if it succeeds.

    Raises torch.OutOfMemoryError, because a full GPU does not show whether the kernels work.
    """
    is_gpu = device.type == "cuda"
    try:
        with torch.cuda.device(device) if is_gpu else nullcontext(), torch.inference_mode():
            launch()
            if is_gpu:
                torch.cuda.synchronize(device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # from a compiler, a linker or a driver, of any type
        return f"a trial launch failed ({type(error).__name__}: {_first_line(error)})"
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]
