"""How the rows of a batch are sampled, apart from positions and logits: the same while the same requests decode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from labengine.config import SamplingParams
from labengine.core.step_plan import ScheduledRequest
from labengine.engine import triton_sampler
from labengine.engine.random_numbers import mixed_seeds, uniforms


def cuts(sampling: SamplingParams, vocab_size: int) -> bool:
    """Return True if top-k or top-p leaves tokens out."""
    return sampling.kept(vocab_size) != (vocab_size, 1.0)


class BatchSampling:
    """The rows of a batch by how they are sampled; greedy rows are in no list.

    uncut: rows with a temperature. cut: those that top-k or top-p cut besides; few: those of them that the kernels cut,
    and many: those with a larger top-k than the kernels have room for.
    """

    def __init__(self, requests: Sequence[ScheduledRequest], vocab_size: int) -> None:
        self._settings = settings = [request.sampling for request in requests]
        self._seeds = [request.seed for request in requests]
        hot = [row for row, sampling in enumerate(settings) if not sampling.is_greedy]
        self.cut = [row for row in hot if cuts(settings[row], vocab_size)]
        self.uncut = [row for row in hot if not cuts(settings[row], vocab_size)]
        kept = [sampling.kept(vocab_size) for sampling in settings]
        top_k, top_p = [number for number, _ in kept], [share for _, share in kept]
        self.few = [row for row in self.cut if top_k[row] <= triton_sampler.ROOM or top_k[row] == vocab_size]
        self.many = [row for row in self.cut if triton_sampler.ROOM < top_k[row] < vocab_size]
        self.has_top_p_alone = any(top_k[row] == vocab_size for row in self.cut)
        """True if a row with top-p has no top-k."""
        self.has_top_p = any(top_p[row] < 1.0 for row in self.cut)
        self._drawn = [*self.uncut, *self.few]
        self._numbers = np.zeros((4, len(settings)))
        self._numbers[0, self._drawn] = triton_sampler.roots([settings[row].temperature for row in self._drawn])
        self._numbers[2, self.few] = [top_k[row] for row in self.few]
        self._numbers[3, self.few] = [top_p[row] for row in self.few]
        self._mixed_seeds = mixed_seeds([self._seeds[row] for row in self._drawn])

    def serves(self, requests: Sequence[ScheduledRequest]) -> bool:
        """Return True if this is how these requests are sampled."""
        settings = [request.sampling for request in requests]
        return settings == self._settings and [request.seed for request in requests] == self._seeds

    def draws(self, requests: Sequence[ScheduledRequest]) -> NDArray[np.float64] | None:
        """Return what triton_sampler.sample draws rows by: float64 [4, requests], 0 for others; None for no rows.

        Roots of temperatures, uniform numbers, top-k and top-p.
        """
        if not self._drawn:
            return None
        self._numbers[1, self._drawn] = uniforms(self._mixed_seeds, [requests[row].end for row in self._drawn])
        return self._numbers
