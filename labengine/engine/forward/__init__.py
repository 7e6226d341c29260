"""Ways to compute a step: module by module (eager), as a recorded graph on a GPU, or as a native program on a CPU."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from labengine.engine.step_tensors import StepTensors


class Forward(Protocol):
    """One way to run the model over a step."""

    def __call__(self, step: StepTensors) -> Tensor:
        """Compute a step; return logits float32 [num_sampling, vocab_size], which the next call overwrites.

        KV goes to the step's slots.
        """
        ...

    def argmax(self, logits: Tensor) -> Tensor | None:
        """Return each row's argmax token, and whether the row is finite: read-only int [2, rows].

        None if the forward pass does not compute it, or if these are not the last call's logits, unchanged.
        """
        ...

    def describe(self) -> dict[str, str]:
        """Return descriptions for Lab.status(): the backends and the reasons for them."""
        ...

    def release(self) -> None:
        """Release the memory, except for weights and KV. Do not call the object afterwards."""
        ...
