"""A draft model: a second, cheaper model guesses the next tokens, greedily.

It is a small engine of its own, with a KV pool of its own beside the lab's. Asked for a text, it finds in its prefix
cache what it has computed before, computes the rest in one forward pass, and then a pass per further guess. So it costs
memory for its weights and its pool, and num_drafts passes of the small model per request and step; of each text it
computes the tokens behind the last full block again.
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
    """Guesses with another model, or with the first layers of the lab's own (real models only).

    model: as Lab takes it; its vocabulary has to be the lab's. None for the lab's own, whose weights it shares.
    num_layers: the first layers alone, under the model's own norm and head; None for all. num_blocks: of its pool; None
    for as many as the lab has.
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
            raise ConfigError("DraftModel: give a model, or num_layers of the lab's own")

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """Raise RuntimeError: it guesses once a lab has it."""
        raise RuntimeError("a DraftModel guesses in a lab: Lab(model, speculation=DraftModel(...))")

    def bound_to(self, model: LoadedModel, options: ModelOptions) -> RunningDraftModel:
        """Load the model for a lab. Raises ConfigError for one that does not fit to the lab's."""
        if not isinstance(model, RealModel):
            raise ConfigError(f"speculation: a draft model guesses for a real model, and {model.name} has no weights")
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
                f"{model.runner.vocab_size}: guesses would mean other tokens"
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
        """Return the model's greedy continuation; none where its pool cannot hold the text."""
        try:
            request_id = self._engine.add(token_ids, SamplingParams(max_tokens=num_tokens, ignore_eos=True))
        except ConfigError:
            return ()
        request = self._engine.requests[request_id]
        try:
            while request.status is not RequestStatus.FINISHED:
                self._engine.step()
        finally:
            if request.status is not RequestStatus.FINISHED:  # interrupted: the next text is not to wait for it
                self._engine.abort(request_id)
        return tuple(request.token_ids[len(token_ids) :])

    def close(self) -> None:
        """Release its pool, and its weights unless the lab uses them."""
        self._model.release()


def bound(proposer: Proposer, model: LoadedModel, options: ModelOptions) -> Proposer:
    """Return a proposer ready for a lab: one that has a model loads it."""
    return proposer.bound_to(model, options) if isinstance(proposer, DraftModel) else proposer


PROPOSERS: dict[str, type] = {kind.__name__: kind for kind in (NGram, FixedDrafts, DraftModel)}
"""labengine's own, by name: a saved session tells them completely."""
