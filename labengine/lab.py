"""The front desk: a Lab puts a model, an engine, its timeline, checks and views together for one person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from labengine.check.invariants import check_invariants
from labengine.check.violation import Violation
from labengine.check.watch import Watch
from labengine.config import ConfigError, EngineConfig, GroupSpec
from labengine.core.connector import Connector
from labengine.core.editions import edition as edition_named
from labengine.core.parts import Parts
from labengine.core.prefix_cache import HashChain, LateMerge
from labengine.core.request import Request, RequestStatus
from labengine.desk.bench import LabBench
from labengine.desk.intake import ExtraKeySpec, Intake
from labengine.desk.keywords import refuse_unknown
from labengine.desk.outputs import RequestOutput, TextStream
from labengine.desk.prompts import prompt_list
from labengine.desk.stats import LabStats, StatsListener
from labengine.desk.stepper import Stepper
from labengine.engine.engine import Engine, Phase, StepReport
from labengine.engine.loaded_model import LoadedModel, ModelOptions, load_model
from labengine.engine.overlap import choose_engine, scheduling_line
from labengine.hooks import Hooks
from labengine.snapshot import Snapshot
from labengine.timeline import Fold, Timeline

if TYPE_CHECKING:
    from os import PathLike

    import torch

    from labengine_widgets.dashboard import Dashboard


class Lab:
    """A real engine to step, watch and argue with.

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
    record: keep a timeline (the newest 100,000 events, or as many as the number given).
    check: judge every step: invariants on what it changed, and what each attention read has seen (`violations`).

    One lock serves all threads in turn. A step left open by phases() is finished by whoever steps, adds or aborts.
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
        record: bool | int = True,
        check: bool = True,
        seed: int = 0,
        **unknown: object,
    ) -> None:
        refuse_unknown("Lab()", unknown, Lab.__init__)
        base = edition_named(edition)
        if not isinstance(parts, Parts | None):
            raise ConfigError(f"parts must be a labengine.Parts, got {parts!r}")
        self.parts = base if parts is None else parts.over(base)
        blocks = _asked_blocks(num_blocks)
        config = EngineConfig(
            1 if blocks is None else blocks,  # until the model is there, and memory can be asked
            (GroupSpec(block_size),) if groups is None else tuple(groups),
            max_num_seqs,
            max_num_batched_tokens,
            seed,
            watermark=watermark,
            long_prefill_token_threshold=long_prefill_token_threshold,
            retention_interval=retention_interval,
        )
        if groups is not None and model != "simulated":
            raise ConfigError("groups are for the simulated model; a real model's layers say what groups it has")
        self.hooks = Hooks()
        self.timeline = _timeline(record)
        if self.timeline is not None:
            self.hooks.subscribe(self.timeline.record)
        self._watch = Watch(self.hooks, self.timeline) if check else None
        self._stats = StatsListener()
        self._stats.subscribe(self.hooks)
        self.model = model
        """What was asked for: a name, or where it lies."""
        options = ModelOptions(blocks, dtype, device, attention, cuda_graphs)
        self._model: LoadedModel = load_model(model, config, options)
        self.config = self._model.config
        self._engine_class, self._scheduling = choose_engine(
            overlap, self.parts, self._model.runner, has_external=external is not None, is_watched=check
        )
        self.external = _external_tier(external, self._model, self.parts)
        self._owns_external = self.external is not external
        self._dashboard: Dashboard | None = None
        self._stepper = Stepper(self._make_engine)
        self._intake = Intake(self._model, self._stepper)

    def _make_engine(self) -> Engine:
        watch, runner = self._watch, self._model.runner
        engine = self._engine_class(
            self.config, runner if watch is None else watch.around(runner), self.parts, self.hooks, self.external
        )
        if watch is not None:
            watch.follow(engine)
        return engine

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        cache_salt: str | None = None,
        extra_keys: Mapping[str, str] | None = None,
        **sampling: Any,
    ) -> int:
        """Queue a request, given as text or as token ids; returns its id, counted from 0.

        sampling: max_tokens=64, temperature=0.0 (greedy), top_k, top_p, seed, ignore_eos=False. Requests share cached
        blocks only under equal cache_salt and extra_keys (what KV depends on besides the tokens: {"adapter": "x"}).
        ConfigError, before anything changes, for what can never run.
        """
        keys = ExtraKeySpec(cache_salt, extra_keys)
        return self._intake.queue([self._intake.checked(Lab.add, prompt, token_ids, keys, sampling)])[0]

    def chat(self, messages: Sequence[dict[str, str]], *, cache_salt: str | None = None, **sampling: Any) -> int:
        """Queue a conversation ([{"role": "user", "content": ...}, ...]) through the model's chat template."""
        ids = self._model.tokenizer.chat(messages)
        return self._intake.queue([self._intake.checked(Lab.chat, None, ids, ExtraKeySpec(cache_salt), sampling)])[0]

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, by the tokenizer's defaults."""
        return self._model.encode(text)

    def abort(self, request_id: int) -> bool:
        """End a request, its blocks freed at once; False when it had finished before."""
        with self._stepper.between_steps():
            return self._stepper.engine.abort(self._intake.request(request_id).request_id)

    def output(self, request_id: int) -> RequestOutput:
        """What a request has generated so far."""
        request = self._intake.request(request_id)
        with self._stepper.turn_to_read():
            token_ids = tuple(request.token_ids[request.num_prompt_tokens :])
            finish_reason = request.finish_reason
        return RequestOutput(request_id, token_ids, self._model.tokenizer.decode(token_ids), finish_reason)

    # -- stepping ------------------------------------------------------------------------------------------------------

    def step(self) -> StepReport:
        """Take one step, or finish the open one; the report is falsy when there was nothing to do."""
        return self._stepper.step()

    def next_phase(self) -> Phase | None:
        """Do the next phase of a step: schedule, forward, sample, update. None when there is nothing to do."""
        return self._stepper.next_phase()

    @property
    def phase(self) -> Phase | None:
        """The phase done last; None when there was nothing to do."""
        return self._stepper.phase

    def phases(self) -> Iterator[Phase]:
        """One step, phase by phase. A step that is left open is finished by whoever steps, adds or aborts next."""
        phase = self.next_phase()
        while phase is not None:
            yield phase
            phase = None if phase == "update" else self.next_phase()

    def run(self, until: Callable[[Lab], object] | None = None) -> None:
        """Step until nothing waits or runs, or until(lab) is true after a step. Pauses the background first."""
        self.pause()
        with self._stepper.running_freely():
            while self._stepper.step_freely():
                if until is not None and until(self):
                    return

    def start(self) -> None:
        """Step in the background until the work is done or pause() is called; the notebook stays free."""
        self._stepper.start()

    def pause(self) -> None:
        """Stop the background after the step under way."""
        self._stepper.pause()

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself (run, generate, stream, start), False while somebody steps by hand."""
        return self._stepper.is_running

    @property
    def background_error(self) -> BaseException | None:
        """What ended the last background run, if it was an error."""
        return self._stepper.background.error

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        *,
        cache_salt: str | None = None,
        **sampling: Any,
    ) -> list[RequestOutput]:
        """Add one prompt or several (texts or lists of token ids), run until they are done; their outputs in order."""
        texts_and_ids = [(p, None) if isinstance(p, str) else (None, p) for p in prompt_list(prompts)]
        keys = ExtraKeySpec(cache_salt)
        requests = [self._intake.checked(Lab.generate, text, ids, keys, sampling) for text, ids in texts_and_ids]
        self.pause()
        added = self._intake.queue(requests)
        if added:
            self.run(until=lambda lab: lab._have_finished(added))
        return [self.output(request_id) for request_id in added]

    def _have_finished(self, request_ids: Sequence[int]) -> bool:
        """Between steps: an end that is seen in the middle of another thread's step may be taken back with it."""
        with self._stepper.turn_to_look():
            return all(self._intake.request(i).finish_reason is not None for i in request_ids)

    def stream(self, request_id: int) -> Iterator[str]:
        """The generated text of a request, piece by piece; steps the lab unless the background already does."""
        return self._stream(self._intake.request(request_id))

    def _stream(self, request: Request) -> Iterator[str]:
        text = TextStream(self._model.tokenizer.decode, request.num_prompt_tokens)
        is_under_way = True
        while is_under_way and self._next_step(request):
            token_ids, is_under_way = self._seen_between_steps(request)
            yield from text.grown_by(token_ids)
        yield from text.rest(self._seen_between_steps(request)[0])

    def _seen_between_steps(self, request: Request) -> tuple[tuple[int, ...], bool]:
        """Its tokens, and whether there will be more: False when it has finished, or was swept away by a reset."""
        with self._stepper.turn_to_look():
            is_known = self._stepper.engine.requests.get(request.request_id) is request
            return tuple(request.token_ids), is_known and request.status is not RequestStatus.FINISHED

    def _next_step(self, request: Request) -> bool:
        """Take a step, or leave it to the background, whose step a look waits for; False with nothing to do for it."""
        if self._stepper.background.is_running:
            return True
        if not self._seen_between_steps(request)[1]:
            return False
        with self._stepper.running_freely():
            return bool(self._stepper.step_freely())

    def reset(self) -> None:
        """An empty engine on the same model: no requests, an empty pool, a new timeline. Listeners stay."""
        self.pause()
        with self._stepper.turn():
            self._stepper.engine.transfers.stop()
            self._stepper.restart()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content of the pool; False, and nothing changes, while some request holds blocks.

        The external tier keeps what it holds: after a change of weights, give the next lab another store.
        """
        with self._stepper.between_steps():
            return self._stepper.engine.reset_prefix_cache()

    # -- looking -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Everything the scheduler and the pool hold, also inside an open step."""
        with self._stepper.turn_to_look():
            return self._stepper.engine.snapshot()

    def fold(self) -> Fold:
        """The state as a Fold, to follow from here by events."""
        return Fold.of(self.snapshot())

    def check(self) -> list[Violation]:
        """Judge every invariant now, and tell what the steps before have shown; an empty list when all is well."""
        with self._stepper.turn_to_look():
            snapshot = self._stepper.engine.snapshot()
            if self._watch is not None:
                return self._watch.check(snapshot)
            return check_invariants(snapshot, merges=issubclass(self.parts.merge_policy, LateMerge))

    @property
    def violations(self) -> list[Violation]:
        """What the checks have found so far, oldest first, each with the number of the event that made it so."""
        return [] if self._watch is None else list(self._watch.violations)

    def kv(self, block_id: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of one block in one layer, each [block_size, kv_heads, head_dim]. Also inside a listener."""
        self._stepper.refuse_if_closed()
        if not 0 <= block_id < self.config.num_blocks:
            raise IndexError(f"block {block_id} does not exist: the pool has blocks 0 to {self.config.num_blocks - 1}")
        return self._model.kv(block_id, layer)

    @property
    def num_layers(self) -> int:
        """Layers with KV of their own; 0 for the simulated model."""
        return self._model.num_layers

    def stats(self) -> LabStats:
        """Hit rate, speed, time to first token, occupancy."""
        return self._stats.figures(self._stepper)

    def status(self) -> dict[str, str]:
        """What runs here: model, device, dtype, attention backend and why, edition, pool."""
        pool = (
            f"{self._stepper.engine.num_used_blocks} of {self.config.num_blocks} {self._block_words(' tokens')} in use"
        )
        external = {} if self.external is None else {"external": self.external.describe()}
        scheduling = scheduling_line(self._stepper.engine, self._scheduling)
        state = "closed" if self._stepper.is_closed else "running" if self.is_running else "paused"
        core = {"edition": self.parts.name, "pool": pool, **external, "scheduling": scheduling}
        return {**self._model.describe(), **core, "state": state}

    def token_text(self, token_id: int) -> str:
        """One token as readable text."""
        return self._model.tokenizer.token_text(token_id)

    @property
    def title(self) -> str:
        """Model, edition and pool in one line."""
        return f"{self._model.name} · edition {self.parts.name} · {self.config.num_blocks} {self._block_words()}"

    def _block_words(self, unit: str = "") -> str:
        """'blocks of 16', and in how many groups if there are several."""
        sizes = sorted({group.block_size for group in self.config.groups})
        groups = f" in {len(self.config.groups)} groups" if len(self.config.groups) > 1 else ""
        return f"blocks of {' and '.join(map(str, sizes))}{unit}{groups}"

    def show(self) -> Dashboard:
        """The live dashboard."""
        self._stepper.refuse_if_closed()
        if self._dashboard is None:
            from labengine_widgets.dashboard import Dashboard

            self._dashboard = Dashboard(self.bench())
        return self._dashboard

    def bench(self) -> LabBench:
        """What a view may see and ask of this lab (labengine_widgets.bench.Bench)."""

        def add(prompt: str, copies: int, max_tokens: int) -> list[int]:
            return [self.add(prompt, max_tokens=max_tokens) for _ in range(copies)]

        wishes: dict[str, Callable[..., Any]] = {
            "step": self.step,
            "phase": self.next_phase,
            "start": self.start,
            "pause": self.pause,
            "reset": self.reset,
            "abort": self.abort,
            "add": add,
        }
        return LabBench(self.title, self.hooks, self.timeline, self._stepper, self.token_text, wishes)

    def __repr__(self) -> str:
        from labengine_widgets.ascii import block_map

        return f"{self.title}\n{block_map(self.snapshot())}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return {"text/plain": repr(self)} if self._stepper.is_closed else self.show()._repr_mimebundle_(**options)

    def post(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call on the lab's own thread: for callbacks, which may arrive on any thread and must not wait."""
        return self._stepper.background.post(call)

    def close(self) -> None:
        """Stop the background, close the views, let the model go. Twice is harmless; looking still works.

        A step left open is taken back, and late loads are cancelled: a connector of yours may serve the next lab.
        """
        self._stepper.close()
        self._stepper.engine.transfers.stop()
        if self._dashboard is not None:
            self._dashboard.close()
            self._dashboard = None
        self._model.release()
        if self.external is not None and self._owns_external:
            self.external.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _external_tier(
    external: str | PathLike[str] | Connector | None, model: LoadedModel, parts: Parts
) -> Connector | None:
    """The tier that was asked for, told whose KV it will hold, and who names it."""
    if external is None:
        return None
    from labengine.engine.external import open_store

    tier = open_store(external)
    chain = "" if parts.hash_chain is HashChain else f"-{parts.hash_chain.__name__}"
    tier.bind(f"{model.fingerprint}{chain}")
    return tier


def _timeline(record: bool | int) -> Timeline | None:
    if record is False:
        return None
    if not isinstance(record, int) or record < 1:
        raise ConfigError(f"record must be True, False, or a number of events from 1, got {record!r}")
    return Timeline() if record is True else Timeline(max_events=record)


def _asked_blocks(num_blocks: int | str) -> int | None:
    """A number, or None for "auto"."""
    if isinstance(num_blocks, str):
        if num_blocks != "auto":
            raise ConfigError(f'num_blocks must be an integer or "auto", got {num_blocks!r}')
        return None
    return num_blocks
