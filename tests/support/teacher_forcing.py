"""Holding every logits row that an engine sampled from against one dense pass of transformers over the same tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from labengine.core.connector import BlockKV
from labengine.core.step_plan import StepPlan
from labengine.engine.engine import Engine
from labengine.engine.model_runner import ModelRunner

Rows = Callable[[list[int], list[int]], Mapping[int, torch.Tensor]]
"""(token ids, positions) to the logits after each of these positions."""


@dataclass
class Spy:
    """A runner that keeps every logits row, by request and by the position it decides."""

    runner: ModelRunner
    rows: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)

    def forward(self, plan: StepPlan) -> Any:
        return self.runner.forward(plan)

    def sample(self, plan: StepPlan, logits: torch.Tensor) -> list[int]:
        for request, row in zip(plan.sampling, logits, strict=True):
            self.rows[request.request_id, request.end] = row.clone()
        return self.runner.sample(plan, logits)

    def copy_block(self, group: int, block_id: int, into_block_id: int) -> None:
        self.runner.copy_block(group, block_id, into_block_id)

    def read_block(self, group: int, block_id: int) -> BlockKV | None:
        return self.runner.read_block(group, block_id)

    def write_block(self, group: int, block_id: int, kv: BlockKV | None) -> None:
        self.runner.write_block(group, block_id, kv)


def num_ties(engine: Engine, spy: Spy, reference: Rows, tolerance: float) -> int:
    """Hold every row against the reference; returns the number of ties in which the argmax differs.

    Logits lie within the tolerance; the argmax is equal unless the best two are closer than that.
    """
    ties = 0
    for request_id, request in engine.requests.items():
        positions = list(range(request.num_prompt_tokens - 1, request.num_tokens - 1))
        expected = reference(request.token_ids, positions)
        for position in positions:
            row, wanted = spy.rows[request_id, position + 1], expected[position]
            assert (row - wanted).abs().max() <= tolerance, (request_id, position)
            if row.argmax() != wanted.argmax():
                largest = wanted.topk(2).values
                assert largest[0] - largest[1] <= tolerance, (request_id, position)
                ties += 1
    return ties
