"""A lab's model when another engine is driven: no weights, only that engine's process, and words as tokens."""

from __future__ import annotations

from typing import Any

from labengine.config import ConfigError, EngineConfig
from labengine.driven.driven import Driven, Patch
from labengine.driven.process import DrivenEngine as Started
from labengine.driven.process import EngineLostError, EngineProcess
from labengine.engine.loaded_model import ModelOptions, SimulatedModel

PATIENCE_S = 60.0
"""Seconds without an answer after which a call counts as endless where the driver's own limits do not reach it."""


class DrivenModel(SimulatedModel):
    """The process of a driven engine. It is started again when the engine is lost."""

    has_edition = False

    def __init__(self, driven: Driven, config: EngineConfig, max_model_len: int | None = None) -> None:
        """Raises ConfigError if the engine cannot be driven, or a patch cannot be applied."""
        super().__init__(config, max_model_len)
        self.driven = driven
        self._process: EngineProcess | None = None
        self.header: dict[str, Any] | None = None
        """The newest header of the engine's stream; None for an engine without events."""
        self.name = self._started().engine

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a line. Raises EngineLostError; the next line goes to a new process."""
        process = self._started()
        try:
            answer = process.ask(line, PATIENCE_S)
        except BaseException:  # after an interrupt, the answer to this line would be taken for the next one's
            self.release()
            raise
        self.header = answer.get("header", self.header)
        return answer

    def described(self, method: str) -> dict[str, Any]:
        """Return a method of the engine: class, module, file, line and text. Raises ConfigError for an unknown one."""
        found: dict[str, Any] = self.ask({"method": method})["found"]
        if "refusal" in found:
            raise ConfigError(f"{self.name}: {found['refusal']}")
        return found

    def sibling(self, config: EngineConfig, options: ModelOptions) -> DrivenModel:
        """Return the same engine in a process of its own."""
        return self.patched(self.driven, config, options)

    def patched(self, driven: Driven, config: EngineConfig, options: ModelOptions) -> DrivenModel:
        """Return another engine in a process of its own, with the same words."""
        other = DrivenModel(driven, config, options.max_model_len)
        other._tokenizer = self._tokenizer
        return other

    def release(self) -> None:
        """End the process. Twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def describe(self) -> dict[str, str]:
        """Return the engine, its interpreter and its patches."""
        patches = ", ".join(patch.method for patch in self.driven.patches)
        return {"engine": f"{self.name}, driven with {self.driven.python}"} | ({"patches": patches} if patches else {})

    def _started(self) -> EngineProcess:
        if self._process is None:
            process = EngineProcess(Started(self.driven.name, self.driven.python, None, self.driven.path))
            try:
                for patch in self.driven.patches:
                    _apply(process, patch)
            except BaseException:
                process.close()
                raise
            self._process = process
        return self._process


def _apply(process: EngineProcess, patch: Patch) -> None:
    what = {"method": patch.method, "text": patch.text, "file": patch.file}
    try:
        error = process.ask({"patch": what}, PATIENCE_S)["error"]
    except EngineLostError as lost:
        raise ConfigError(f"the patch of {patch.method} ends the engine: {lost}") from None
    if error is not None:
        raise ConfigError(f"{patch.method} cannot be replaced: {error[0]}: {error[1]}")
