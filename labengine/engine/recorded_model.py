"""A replacement for another model: its requests sample recorded tokens, so no weights are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from labengine.config import EngineConfig
from labengine.core.step_plan import StepPlan
from labengine.engine.loaded_model import LoadedModel, ModelOptions, SimulatedModel, Tokenizer
from labengine.engine.simulated import SimulatedRunner


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """The tokens of a request, the first `num_prompt_tokens` of them its prompt."""

    token_ids: Sequence[int]
    num_prompt_tokens: int

    def token(self, position: int) -> int:
        """Return the token at a position; after the last recorded token, the answer repeats."""
        if position < len(self.token_ids):
            return self.token_ids[position]
        answer = self.token_ids[self.num_prompt_tokens :] or self.token_ids[-1:]
        return answer[(position - self.num_prompt_tokens) % len(answer)]


class RecordedRunner(SimulatedRunner):
    """Computes nothing, and samples recorded tokens. recorded: returns the recorded request for an id."""

    def __init__(self, recorded: Callable[[int], RecordedRequest]) -> None:
        super().__init__()
        self._recorded = recorded

    def sample(self, plan: StepPlan, logits: None) -> list[int]:
        """Return one token per row."""
        return [self._recorded(request.request_id).token(request.end) for request in plan.rows]


class RecordedModel(SimulatedModel):
    """A simulated model with another model's vocabulary, groups, eos tokens and recorded tokens."""

    def __init__(self, model: LoadedModel, config: EngineConfig, recorded: Callable[[int], RecordedRequest]) -> None:
        """config: pool and limits; its first group's block size holds for all the model's groups."""
        size = config.groups[0].block_size
        groups = tuple(replace(group, block_size=size) for group in model.config.groups)
        super().__init__(replace(config, groups=groups, eos_token_ids=model.config.eos_token_ids), model.max_model_len)
        self._of, self._recorded = model, recorded
        self.name, self.runner = f"{model.name}, recorded", RecordedRunner(recorded)

    @property
    def tokenizer(self) -> Tokenizer:
        """The other model's tokenizer."""
        return self._of.tokenizer

    def sibling(self, config: EngineConfig, options: ModelOptions) -> RecordedModel:
        """Return a model with the same recorded tokens."""
        return RecordedModel(self._of, config, self._recorded)

    def describe(self) -> dict[str, str]:
        """Return one line."""
        return {"model": f"{self._of.name}, replayed from recorded tokens: no weights, the real scheduler and core"}
