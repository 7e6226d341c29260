"""The figures of one run of a traffic."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over a run. num_tokens: of the prompts; num_hit: of these, found in the cache at the first admission.

    num_computed: tokens that were computed, those of answers and of readmitted requests included. seconds: from the
    first arrival to the last token. ttft: times to the first token, wait: times to the admission; half of the
    requests do not exceed p50, and 95 % do not exceed p95. Times are None without a clock.
    """

    num_prompts: int = 0
    num_tokens: int = 0
    num_hit: int = 0
    num_computed: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    num_evicted_blocks: int = 0
    peak_blocks: int = 0
    seconds: float | None = None
    ttft_p50: float | None = None
    ttft_p95: float | None = None
    wait_p50: float | None = None
    wait_p95: float | None = None

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that were found in the cache."""
        return self.num_hit / self.num_tokens if self.num_tokens else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "hit_rate": self.hit_rate}
