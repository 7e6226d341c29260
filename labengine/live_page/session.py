"""A session of the page: a lab or a comparison, played as its permalink says, with a link to its current state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from labengine.config import ConfigError, GroupSpec, SamplingParams
from labengine.core.editions import edition
from labengine.core.proposer import NGram
from labengine.engine.loaded_model import is_provided
from labengine.engine.request_options import RequestOptions
from labengine.engine.wasm.bpe_tokenizer import BPETokenizer, question_in
from labengine.lab import Lab
from labengine.live_page.permalink import (
    MAX_BLOCK_SIZE,
    MAX_BLOCKS,
    MAX_COPIES,
    SIMULATED,
    AbortAct,
    Permalink,
    PromptAct,
    SessionAct,
    StepsAct,
)
from labengine.scenarios import bug
from labengine.session.compare.comparing import compare
from labengine.session.compare.comparison import Comparison
from labengine.session.compare.variation import Variation
from labengine.session.history.inputs import AbortInput, AddInput, BranchInput, BrokenStep, Input

WHOLE_PROMPT = 512
"""Tokens per step for editions that compute a prompt in one step, which takes some seconds."""
HOW_TO_LOAD = "press 'Use a real model' above the lab"


@dataclass
class OpenSession:
    """A lab or a comparison, and the fixed part of its permalink. num_inputs, num_steps: the scenario's."""

    origin: Permalink
    shown: Lab | Comparison
    num_inputs: int = 0
    num_steps: int = 0

    @property
    def lab(self) -> Lab:
        """The lab, or the left lab of a comparison: both have the same inputs."""
        side = self.shown if isinstance(self.shown, Lab) else self.shown.left
        assert isinstance(side, Lab)
        return side

    def begin_here(self) -> None:
        """Count everything from now on as acts of the permalink."""
        self.num_inputs, self.num_steps = len(self.lab.inputs), self.lab.session.stepper.engine.num_finished_steps

    def note_follow_up(self) -> None:
        """Note that the scenario's follow-up was run."""
        self.origin = replace(self.origin, follow_up=True)
        self.begin_here()

    def permalink(self) -> Permalink:
        """Return the link to the present state."""
        lab, finished = self.lab, self.lab.session.stepper.engine.num_finished_steps
        acts = acts_of(lab, lab.inputs[self.num_inputs :], self.num_steps, finished)
        return replace(self.origin, acts=tuple(acts))


def open_session(link: Permalink) -> OpenSession:
    """Return the session, played. Raises ConfigError if that fails, as for an unknown scenario or a long prompt."""
    shown = _made(link)
    try:
        session = OpenSession(replace(link, acts=(), follow_up=False), shown)
        session.begin_here()
        if link.follow_up and isinstance(shown, Comparison) and shown.has_follow_up:
            shown.follow_up()
            session.note_follow_up()
        for act in link.acts:
            act.play(shown)
    except BaseException:
        shown.close()
        raise
    return session


def _made(link: Permalink) -> Lab | Comparison:
    if link.bug:
        return _varied(bug(link.bug).compare(), link.changes)
    if link.model != SIMULATED and not is_provided(link.model):
        raise ConfigError(f"this link runs {link.model}, but its weights are not in this page yet: {HOW_TO_LOAD}")
    settings: dict[str, Any] = {"num_blocks": link.num_blocks, "block_size": link.block_size, **_budget(link)}
    settings["policy"] = link.policy
    if link.num_drafts:
        settings["speculation"] = NGram(link.num_drafts)
    if link.state_size:
        settings["groups"] = [GroupSpec(link.block_size), GroupSpec(link.state_size, "state")]
    if len(link.editions) > 1:
        return compare(*link.editions, model=link.model, **settings)
    return Lab(link.model, edition=link.editions[0], **settings)


def _varied(scenario: Comparison, changes: dict[str, int]) -> Comparison:
    """Return a scenario unchanged, or its workload run with changed figures, without guide and follow-up."""
    if not changes:
        return scenario
    with scenario:
        done: Comparison = Variation(scenario).run(**changes)
    return done


def _budget(link: Permalink) -> dict[str, int]:
    """Return a larger step budget for real weights, where a page's small one would refuse most prompts."""
    schedulers = [edition(name).scheduler for name in link.editions]
    is_whole = not all(scheduler.cuts_prompts for scheduler in schedulers)
    return {"max_num_batched_tokens": WHOLE_PROMPT} if is_whole and link.model != SIMULATED else {}


