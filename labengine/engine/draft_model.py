"""A draft model: a second, cheaper model guesses the next tokens, greedily.

It is a small, separate engine with its own KV pool. For each text it looks up earlier work in its prefix cache, and
computes the rest in one forward pass and each further guess in another. So it costs memory for its weights and its
pool, and num_drafts passes of the small model per request and step. The tokens after a text's last full block are
computed again each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import ClassVar

from labengine.config import ConfigError, Drafter, SamplingParams, checked_int
from labengine.core.editions import LABENGINE
from labengine.core.proposer import FixedDrafts, NGram, Proposer
from labengine.core.request import RequestStatus
from labengine.engine.engine import Engine
from labengine.engine.loaded_model import LoadedModel, ModelOptions, RealModel, load_model
from labengine.record.hooks import Hooks


@dataclass(frozen=True)
class DraftModel:
    """Guesses with another model, or with the first layers of the lab's model (real models only).

    model: a name or directory, as for Lab, with the same vocabulary as the lab's model; None for the lab's model, whose
    weights are shared. num_layers: use the first layers alone, with the model's norm and head; None for all.
    num_blocks: size of its pool; None for as many as the lab has.
    """

    num_drafts: int = 3
    model: str | None = None
    num_layers: int | None = None
    num_blocks: int | None = None
    drafter: ClassVar[Drafter] = "draft_model"

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_drafts", checked_int("num_drafts", self.num_drafts, 1))
        if isinstance(self.model, PathLike):
            object.__setattr__(self, "model", fspath(self.model))
        for name in ("num_layers", "num_blocks"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checked_int(name, getattr(self, name), 1))
        if self.model is None and self.num_layers is None:
            raise ConfigError("DraftModel needs a model, or num_layers to use the first layers of the lab's model")

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Raise RuntimeError: a draft model guesses only inside a lab."""
        raise RuntimeError("a DraftModel works only inside a lab: use Lab(model, speculation=DraftModel(...))")

    def bound_to(self, model: LoadedModel, options: ModelOptions) -> RunningDraftModel:
        """Load the model for a lab. Raises ConfigError if it does not fit the lab's model."""
        if not isinstance(model, RealModel):
            raise ConfigError(f"speculation: a draft model needs a lab with a real model; {model.name} has no weights")
        num_blocks = self.num_blocks or model.config.num_blocks
        config = replace(model.config, num_blocks=num_blocks, num_drafts=0, keep_finished=1, watermark=0.0)
        config = replace(config, groups=config.groups[:1], max_num_seqs=1, long_prefill_token_threshold=0)
        options = replace(options, num_blocks=num_blocks, attention=None, runner=None)
        if self.model is None:
            draft = model
        else:
            loaded = load_model(self.model, config, options)
            if not isinstance(loaded, RealModel):
                raise ConfigError(f"speculation: {self.model} has no weights to guess with")
            draft = loaded
        if draft.runner.vocab_size != model.runner.vocab_size:
            raise ConfigError(
                f"speculation: {draft.name} has {draft.runner.vocab_size} tokens, and {model.name} "
                f"{model.runner.vocab_size}: their token ids would have different meanings"
            )
        if self.num_layers is not None:
            draft = draft.first_layers(self.num_layers, config, options)
        return RunningDraftModel(self.num_drafts, draft)


class RunningDraftModel:
    """A draft model with its engine."""

    drafter: ClassVar[Drafter] = "draft_model"

    def __init__(self, num_drafts: int, model: RealModel) -> None:
        self.num_drafts = num_drafts
        self._model = model
        self._engine = Engine(model.config, model.runner, LABENGINE, Hooks())

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Return the model's greedy continuation; () if its pool cannot hold the text."""
        try:
            request_id = self._engine.add(token_ids, SamplingParams(max_tokens=num_tokens, ignore_eos=True))
        except ConfigError:
            return ()
        request = self._engine.requests[request_id]
        try:
            while request.status is not RequestStatus.FINISHED:
                self._engine.step()
        finally:
            if request.status is not RequestStatus.FINISHED:  # interrupted: the next text must not wait for it
                self._engine.abort(request_id)
        return tuple(request.token_ids[len(token_ids) :])

    def close(self) -> None:
        """Release its pool, and its weights unless the lab uses them."""
        self._model.release()


def bound(proposer: Proposer, model: LoadedModel, options: ModelOptions) -> Proposer:
    """Return a proposer ready for a lab, with its model loaded if it has one."""
    return proposer.bound_to(model, options) if isinstance(proposer, DraftModel) else proposer


PROPOSERS: dict[str, type] = {kind.__name__: kind for kind in (NGram, FixedDrafts, DraftModel)}
"""labengine's proposers, by name: a saved session describes them completely."""
