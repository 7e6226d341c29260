"""Lab: a model, an engine, its recording, checks and views in one object. Each method delegates to one part."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, Unpack

from labengine.config import ConfigError, EngineConfig, SamplingKeywords, checked_call, shown
from labengine.core.connector import Connector
from labengine.core.parts import Parts
from labengine.driven.driven import Driven, Patch
from labengine.engine.interrupts import interrupts_deferred
from labengine.engine.step_report import Phase, StepReport
from labengine.events import Event
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.snapshot import Snapshot
from labengine.record.timeline import Timeline
from labengine.record.violation import Violation
from labengine.session.compare.comparison import Comparison
from labengine.session.compare.sides import LiveSide
from labengine.session.hand_over import hand_over_between
from labengine.session.history.breakpoints import Breakpoint, BreakpointHit
from labengine.session.history.crash import Crash
from labengine.session.history.history import History
from labengine.session.history.inputs import Input
from labengine.session.looking import Looking
from labengine.session.outputs import RequestOutput
from labengine.session.patch.rerun_beside import rerun_beside
from labengine.session.requests import options_of
from labengine.session.saved.assertion import Asserting
from labengine.session.saved.code import to_code
from labengine.session.saved.facts import facts_of, save_session
from labengine.session.saved.regression import session_test
from labengine.session.session import Session
from labengine.session.settings import LabSettings, parameters_of, refuse_unknown
from labengine.session.stats import LabStats
from labengine.session.superseded import follow
from labengine.session.view_source import LabViewSource
from labengine.session.xray import xray
from labengine.system.threads import weakly

if TYPE_CHECKING:  # torch is loaded for real models only, pandas and widgets for views only
    import torch


class Lab(LiveSide):
    """A real engine to step, inspect and question.

    lab = Lab(); lab.add("Once upon a time"); lab.step(). `lab` at the end of a cell shows its dashboard. lab.goto(1)
    looks at an earlier moment, and lab.why(block=0) asks about it. lab.rewind(1) takes the engine back there;
    lab.fork(1, edition="vllm") continues from there in a second lab with other decisions. lab.compare(other) shows both
    side by side, and lab.save("run.lab") keeps the recording.

    model: "smollm2" (the default), "simulated" (no weights: same scheduler, same core), or a directory of safetensors.
    Labs on the same files, device, dtype and backend share loaded weights.
    num_blocks, block_size: the KV pool, in blocks ("auto": as many as fit) and tokens per block.
    groups: the KV-cache groups of the simulated model; a real one brings its own.
    edition: the engine whose decisions the lab takes ("labengine", "vllm", "nano-vllm" ...).
    parts: a class that replaces one part, or Parts for several.
    policy: "fcfs" admits requests in the order in which they come, "priority" the most urgent first; see `add`.
    Admission preempts no request: only a running request that lacks a block does, and then the least urgent one.
    runner: a subclass of ModelRunner, to replace decisions below the plan (real models only); see docs/engine.md.
    external: a tier outside the pool that keeps full blocks: "host" (memory), "disk", a folder, or a Connector.
    speculation: guesses the next tokens, which one forward pass then judges, such as NGram(num_drafts=4). It does not
    change the tokens.
    max_model_len: maximum tokens of a request, prompt and answer together; None: as many as the model supports.
    watermark, long_prefill_token_threshold, retention_interval, hash_block_size: see EngineConfig; all off.
    dtype, device: None picks float32 on a CPU and bfloat16 on CUDA.
    attention: its backend ("cpu", "triton", "flash_attn", "torch"); None picks the fastest possible, see status().
    cuda_graphs: record decode steps on a GPU; without it, every step runs module by module.
    overlap: schedule the next step while one is computed; None: where this saves time, see status().
    keep_finished: number of newest finished requests to keep; older ones are forgotten. None keeps all.
    keep_inputs: number of inputs (requests, aborts, resets) after which all are dropped; then rewind, fork, rerun,
    to_code and to_test are refused. None keeps all.
    record: keep a timeline (the newest 100,000 events, or as many as the number given).
    check: judge every step: invariants on what it changed, what each attention read has seen, and whether the core
    agrees with its events (`violations`, and a warning for each rule); "stop" ends a run at the first violation.

    One fair lock serves all threads. A step left open by phases() is finished by the next call that steps, adds or
    aborts. A lab delegates to its parts: `session` (session/session.py) has the engine, requests, runs and outputs;
    session/history/ forks and rewinds it; session/looking.py has the views.
    """

    @parameters_of(LabSettings)
    def __init__(self, model: str | PathLike[str] | Driven = "smollm2", **settings: Any) -> None:
        refuse_unknown("Lab()", settings, LabSettings)
        self._take(Session(LabSettings(model, **settings)))

    @classmethod
    def _of(cls, session: Session) -> Self:
        """Return a lab of this class around a session. A subclass's own __init__ is not called."""
        lab = cls.__new__(cls)
        lab._take(session)
        return lab

    def _take(self, session: Session) -> None:
        """Build the lab on a session."""
        self.session: Session = session
        """The parts: stepper, requests, runs, outputs, breakpoints, inputs, model ..."""
        self.settings: LabSettings = session.settings
        """The keywords that the lab was made with."""
        self.lab_id: str = session.lab_id
        """The lab's name, unique in this process."""
        self.parts: Parts = session.parts
        self.config: EngineConfig = session.config
        self.hooks: Hooks = session.hooks
        self.timeline: Timeline | None = session.timeline
        """The recording; None with record=False."""
        self.external: Connector | None = session.external
        self._history = History(session)
        self._begin_looking(session.stepper.reading, partial(xray, session, weakly(self._select_block)))
        session.breakpoints.on_hit = weakly(self._show_hit)  # the session outlives a lab that was dropped
        follow(self)
        weakref.finalize(self, weakly(session.runs.background.orphan)).atexit = False

    @property
    def model(self) -> str | PathLike[str] | Driven:
        """The model's name or directory, or the driven engine, as passed to Lab."""
        return self.settings.model

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        cache_salt: str | None = None,
        extra_keys: Mapping[str, str] | None = None,
        n: int | None = None,
        priority: int = 0,
        images: Mapping[int, tuple[str, int]] | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> Any:
        """Queue a request, given as text or as token ids; return its id, counted from 0.

        n: number of requests for the prompt, each with a different seed; return their ids. The prompt is computed once:
        they share its blocks, and a request copies a shared block before it writes to it. Edition "vllm" instead adds n
        separate requests.
        beams: width of a beam search; each beam is a request that shares blocks in the same way; return their ids.
        When the search ends, the first has the best text, the last the worst. Edition "labengine" only.
        sampling: max_tokens=64, temperature=0.0 (greedy), top_k, top_p, seed, ignore_eos=False.
        skip_reading_prefix_cache: True looks up no prefix for it; its blocks are cached as usual.
        cache_salt, extra_keys: requests share cached blocks only if both are equal. extra_keys holds what KV depends on
        besides the tokens, such as {"adapter": "x"}.
        priority: smaller is more urgent, also below 0; the policy "fcfs" ignores it.
        images: {position: (identifier, length)}: the image that `length` placeholder tokens from that position on stand
        for. Blocks from there on are shared only with the same image in the same place; earlier blocks always.
        Raises ConfigError, before anything changes, for a request that can never run.
        """
        options = options_of(
            Lab.add, sampling, cache_salt=cache_salt, extra_keys=extra_keys, priority=priority, images=images
        )
        return self.session.requests.add(prompt, token_ids, options, n)

    def branch(self, request_id: int | str, *, seed: int | None = None, token: int | None = None) -> int:
        """Queue another continuation of a request (its id, or its letter) from where it stands; return the new id.

        seed: the seed of its samples; None for a new one. token: an id that replaces the newest token, which has no KV
        yet. The branch shares the blocks of a decoding request, and copies a block before it writes to it. Raises
        ConfigError, before anything changes, for a finished request and for an edition without forks.
        """
        return self.session.requests.branch(request_id, seed, token)

    def chat(
        self,
        messages: Sequence[dict[str, str]],
        *,
        cache_salt: str | None = None,
        n: int | None = None,
        priority: int = 0,
        **sampling: Unpack[SamplingKeywords],
    ) -> Any:
        """Queue a conversation ([{"role": "user", "content": ...}, ...]) through the model's chat template.

        n, priority and sampling are those of `add`, and so is the result.
        """
        options = options_of(Lab.chat, sampling, cache_salt=cache_salt, priority=priority)
        return self.session.requests.chat(messages, options, n)

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, with the tokenizer's default settings."""
        return self.session.model.encode(text)

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""
        return self.session.token_text(token_id)

    def abort(self, request_id: int | str) -> bool:
        """End a request (its id, or its letter) and free its blocks at once. Return False if it has already ended."""
        return self.session.requests.abort(request_id)

    def hand_over(self, request_id: int | str, other: Lab) -> int:
        """Move a running request (its id, or its letter), with its KV, to another lab; return its id there.

        Prefill on one lab, decode on another: blocks that the other lab's prefix cache lacks are copied one by one;
        once all have arrived, this lab frees the request's blocks. The request then waits there for a step, and its
        tokens are the same as in a single lab. Here it is finished, for the reason "moved". An interrupt while blocks
        are copied leaves it where it was. After the move, each lab alone repeats the steps before it (rewind, fork).
        Raises ConfigError, before anything changes, if the labs differ in weights, dtype or blocks, if the request does
        not run, and if the other lab has no room.
        """
        if not isinstance(other, Lab):
            raise ConfigError(f"hand_over() needs the lab that takes the request, got {shown(other)}")
        return hand_over_between(self.session, request_id, other.session)

    def fill_external(self, prompt: str | None = None, *, token_ids: Sequence[int] | None = None) -> int:
        """Put the KV of a prompt's full blocks into the external tier, as if another engine had computed and saved it.

        Returns the number of new blocks there. It is an input like a request: fork, rewind and rerun repeat it.
        Raises ConfigError, before anything changes, without an external tier and for an invalid prompt.
        """
        return self.session.fill_external(prompt, token_ids)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content of the pool. Return False, without a change, while a request holds blocks.

        The external tier keeps its content: after a change of weights, give the next lab another store.
        """
        return self.session.requests.reset_prefix_cache()

    def output(self, request_id: int | str) -> RequestOutput:
        """Return the output so far of a request (its id, or its letter). Raises KeyError if it is no longer kept."""
        return self.session.outputs.output(request_id)

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        *,
        cache_salt: str | None = None,
        extra_keys: Mapping[str, str] | None = None,
        n: int | None = None,
        priority: int = 0,
        images: Mapping[int, tuple[str, int]] | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> list[RequestOutput]:
        """Add one prompt or several (texts or lists of token ids), run until they finish; return outputs in order.

        The keywords are the same as for `add` and hold for each prompt. With n, a prompt's n outputs are consecutive.
        """
        options = options_of(
            Lab.generate, sampling, cache_salt=cache_salt, extra_keys=extra_keys, priority=priority, images=images
        )
        return self.session.outputs.generate(prompts, options, n)

    def stream(self, request_id: int | str) -> Iterator[str]:
        """Return the generated text of a request, piece by piece; takes steps unless the background does."""
        return self.session.outputs.stream(request_id)

    # -- steps. A call that takes several of them stops at a breakpoint; see break_on ----------------------------------

    def step(self, num_steps: int = 1) -> StepReport:
        """Take one step, finish the open one, or take several. The last report is falsy if nothing is left to do.

        Several steps end early at a breakpoint, or when nothing is left; the last step's report is returned.
        """
        return self.session.runs.step(num_steps)

    def next_phase(self) -> Phase | None:
        """Execute and return the next phase: schedule, forward, sample or update. None if there is nothing to do."""
        return self.session.runs.next_phase()

    @property
    def phase(self) -> Phase | None:
        """The last executed phase; None if there was nothing to do."""
        return self.session.stepper.phase

    def phases(self) -> Iterator[Phase]:
        """Take one step, phase by phase. The next call that steps, adds or aborts finishes a step left open."""
        phase = self.next_phase()
        while phase is not None:
            yield phase
            phase = None if phase == "update" else self.next_phase()

    def run(self, until: Callable[[Self], object] | None = None) -> None:
        """Step until nothing waits or runs, or until(lab) is true after a step. Pauses the background first."""
        if until is not None:
            checked_call("until", until, "lab")
        self.session.runs.run(None if until is None else partial(until, self))

    def start(self) -> None:
        """Step in the background until the work is done or pause() is called; the notebook stays free."""
        self.session.runs.start()

    def pause(self) -> None:
        """Stop the background run after its current step."""
        self.session.runs.pause()

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself (run, generate, stream, start)."""
        return self.session.runs.is_running

    @property
    def background_error(self) -> BaseException | None:
        """The error that ended the last background run; None without one."""
        return self.session.runs.background.error

    def post(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call on the lab's thread. For callbacks, which may arrive on any thread and must not wait."""
        checked_call("call", call)
        return self.session.runs.background.post(call)

    # -- breakpoints and crashes ---------------------------------------------------------------------------------------

    def break_on(self, kind: type[Event] | str | Callable[[Event], object] | None = None, **fields: Any) -> Breakpoint:
        """End runs after the step in which an event meets a condition. `close()` the breakpoint to remove it.

        kind: an event class or its name, with the values its fields must have (BlockEvicted, block_id=3); a function of
        the event that returns True; or "violation", for the first violation. Fields without a kind match any event that
        has them. A request may be given by its letter ("A"), a hash by its first digits ("0:ab12"). run, start,
        generate, stream and step(n) stop; `stopped_at` tells where, and the views show the event. Raises TypeError for
        an unknown kind or field, and ConfigError for a value that the field cannot have.
        """
        return self.session.break_on(kind, fields)

    @property
    def breakpoints(self) -> tuple[Breakpoint, ...]:
        """The open breakpoints, oldest first."""
        return self.session.breakpoints.open

    @property
    def stopped_at(self) -> BreakpointHit | None:
        """The first breakpoint that the newest run or step has hit, with its event and a sentence; None without one."""
        return self.session.breakpoints.hit

    @property
    def crash(self) -> Crash | None:
        """The newest exception that a part raised inside a step, kept until reset() or the next one; None without one.

        It names step, class and method, and holds the exception and the step's events. goto("crash") shows that moment.
        """
        return self.session.crashes.newest

    @property
    def is_at_crash(self) -> bool:
        """True if the newest step was rolled back because a part raised, and nothing has happened since."""
        return self._history.is_at_crash

    # -- rewind and fork -----------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The lab's inputs since its start or last reset, in order: requests, aborts, resets of the prefix cache."""
        return self._history.inputs

    @property
    def num_known_steps(self) -> int:
        """The newest step that the known inputs lead to, even if a rewind undid it; a new input ends this."""
        return self._history.num_known_steps

    def fork(
        self, step: int | None = None, *, edition: str | None = None, parts: Parts | type | None = None, **settings: Any
    ) -> Self:
        """Return a second lab with the same inputs up to a step, which can continue with other inputs.

        step: the fork starts from the state before step `step + 1`; None: from now, without an open step. The fork
        shares this lab's loaded weights (released with the last lab that uses them) and has a separate KV pool.
        edition, parts, settings: differences from this lab, from the first step on: any keyword of Lab but those that
        concern the weights. parts replaces parts of the edition, or else of this lab. With the same settings the fork's
        events equal this lab's. With others the same inputs come before the same steps, or at once if the fork has no
        work left.
        If the parts differ, steps in which a part of this lab raised are left out. A fork whose parts raise ends at its
        crash, with a warning.
        An external tier in host memory begins empty; any other tier cannot be shared: pass external=. Raises
        ConfigError for a step that was not taken, and for settings that cannot work. This lab does not change.
        """
        return self._of(self._history.fork(step, edition=edition, parts=parts, **settings))

    def rerun(
        self, override: type | Callable[..., Any] | Parts | Patch | tuple[Patch, ...], **settings: Any
    ) -> Comparison:
        """Return two new labs side by side that repeat this lab's inputs from the beginning: one with its parts, one
        with an override.

        override: a subclass of a part, which replaces the lab's class; a function named like a seam ("touch", with self
        as its first parameter), which becomes a method of a subclass; or Parts. Of a driven engine, one Patch or
        several replace methods: lab.rerun(labengine.Patch("BlockPool.free_blocks", text)). settings: changes for both
        sides, as for `fork`. Each call begins with this lab's parts: `comparison.right.rerun(...)` adds one more.
        A part that raises or breaks a rule is reported in `comparison.right.crash` or `comparison.right.violations`;
        Ctrl-C stops one that never ends. Raises ConfigError for an override that could not work. This lab does not
        change; close the comparison when done.
        """
        return rerun_beside(self.session, self._history, self._of, override, **settings)

    def rewind(self, step: int) -> None:
        """Take the engine back to the moment before step `step + 1`, by repeating its steps from the beginning.

        It begins empty and gets its inputs again, and the recording starts over. Later inputs stay known: until a new
        one is added, a rewind to a later step goes forward again. An open step is rolled back, the background run
        paused, and `stopped_at` forgotten. An interrupt ends the rewind between two steps; its message tells where.
        Raises ConfigError, before anything changes, for a step that was not taken.
        """
        self._history.rewind(step)

    def reset(self) -> None:
        """Start over on the same model: no requests, an empty pool, a new timeline. Listeners stay."""
        self.session.reset()

    def compare(self, other: Looking, **settings: Any) -> Comparison:
        """Return a comparison of this lab with another lab or an opened trace, in lockstep; see labengine.compare."""
        return Comparison(self, other, **settings)

    # -- the state -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the state of the scheduler and the pool, also inside an open step."""
        return self.session.inspection.snapshot()

    def fold(self) -> Fold:
        """Return the state as a Fold, to follow from here by events."""
        return Fold.of(self.snapshot())

    def check(self) -> list[Violation]:
        """Judge every invariant now; return all violations, also of earlier steps."""
        return self.session.inspection.check()

    @property
    def violations(self) -> list[Violation]:
        """Violations found by the checks, each with the number of the event that caused it.

        Oldest first, except that violations that only cost work (LOST_WORK in record/violation.py) come last.
        """
        return self.session.inspection.violations

    def kv(self, block_id: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of one block in one layer, each [block_size, kv_heads, head_dim]. Also inside a listener."""
        return self.session.inspection.kv(block_id, layer)

    @property
    def num_layers(self) -> int:
        """Number of layers that store KV; 0 for the simulated model."""
        return self.session.model.num_layers

    def stats(self) -> LabStats:
        """Return the hit rate, speed, time to first token and occupancy."""
        return self.session.inspection.stats()

    def status(self) -> dict[str, str]:
        """Return a description of the lab: model, device, dtype, attention backend and why, edition, pool."""
        return self.session.inspection.status()

    @property
    def title(self) -> str:
        """Model, edition and pool in one line."""
        return self.session.inspection.title

    # -- views and exports; see Looking --------------------------------------------------------------------------------

    def view_source(self) -> LabViewSource:
        """Return this lab as a labengine_widgets.ViewSource, the interface of the views."""
        return LabViewSource(self.session, self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the session to a file, which labengine.open shows in every view again, without a model.

        Raises ConfigError if nothing was recorded.
        """
        save_session(self.session, path)

    def to_code(self) -> str:
        """Return a script that repeats this lab's inputs and steps."""
        return to_code(facts_of(self.session), self.token_text)

    def to_test(self, asserting: Asserting | None = None) -> str:
        """Return a pytest file that repeats this lab's session, with the source of its overrides.

        The test is run before it is returned: it fails with the overrides, because a rule is broken or a step raises,
        and passes with production's classes (PARTS = None). asserting: the assertion to use instead, where the bug is a
        difference: a Python expression over `lab`, such as "lab.snapshot().step == 3", or a function of a lab that
        returns False or raises. Raises ConfigError if the test would not fail with the overrides and pass without them;
        the message proposes an assertion.

        Of a driven engine with patches, the file is a script that needs that engine alone. It has been run, too, with
        and without the patches: it fails with the wrong one of both. asserting: "engine" or "patch", the one whose
        states are right, where neither breaks a rule or raises.
        """
        return session_test(self.session, asserting)

    def close(self) -> None:
        """Stop the background run and release the model. A second call has no effect.

        The recording can still be shown, questioned and exported; open views stay and show it.
        An open step is rolled back, and late loads are cancelled so that a user's connector can serve the next lab.
        """
        with interrupts_deferred():
            self.session.stop()
            self._settle()
            self.session.release()

    def __repr__(self) -> str:
        from labengine_widgets.pictures.ascii import block_map  # for views only

        return f"{self.title}\n{block_map(self.snapshot(), self.timeline)}"

    def _select_block(self, block_id: int) -> None:
        self.selection = "block", block_id
