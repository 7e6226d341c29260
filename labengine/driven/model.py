"""A lab's model when another engine is driven: no weights, only that engine's process, and words as tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, NoReturn
from weakref import finalize

from labengine.config import ConfigError, EngineConfig
from labengine.driven.calls import is_error
from labengine.driven.driven import Driven, Patch
from labengine.driven.imported import Imported
from labengine.driven.process import DrivenEngine as Started
from labengine.driven.process import EngineLostError, EngineProcess
from labengine.driven.script import importable
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.loaded_model import ModelOptions, SimulatedModel
from labengine.session.fair_lock import FairLock

INFERRED = "inferred from the engine's states after each of its calls"
"""The origin of the events of an engine without a tap."""

PATIENCE_S = 60.0
"""Seconds without an answer after which a call counts as endless where the driver's own limits do not reach it."""


class EngineHost:
    """The process of a driven engine, for one lab or for several whose engines are the same. It restarts when lost."""

    def __init__(self, driven: Driven, imported: Imported | None = None) -> None:
        """imported: by default, the engine is imported anew.

        Raises ConfigError if the engine cannot be driven, or a patch cannot be applied.
        """
        self.driven = driven
        self._unpatched = Started(driven.name, driven.python, None, driven.path)
        self.imported = imported or Imported(self._unpatched)
        self._is_using_it = False
        self._num_starts = 0
        self._left: list[int] = []
        """Engines that the process shall forget."""
        self.num_users = 0
        self.numbers = count()
        """Numbers for the engines in the process."""
        self._lock = FairLock()
        self._process: EngineProcess | None = None
        try:
            with self._lock:
                started = self._started()
        except BaseException:
            self._end()
            raise
        self.name = started.engine
        """The engine and its release."""
        self.source = importable(started.source, driven.name, driven.path)
        """The text of the file that makes and drives it."""

    @contextmanager
    def exclusive(self) -> Iterator[int]:
        """Keep the process for several lines; yield its number: an engine in an earlier process is gone."""
        with self._lock:
            self._started()
            yield self._num_starts

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a line. Raises EngineLostError; the next line goes to a new process."""
        with self._lock:
            if not self.num_users:
                raise EngineLostError("its process has ended with its lab")
            process = self._started()
            left, self._left = self._left, []
            try:
                return process.ask({**line, "ended": left}, PATIENCE_S)
            except BaseException:  # after an interrupt, the answer to this line would be taken for the next one's
                self.close()
                raise

    def leave(self, number: int) -> None:
        """Forget an engine, with the next line; end the process after the last one."""
        self.num_users -= 1
        self._left.append(number)
        if not self.num_users:
            self._end()

    def _end(self) -> None:
        with interrupts_deferred():
            try:
                self.close()
            finally:
                if self._is_using_it:
                    self._is_using_it = False
                    self.imported.leave()

    def close(self) -> None:
        """End the process. Twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _started(self) -> EngineProcess:
        if self._process is None or self._process.has_ended:
            self.close()
            with interrupts_deferred():
                if not self._is_using_it:
                    self._is_using_it = True
                    self.imported.use()
            process = EngineProcess(self._unpatched, self.imported.channel)
            try:
                for patch in self.driven.patches:
                    _apply(process, patch)
            except BaseException:
                process.close()
                raise
            self._process, self._left = process, []
            self._num_starts += 1
        return self._process


class DrivenModel(SimulatedModel):
    """One engine of a host."""

    has_edition = False

    def __init__(self, host: EngineHost, config: EngineConfig, max_model_len: int | None = None) -> None:
        super().__init__(config, max_model_len)
        self._host = host
        host.num_users += 1
        self._number = next(host.numbers)
        self._leave = finalize(self, host.leave, self._number)
        self.header: dict[str, Any] | None = None
        """The newest header of the engine's stream; None for an engine without events."""
        self.name = host.name

    @property
    def driven(self) -> Driven:
        """The engine and its patches."""
        return self._host.driven

    @property
    def source(self) -> str:
        """The text of the file that makes and drives the engine."""
        return self._host.source

    def exclusive(self) -> AbstractContextManager[int]:
        """Keep the process for several lines; yield its number: an engine in an earlier process is gone."""
        return self._host.exclusive()

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a line about this lab's engine. Raises EngineLostError."""
        answer = self._host.ask({**line, "run": self._number})
        self.header = answer.get("header", self.header)
        return answer

    def described(self, method: str) -> dict[str, Any]:
        """Return a method of the engine: class, module, file, line and text. Raises ConfigError for an unknown one."""
        try:
            found: dict[str, Any] = self._host.ask({"method": method})["found"]
        except (EngineLostError, KeyError) as error:
            raise ConfigError(f"{self.name} does not tell its methods: {error}") from None
        if "refusal" in found:
            raise ConfigError(f"{self.name}: {found['refusal']}")
        return found

    def refuse_call(self, call: str) -> NoReturn:
        """Raise ConfigError for a call that needs labengine's own engine."""
        self.driven.refuse_call(call)

    def kv(self, block_id: int, layer: int) -> NoReturn:
        """Raise ConfigError."""
        self.driven.refuse_call("kv")

    def sibling(self, config: EngineConfig, options: ModelOptions) -> DrivenModel:
        """Return another engine of the same kind, in the same process if that can hold several."""
        if self.driven.engine.shares_process:
            return self._with(self._host, config, options)
        return self.patched(self.driven, config, options)

    def patched(self, driven: Driven, config: EngineConfig, options: ModelOptions) -> DrivenModel:
        """Return an engine in another process of the same import, with the same words.

        Raises ConfigError as EngineHost.
        """
        return self._with(EngineHost(driven, self._host.imported), config, options)

    def _with(self, host: EngineHost, config: EngineConfig, options: ModelOptions) -> DrivenModel:
        other = DrivenModel(host, config, options.max_model_len)
        other._tokenizer = self._tokenizer
        return other

    def release(self) -> None:
        """End the process if no other lab uses it. Twice is harmless; a lab that is dropped does the same."""
        self._leave()

    def restart(self) -> None:
        """End the process; the next line goes to a new one."""
        self._host.close()

    def describe(self) -> dict[str, str]:
        """Return the engine, its interpreter and its patches."""
        patches = ", ".join(patch.method for patch in self.driven.patches)
        return {
            "engine": f"{self.name}{self.driven.whence}",
            **({"patches": patches} if patches else {}),
            **({} if self.driven.engine.has_events else {"events": INFERRED}),
        }


def _apply(process: EngineProcess, patch: Patch) -> None:
    what = {"method": patch.method, "text": patch.text, "file": patch.file}
    try:
        error = process.ask({"patch": what}, PATIENCE_S).get("error", "")
    except EngineLostError as lost:
        raise ConfigError(f"the patch of {patch.method} ends the engine: {lost}") from None
    if not is_error(error):
        raise ConfigError(f"the patch of {patch.method} damages the driver, whose answer cannot be read")
    if error is not None:
        raise ConfigError(f"{patch.method} cannot be replaced: {error[0]}: {error[1]}")
