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

    lab = Lab(); lab.add("Once upon a time"); lab.step(); and `lab` at the end of a cell is its dashboard. lab.goto(1)
    looks at an earlier moment and lab.why(block=0) asks about it; lab.rewind(1) takes the engine back there, and
    lab.fork(1, edition="vllm") a second one another way; lab.compare(other) puts both side by side; lab.save("run.lab")
    keeps the recording.

    model: "smollm2" (the default), "simulated" (no weights: same scheduler, same core), or a directory of safetensors.
    Labs on the same files, device, dtype and backend share loaded weights.
    num_blocks, block_size: the KV pool, in blocks ("auto": as many as fit) and tokens per block.
    groups: the KV-cache groups of the simulated model; a real one brings its own.
    edition: whose decisions to take ("labengine", "vllm", "nano-vllm" ...).
    parts: a class that replaces one part, or Parts for several.
    policy: "fcfs" admits requests in the order in which they come; "priority" the most urgent first, see `add`. Nobody
    is preempted for that: only a running request that lacks a block preempts, and then the least urgent one.
    runner: a subclass of ModelRunner, which replaces decisions below the plan (a real model only); see docs/engine.md.
    external: a tier outside the pool that keeps full blocks: "host" (memory), "disk", a folder, or a Connector.
    speculation: guesses the next tokens, which one forward pass then judges, such as NGram(num_drafts=4). Tokens stay
    what they are without.
    max_model_len: tokens of a request at most, prompt and answer together; None: as many as the model supports.
    watermark, long_prefill_token_threshold, retention_interval, hash_block_size: see EngineConfig; all off.
    dtype, device: None picks float32 on a CPU and bfloat16 on CUDA.
    attention: its backend ("cpu", "triton", "flash_attn", "torch"); None picks the fastest possible, see status().
    cuda_graphs: record decode steps on a GPU; without, every step runs module by module.
    overlap: schedule the next step while one is computed; None: where this saves time, see status().
    keep_finished: finished requests that are kept, the newest ones; older ones are forgotten. None keeps all.
    keep_inputs: requests, aborts and resets after which the inputs are dropped; then rewind, fork, rerun, to_code and
    to_test refuse. None keeps all.
    record: keep a timeline (the newest 100,000 events, or as many as the number given).
    check: judge every step: invariants on what it changed, what each attention read has seen, and whether the core is
    what its events say (`violations`, and a warning for each rule); "stop" ends a run at the first violation.

    One fair lock serves all threads. A step left open by phases() is finished by the next call that steps, adds or
    aborts. A lab delegates to its parts: `session` (session/session.py) has the engine, requests, runs and outputs;
    session/history/ forks and rewinds it; session/looking.py has the views.
    """

    @parameters_of(LabSettings)
    def __init__(self, model: str | PathLike[str] = "smollm2", **settings: Any) -> None:
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
        """A name that no other lab in this process has."""
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
    def model(self) -> str | PathLike[str]:
        """The model's name or directory, as passed to Lab."""
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

        n: so many requests for the prompt, each with a seed of its own; return their ids. The prompt is computed once:
        they share its blocks, and whoever writes to one that others read copies it. (Edition "vllm": n requests.)
        beams: a beam search with so many beams, each a request that shares blocks in the same way; return their ids.
        When it ends, the first has the best text, the last the worst. (Edition "labengine" only.)
        sampling: max_tokens=64, temperature=0.0 (greedy), top_k, top_p, seed, ignore_eos=False.
        skip_reading_prefix_cache: True looks nothing up for it; what it computes is cached as always.
        Requests share cached blocks only under equal cache_salt and extra_keys (what KV depends on besides the tokens:
        {"adapter": "x"}).
        priority: smaller is more urgent, also below 0; the policy "fcfs" takes no notice of it.
        images: {position: (identifier, length)}: what is behind that many placeholder tokens of the prompt. Blocks from
        there on are shared only with the same image in the same place; blocks before it with any.
        ConfigError, before anything changes, for a request that can never run.
        """
        options = options_of(
            Lab.add, sampling, cache_salt=cache_salt, extra_keys=extra_keys, priority=priority, images=images
        )
        return self.session.requests.add(prompt, token_ids, options, n)

    def branch(self, request_id: int | str, *, seed: int | None = None, token: int | None = None) -> int:
        """Queue another continuation of a request (its id, or its letter) from where it stands; return the new id.

        seed: of its samples; None for one of its own. token: an id in place of the newest token, which has no KV yet.
        It shares the blocks of a request that decodes, and copies what it writes to. ConfigError, before anything
        changes, for a request that has finished, and where the edition has no forks.
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
        """Return the token ids of a text, by the tokenizer's defaults."""
        return self.session.model.encode(text)

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""
        return self.session.token_text(token_id)

    def abort(self, request_id: int | str) -> bool:
        """End a request (its id, or its letter), and free its blocks at once. False when it had finished before."""
        return self.session.requests.abort(request_id)

    def hand_over(self, request_id: int | str, other: Lab) -> int:
        """Move a request that runs (its id, or its letter), with its KV, to another lab; return its id there.

        Prefill on one lab, decode on another: the blocks are copied one by one, but those that the other lab's prefix
        cache has, and freed here when all are there. The request waits there for a step, and its tokens are those that
        one lab would have given. Here it is finished, for the reason "moved". An interrupt while blocks are copied
        leaves it where it was. After the move, each lab alone repeats the steps before it (rewind, fork).
        ConfigError, before anything changes, for labs of other weights, dtype or blocks, for a request that does not
        run, and for another lab without room.
        """
        if not isinstance(other, Lab):
            raise ConfigError(f"hand_over() needs the lab that the request goes to, got {shown(other)}")
        return hand_over_between(self.session, request_id, other.session)

    def fill_external(self, prompt: str | None = None, *, token_ids: Sequence[int] | None = None) -> int:
        """Put the KV of a prompt's full blocks into the external tier, as if another engine had computed and saved it.

        Returns the number of blocks that are new there. An input like a request: fork, rewind and rerun repeat it.
        ConfigError, before anything changes, without an external tier, and for what is no prompt.
        """
        return self.session.fill_external(prompt, token_ids)

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content of the pool. False, and nothing changes, while some request holds blocks.

        The external tier keeps what it holds: after a change of weights, give the next lab another store.
        """
        return self.session.requests.reset_prefix_cache()

    def output(self, request_id: int | str) -> RequestOutput:
        """Return what a request (its id, or its letter) has generated so far. KeyError for one that is not kept."""
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

        The keywords are those of `add`, for each prompt. With n, a prompt's n outputs stand one after the other.
        """
        options = options_of(
            Lab.generate, sampling, cache_salt=cache_salt, extra_keys=extra_keys, priority=priority, images=images
        )
        return self.session.outputs.generate(prompts, options, n)

    def stream(self, request_id: int | str) -> Iterator[str]:
        """Return the generated text of a request, piece by piece; takes steps unless the background does."""
        return self.session.outputs.stream(request_id)

    # -- steps. Anything that takes several of them stops at a breakpoint; see break_on --------------------------------

    def step(self, num_steps: int = 1) -> StepReport:
        """Take one step, or finish the open one; or take several. The last report is falsy with nothing left to do.

        Several steps end early at a breakpoint, and when there is nothing left: then the last step's report is given.
        """
        return self.session.runs.step(num_steps)

    def next_phase(self) -> Phase | None:
        """Do the next phase of a step: schedule, forward, sample, update. None when there is nothing to do."""
        return self.session.runs.next_phase()

    @property
    def phase(self) -> Phase | None:
        """The phase done last; None when there was nothing to do."""
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
        """Stop the background after its current step."""
        self.session.runs.pause()

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself (run, generate, stream, start), False while steps are taken by hand."""
        return self.session.runs.is_running

    @property
    def background_error(self) -> BaseException | None:
        """The error that ended the last background run; None for none."""
        return self.session.runs.background.error

    def post(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call on the lab's own thread: for callbacks, which may arrive on any thread and must not wait."""
        checked_call("call", call)
        return self.session.runs.background.post(call)

    # -- breakpoints and crashes ---------------------------------------------------------------------------------------

    def break_on(self, kind: type[Event] | str | Callable[[Event], object] | None = None, **fields: Any) -> Breakpoint:
        """End runs after the step in which an event meets a condition. `close()` the breakpoint to remove it.

        kind: a kind of event, itself or by name, whose fields have the values given (BlockEvicted, block_id=3); a
        function of the event that is true; or "violation", for the first rule that is seen broken. Fields alone: any
        event that has them. A request may be given by its letter ("A"), a hash by its first digits ("0:ab12"). run,
        start, generate, stream and step(n) stop; `stopped_at` says where, and the views show the event. TypeError
        for a field, and for a kind, that does not exist; ConfigError for a value that the field cannot have.
        """
        return self.session.break_on(kind, fields)

    @property
    def breakpoints(self) -> tuple[Breakpoint, ...]:
        """The open breakpoints, oldest first."""
        return self.session.breakpoints.open

    @property
    def stopped_at(self) -> BreakpointHit | None:
        """The first breakpoint that the newest run or step has hit, with its event and a sentence; None for none."""
        return self.session.breakpoints.hit

    @property
    def crash(self) -> Crash | None:
        """The newest exception that a part has raised inside a step, kept until reset() or the next; None without one.

        It names step, class and method, and holds the exception and the step's events. goto("crash") shows the moment.
        """
        return self.session.crashes.newest

    @property
    def is_at_crash(self) -> bool:
        """True while the newest thing that has happened is a step in which a part raised, and which was rolled back."""
        return self._history.is_at_crash

    # -- rewind and fork -----------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The lab's inputs since it was made or reset, in order: requests, aborts, resets of the prefix cache."""
        return self._history.inputs

    @property
    def num_known_steps(self) -> int:
        """The newest step that the known inputs lead to, also one that a rewind undid, until a new input."""
        return self._history.num_known_steps

    def fork(
        self, step: int | None = None, *, edition: str | None = None, parts: Parts | type | None = None, **settings: Any
    ) -> Self:
        """Return a second lab with the same inputs up to a step, which can continue with other inputs.

        step: the fork's state is the one before step `step + 1`; None is now, an open step left out. The fork shares
        this lab's loaded weights (released with the last lab that uses them) and has a KV pool of its own.
        edition, parts, settings: differences from this lab, from the first step on: any keyword of Lab but those of the
        weights. parts replaces fields of the edition's, or else of this lab's own. With the same settings the fork's
        events are equal to this lab's; with others the same inputs come before the same steps, or at once where the
        fork has no work left.
        Steps in which a part of this lab has raised are left out where the parts differ; a fork whose own parts raise
        ends at its crash, and warns of it.
        An external tier in host memory begins empty; any other one cannot be shared: pass external=. Raises ConfigError
        for a step that was not taken, and for settings that cannot work. This lab does not change.
        """
        return self._of(self._history.fork(step, edition=edition, parts=parts, **settings))

    def rerun(self, override: type | Callable[..., Any] | Parts, **settings: Any) -> Comparison:
        """Return two new labs side by side that do this lab's inputs again, from its beginning: on its own parts, and
        with an override.

        override: a subclass of a part, which takes the place of the lab's class; a function named like a seam ("touch",
        with self as its first parameter), which becomes a method of a subclass of it; or Parts. settings: changes for
        both sides, as for `fork`. Each call begins with this lab's parts: `comparison.right.rerun(...)` adds one more.
        A part that raises or breaks a rule is reported there: `comparison.right.crash`, `comparison.right.violations`;
        one that never ends is ended by Ctrl-C. Raises ConfigError for an override that could not work. This lab does
        not change; close the comparison when done.
        """
        return rerun_beside(self.session, self._history, self._of, override, **settings)

    def rewind(self, step: int) -> None:
        """Go back to where step `step + 1` was about to begin: the same engine, which takes its steps again from 0.

        It begins empty, is given its inputs again, and the recording starts over. Inputs that came later stay known:
        rewind to a later step goes forward again, until something new is added. An open step is rolled back, the
        background paused, `stopped_at` forgotten. An interrupt ends it between two steps, and says where. ConfigError
        for a step not taken: then nothing has changed.
        """
        self._history.rewind(step)

    def reset(self) -> None:
        """Begin anew on the same model: no requests, an empty pool, a new timeline. Listeners stay."""
        self.session.reset()

    def compare(self, other: Looking, **settings: Any) -> Comparison:
        """Return this lab and another one, or an opened trace, side by side in lockstep; see labengine.compare."""
        return Comparison(self, other, **settings)

    # -- the state -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return everything the scheduler and the pool hold, also inside an open step."""
        return self.session.inspection.snapshot()

    def fold(self) -> Fold:
        """Return the state as a Fold, to follow from here by events."""
        return Fold.of(self.snapshot())

    def check(self) -> list[Violation]:
        """Judge every invariant now; return the violations, also those of earlier steps. Empty when all is well."""
        return self.session.inspection.check()

    @property
    def violations(self) -> list[Violation]:
        """Violations that the checks have found, each with the number of the event that caused it.

        Those that only cost work (LOST_WORK in record/violation.py) come last; otherwise the oldest first.
        """
        return self.session.inspection.violations

    def kv(self, block_id: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return K and V of one block in one layer, each [block_size, kv_heads, head_dim]. Also inside a listener."""
        return self.session.inspection.kv(block_id, layer)

    @property
    def num_layers(self) -> int:
        """Layers with KV of their own; 0 for the simulated model."""
        return self.session.model.num_layers

    def stats(self) -> LabStats:
        """Return hit rate, speed, time to first token, occupancy."""
        return self.session.inspection.stats()

    def status(self) -> dict[str, str]:
        """Return what runs here: model, device, dtype, attention backend and why, edition, pool."""
        return self.session.inspection.status()

    @property
    def title(self) -> str:
        """Model, edition and pool in one line."""
        return self.session.inspection.title

    # -- views and exports; see Looking --------------------------------------------------------------------------------

    def view_source(self) -> LabViewSource:
        """Return the views' interface to this lab (a labengine_widgets.ViewSource)."""
        return LabViewSource(self.session, self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the session to a file: every view of it opens again with labengine.open, without a model.

        ConfigError when nothing was recorded.
        """
        save_session(self.session, path)

    def to_code(self) -> str:
        """Return a script that repeats this lab's inputs and steps."""
        return to_code(facts_of(self.session), self.token_text)

    def to_test(self, asserting: Asserting | None = None) -> str:
        """Return a file for pytest that repeats this lab's session, with the source of its overrides.

        It was run before it is returned: it is red with the overrides, because a rule is broken or a step raises, and
        green with production's classes (PARTS = None). asserting: asserted in place of that, where the bug is a
        difference: Python over `lab`, such as "lab.snapshot().step == 3", or a function of a lab that returns False
        or raises. Raises ConfigError where a test would not be red with the overrides and green without; its message
        proposes an assertion.
        """
        return session_test(self.session, asserting)

    def close(self) -> None:
        """Stop the background and release the model. A second call has no effect.

        The recording can still be shown, questioned and exported; open views stay and show the recording.
        An open step is rolled back, and late loads are cancelled, so that a user's connector can serve the next lab.
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
