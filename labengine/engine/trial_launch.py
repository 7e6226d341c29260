"""A trial launch of compiled kernels: what they need besides a GPU shows only then, and not in a user's first step.

Triton compiles its launcher with a C compiler and Python.h, its kernels with ptxas, and compares their shared memory
with the GPU's when it loads them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch


def launch_refusal(device: torch.device, launch: Callable[[], object]) -> str | None:
    """Return why `launch` fails on the device, as half a sentence; None when it does not.

    Raises torch.OutOfMemoryError: a full GPU says nothing about the kernels.
    """
    is_gpu = device.type == "cuda"
    try:
        with torch.cuda.device(device) if is_gpu else nullcontext(), torch.inference_mode():
            launch()
            if is_gpu:
                torch.cuda.synchronize(device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a compiler's, a linker's or a driver's, of any type
        return f"a trial launch failed ({type(error).__name__}: {_first_line(error)})"
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]
