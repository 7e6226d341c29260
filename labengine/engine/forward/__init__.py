"""How a step is computed: module by module (eager), as a recorded graph on a GPU, or as one native program on a CPU."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from labengine.engine.step_tensors import StepTensors


class Forward(Protocol):
    """One way to run the model over a step."""

    def __call__(self, step: StepTensors) -> Tensor:
        """Return logits float32 [num_sampling, vocab_size], overwritten by the next call.

        KV goes to the step's slots.
        """
        ...

    def best(self, logits: Tensor) -> Tensor | None:
        """Return the token of each row's highest logit, and whether the row is finite: int [2, rows], not to be
        changed.

        None where that was not computed along, or these are not the last call's logits, untouched.
        """
        ...

    def describe(self) -> dict[str, str]:
        """What computes, and why: readable lines for Lab.status()."""
        ...

    def release(self, *, keeps_weights: bool = False) -> None:
        """Let its memory go; it cannot run after that. keeps_weights: others compute with them."""
        ...
