"""SGLang pull request 32477: padded rows write to a reserved page, and NaN returns from it through a mask.

Page 0 belongs to no request. Padded rows of a recorded decode write to it, and unused columns of page tables point to
it. A tile that is only partly valid loads that page and masks the scores: a weight of 0. But 0 * NaN is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.lab import Lab
from labengine.scenarios.scenario import Column, Table, symptom
from labengine.scenarios.tiny_model import TinyModelScenario


class ReservedPage(TinyModelScenario):
    """Edition vllm: block 0 is its null block, which no request gets, like SGLang's page 0."""

    columns = (
        Column("vllm", runner="WritesPadding"),
        Column("vllm", runner="SkipsPadding"),
        Column("vllm", runner="StaticRunner"),
    )

    def play(self, lab: Lab) -> None:
        """Compute three prompts, and decode."""
        for first in (10, 30, 50):
            lab.add(token_ids=range(first, first + 6), max_tokens=6, ignore_eos=True)
        lab.run()

    def symptom(self) -> str:
        """Return the error of labengine's sampler on the broken column's logits."""
        column = Column("vllm", runner="RefusesNaN", name="refuses")
        with column.lab(self.model_for("simulated"), self.settings) as lab:
            return symptom(lambda: self.play(lab))

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        return {"error": self.symptom()}
