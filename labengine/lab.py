"""The front desk: a Lab puts a model, an engine, its timeline, checks and views together for one person."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from labengine.config import GroupSpec
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.deprecated import with_old_names
from labengine.engine.interrupts import interrupts_deferred
from labengine.session.keywords import refuse_unknown
from labengine.session.looking import Looking
from labengine.session.recorded import Recorded
from labengine.session.settings import LabSettings
from labengine.session.stepping import Stepping
from labengine.session.time.time_travel import TimeTravel
from labengine.session.view_source import LabViewSource

if TYPE_CHECKING:
    import torch

    from labengine.session.compare.comparison import Comparison
    from labengine.session.saved.opened import Trace
    from labengine.session.time.breakpoints import Stop
    from labengine.session.time.crash import Crash


@with_old_names
class Lab(Stepping, Looking, TimeTravel, Recorded):
    """A real engine to step, watch and argue with.

    lab = Lab(); lab.add("Once upon a time"); lab.step(); and `lab` at the end of a cell is its dashboard. lab.goto(1)
    looks at an earlier moment and lab.why(block=0) asks about it; lab.rewind(1) takes the engine back there, and
    lab.fork(1, edition="vllm") a second one another way; lab.compare(other) puts both side by side; lab.save("run.lab")
    keeps the recording.

    model: "smollm2" (the default), "simulated" (no weights: same scheduler, same core), or a directory of safetensors.
    num_blocks, block_size: the KV pool, in blocks ("auto": as many as fit) and tokens per block.
    groups: the KV-cache groups of the simulated model; a real one brings its own.
    edition: whose decisions to take ("labengine", "vllm", "nano-vllm" ...). parts: replaces single decisions.
    external: a tier outside the pool that keeps full blocks: "host" (memory), "disk", a folder, or a Connector.
    watermark, long_prefill_token_threshold, retention_interval: see EngineConfig; all off.
    dtype, device: None picks float32 on a CPU and bfloat16 on CUDA.
    attention: who computes it ("cpu", "triton", "flash_attn", "torch"); None picks the fastest that can, see status().
    cuda_graphs: record decode steps on a GPU; without, every step runs module by module.
    overlap: schedule a free step while the one before is computed; None: where it gains something, see status().
    keep_finished: finished requests that are kept, the newest ones; older ones are forgotten. None keeps all.
    record: keep a timeline (the newest 100,000 events, or as many as the number given).
    check: judge every step: invariants on what it changed, what each attention read has seen, and whether the core is
    what its events say (`violations`, and a warning for each rule); "stop" ends a run at the first violation.

    One lock serves all threads in turn. A step left open by phases() is finished by whoever steps, adds or aborts.
    What it does is told by theme: requests in session/requesting.py, steps in stepping.py, the state in looking.py,
    fork, rewind and breakpoints in time_travel.py, the recording and its views in recorded.py.
    """

    def __init__(
        self,
        model: str | PathLike[str] = "smollm2",
        *,
        num_blocks: int | Literal["auto"] = 256,
        block_size: int = 16,
        groups: Sequence[GroupSpec] | None = None,
        edition: str = "labengine",
        parts: Parts | None = None,
        external: str | PathLike[str] | Connector | None = None,
        dtype: str | torch.dtype | None = None,
        device: str | None = None,
        attention: str | None = None,
        cuda_graphs: bool = True,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 2048,
        watermark: float = 0.0,
        long_prefill_token_threshold: int = 0,
        retention_interval: int | None = None,
        overlap: bool | None = None,
        keep_finished: int | None = 10_000,
        record: bool | int = True,
        check: bool | Literal["stop"] = True,
        seed: int = 0,
        **unknown: object,
    ) -> None:
        refuse_unknown("Lab()", unknown, Lab.__init__)
        settings = LabSettings(
            model=model,
            num_blocks=num_blocks,
            block_size=block_size,
            groups=groups,
            edition=edition,
            parts=parts,
            external=external,
            dtype=dtype,
            device=device,
            attention=attention,
            cuda_graphs=cuda_graphs,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            watermark=watermark,
            long_prefill_token_threshold=long_prefill_token_threshold,
            retention_interval=retention_interval,
            overlap=overlap,
            keep_finished=keep_finished,
            record=record,
            check=check,
            seed=seed,
        )
        self._assemble(settings)

    @property
    def model(self) -> str | PathLike[str]:
        """What was asked for: a name, or where it lies."""
        return self.settings.model

    def reset(self) -> None:
        """An empty engine on the same model: no requests, an empty pool, a new timeline. Listeners stay."""
        self.pause()
        with self._stepper.turn():
            self._stepper.engine.transfers.stop()
            self._stepper.restart(self._inputs.clear, self._breakpoints.forget_stop, self._crashes.forget)
            self._tier_was_used = self.external is not None

    @property
    def crash(self) -> Crash | None:
        """The newest exception that a part has raised inside a step, kept until reset() or the next; None without one.

        It names step, class and method, and holds the exception and the step's events. goto("crash") looks there.
        """
        return self._crashes.newest

    def compare(self, other: Lab | Trace, **settings: Any) -> Comparison:
        """Have this lab and another one in lockstep, side by side; see labengine.compare."""
        from labengine.session.compare.comparison import Comparison

        return Comparison(self, other, **settings)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the session to a file: every view of it opens again with labengine.open, without a model.

        ConfigError when nothing was recorded.
        """
        from labengine.session.saved.saving import save_lab

        save_lab(self, path)

    def to_code(self) -> str:
        """A script that does again what was done here."""
        from labengine.session.saved.code import to_code
        from labengine.session.saved.facts import facts_of

        return to_code(facts_of(self), self.token_text)

    def _still(self) -> AbstractContextManager[None]:
        return self._stepper.turn_to_look()

    def view_source(self) -> LabViewSource:
        """What a view may see and ask of this lab (labengine_widgets.view_source.ViewSource)."""
        return LabViewSource(self, self._stepper, self._wishes())

    def _wishes(self) -> dict[str, Callable[..., Any]]:
        def add(prompt: str, copies: int, max_tokens: int) -> list[int]:
            return [self.add(prompt, max_tokens=max_tokens) for _ in range(copies)]

        return {
            "step": self.step,
            "phase": self.next_phase,
            "start": self.start,
            "pause": self.pause,
            "reset": self.reset,
            "abort": self.abort,
            "add": add,
            "goto": self.goto,
            "rewind": self.rewind,
        }

    def _stopped(self, stop: Stop) -> None:
        """The views stand at what the run has stopped for."""
        if self._own_feed is not None and stop.moment is not None:
            self._stand(stop.moment)

    def __repr__(self) -> str:
        from labengine_widgets.ascii import block_map

        return f"{self.title}\n{block_map(self.snapshot(), self.timeline)}"

    def close(self) -> None:
        """Stop the background and let the model go. Twice is harmless.

        What was recorded can still be looked at, asked and exported; views that are open stay, as the recording.
        A step left open is taken back, and late loads are cancelled: a connector of yours may serve the next lab.
        """
        with interrupts_deferred():
            self._stepper.close()
            self._stepper.engine.transfers.stop()
            self._settle_views()
            self._model.release()
            if self.external is not None and self._owns_external:
                self.external.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