def acts_of(lab: Lab, inputs: Iterable[Input], num_steps: int, finished: int) -> Iterator[SessionAct]:
    """Yield acts that repeat these inputs and finished steps; consecutive equal prompts become one act."""
    prompt: PromptAct | None = None
    for one, num_forks in _together(inputs):
        added = _prompt_of(lab, one, num_forks)
        is_another = added is None or prompt is None or one.num_steps > num_steps or prompt.copies == MAX_COPIES
        if prompt is not None and (is_another or replace(prompt, copies=1) != added):
            yield prompt
            prompt = None
        if one.num_steps > num_steps:
            yield StepsAct(one.num_steps - num_steps)
            num_steps = one.num_steps
        if added is not None:
            prompt = added if prompt is None else replace(prompt, copies=prompt.copies + 1)
        elif isinstance(one, AbortInput):
            yield AbortAct(one.request_id)
    if prompt is not None:
        yield prompt
    if finished > num_steps:
        yield StepsAct(finished - num_steps)


def _together(inputs: Iterable[Input]) -> Iterator[tuple[Input, int]]:
    """Yield each input with the number of following inputs that fork from it and belong to the same act."""
    first: Input | None = None
    num_forks = 0
    for one in inputs:
        if isinstance(one, AddInput) and not isinstance(one, BranchInput) and one.leader_id is not None:
            num_forks += 1
            continue
        if first is not None:
            yield first, num_forks
        first, num_forks = one, 0
    if first is not None:
        yield first, num_forks


def _prompt_of(lab: Lab, one: Input, num_forks: int) -> PromptAct | None:
    """Return the prompt of an input; None for one without. Raises ConfigError for what a link cannot repeat."""
    if isinstance(one, AbortInput) or (isinstance(one, BrokenStep) and one.reached is None):
        return None
    if type(one) is not AddInput:
        kind = type(one).__name__.removesuffix("Input")
        raise ConfigError(f"a link cannot contain an input of kind {kind!r}: save the lab, or use to_code()")
    tokenizer, beams = lab.session.model.tokenizer, one.options.sampling.beams
    spell = tokenizer.spelled if isinstance(tokenizer, BPETokenizer) else tokenizer.decode
    text, n = spell(one.token_ids), 1 if beams > 1 else 1 + num_forks
    question = question_in(text) if isinstance(tokenizer, BPETokenizer) else None
    max_tokens, priority = one.options.sampling.max_tokens, one.options.priority
    if one.options != RequestOptions(SamplingParams(max_tokens, beams=beams), priority=priority):
        raise ConfigError("a link cannot contain sampling or a cache salt: save the lab, or use to_code()")
    return PromptAct(text if question is None else question, 1, max_tokens, n, beams, priority, question is not None)


# -- sliders: the workload of a session, run again with changed figures ------------------------------------------------


_MOST = {"num_blocks": MAX_BLOCKS, "block_size": MAX_BLOCK_SIZE, "copies": MAX_COPIES}
"""Maximum that a link may name."""


class SessionSliders:
    """Sliders over the current workload of a session. Raises ConfigError if it cannot be run again.

    A real model computes each run again, because the reader may continue to step it.
    """

    def __init__(self, session: OpenSession) -> None:
        self.of = session
        self._variation = Variation(session.shown, on_weights=True)
        self._variation.note_outcome(session.shown)
        self._link = session.permalink()
        self._follow(session)

    def is_of(self, session: OpenSession) -> bool:
        """Return True if the session has had no input and no step since the sliders made it."""
        return self._reached == _reached(session)

    def changed(self, changes: dict[str, int]) -> OpenSession:
        """Return a session with these figures. Raises ConfigError for figures that are impossible."""
        if self._link.bug:
            values = self._variation.values | changes
            session = open_session(replace(self._link, changes=values))
            self._variation.values = values
            self._variation.note_outcome(session.shown)
        else:
            done = self._variation.changed(changes)
            blocks, size = self._variation.values["num_blocks"], self._variation.values["block_size"]
            session = OpenSession(replace(self.of.origin, num_blocks=blocks, block_size=size), done)
        self._follow(session)
        return session

    def to_dict(self) -> dict[str, Any]:
        """Return figures and outcome as JSON types for the browser."""
        found = self._variation.to_dict()
        for figure in found["figures"]:
            figure["most"] = min(figure["most"], _MOST[figure["name"]])
        return found

    def _follow(self, session: OpenSession) -> None:
        self._reached = _reached(session)


def sliders_of(session: OpenSession) -> SessionSliders | None:
    """Return the sliders of a session; None if it has no workload that can be run again."""
    try:
        return SessionSliders(session)
    except ConfigError:
        return None


def _reached(session: OpenSession) -> tuple[str, int, int]:
    lab = session.lab
    return lab.lab_id, len(lab.inputs), lab.session.stepper.engine.num_finished_steps
