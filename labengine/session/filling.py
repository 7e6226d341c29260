"""Filling the external tier as another engine would: an input of the session, which fork and rewind repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labengine.config import ConfigError
from labengine.core.parts import Parts
from labengine.engine.loaded_model import LoadedModel
from labengine.session.elsewhere import computed_elsewhere
from labengine.session.history.inputs import FillInput, pack
from labengine.session.settings import LabSettings
from labengine.session.stepper import Stepper


class Filling:
    """Puts KV of prompts into a session's external tier."""

    def __init__(self, settings: LabSettings, model: LoadedModel, parts: Parts, stepper: Stepper) -> None:
        self._settings, self._model, self._parts, self._stepper = settings, model, parts, stepper

    def fill(self, note: Callable[[FillInput], object], prompt: str | None, token_ids: Sequence[int] | None) -> int:
        """Fill the tier with a prompt's full blocks; return how many are new there. See Lab.fill_external.

        note: called with the input. ConfigError without a tier, and for what is no prompt.
        """
        self._stepper.refuse_if_closed()
        ids = self._model.prompt_ids("fill_external()", prompt, token_ids)
        if not ids:
            raise ConfigError("the prompt is empty: fill_external() needs token_ids of at least one full block")
        self._model.refuse_too_long(len(ids), 1)
        if self._settings.external is None:
            raise ConfigError("there is no external tier to fill: make the lab with external='host'")
        with self._stepper.between_steps():
            done = FillInput(self._stepper.engine.num_finished_steps, pack(ids))
            num_blocks = self.repeat(done)
            note(done)
        return num_blocks

    def repeat(self, done: FillInput) -> int:
        """Fill the tier as an input did; return how many blocks are new there. The caller holds the stepper's lock."""
        settings = self._settings
        outbox = computed_elsewhere(
            self._model, settings.engine_config(), settings.model_options(), self._parts, done.token_ids
        )
        return self._stepper.engine.transfers.take_in(outbox.sent, outbox)
