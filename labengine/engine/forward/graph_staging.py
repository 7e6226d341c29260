"""Staging for graphs on a GPU: a decode stays on the host, because its graph's static step copies it to the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from labengine.config import GroupSpec
from labengine.core.step_plan import StepPlan
from labengine.engine.step_tensors import NewTokens, StepStaging, StepTensors


class GraphStaging:
    """A staging on the host for the steps that graphs take, and one on the device for all others."""

    def __init__(self, groups: Sequence[GroupSpec], device: torch.device, takes: Callable[[StepTensors], bool]) -> None:
        """takes: see GraphedForward.takes."""
        self._on_host = StepStaging(groups, torch.device("cpu"))
        self._on_device = StepStaging(groups, device)
        self._takes = takes

    def step_tensors(self, plan: StepPlan, new: NewTokens | None = None) -> StepTensors:
        """Expand a plan; see StepStaging. A decode that does not fit into the graphs is staged twice: few do not.

        Late tokens of a step on the host are written by its static step.
        """
        if all(request.num_tokens == 1 for request in plan.scheduled):
            step = self._on_host.expanded(plan, new)
            if self._takes(step):
                return step
        return self._on_device.step_tensors(plan, new)
