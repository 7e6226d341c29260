"""The interface between views and their lab or comparison: hooks, recording, state, and posted commands."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from labengine import events as ev
from labengine.record.fold import Fold
from labengine.record.hooks import Hooks
from labengine.record.timeline import Timeline


@runtime_checkable
class ViewSource(Protocol):
    """The views' interface to a lab or an opened trace. Views read and post; they never touch the engine.

    lab: a name that no other lab in this process has; all views of one lab share one feed.
    hooks: None for an opened trace, which emits no events.
    timeline: the recording; None when the lab records nothing: then the feed keeps its own recording.
    """

    lab: str
    hooks: Hooks | None
    timeline: Timeline | None

    @property
    def title(self) -> str:
        """One line, such as "smollm2 · edition labengine · 32 blocks of 16"."""

    @property
    def is_live(self) -> bool:
        """False for a closed lab or an opened trace: nothing is added to the recording, and commands are refused."""

    @property
    def note(self) -> str:
        """The reason for missing controls, in a sentence; empty with controls. A running vLLM is live and has none."""

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself, False while the user steps by hand."""

    @property
    def phase(self) -> str | None:
        """The last phase done in an open step; None between steps."""

    @property
    def stopped(self) -> str | None:
        """The breakpoint that the newest run or step has met, and its event, in a sentence; None for none."""

    @property
    def asked(self) -> dict[str, Any] | None:
        """The question that the next step answers, as labengine's Question.to_dict(); None for none."""

    @property
    def request_options(self) -> tuple[str, ...]:
        """The options, of n, beams and priority, that the engine takes; empty without controls."""

    def fold(self) -> Fold:
        """Return a copy of the present state; may be called inside a listener, too."""

    def token_text(self, token_id: int) -> str:
        """Return one token as readable text."""

    def engine_id(self, request_id: int) -> str:
        """Return the engine's own id of a request, such as vLLM's "cmpl-..."; empty for none. Untrusted text."""

    def seams(self) -> dict[str, Any]:
        """Return the method that decides each kind of event: {"seam", "class", "reason", "source", "base", ...}.

        Keys are kinds, or "Kind:variant" where methods differ within a kind. Plain JSON types; empty if unknown.
        """

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have the lab's own thread do `action`; the Future carries the error, if any.

        Actions: step, phase, start, pause, reset, add(prompt, copies, max_tokens, n, beams, priority), goto(step),
        predict(prediction), wish(wish).
        """


class GuidedSentence(Protocol):
    """A guided sentence, and the event after which it is shown."""

    @property
    def sentence(self) -> str:
        """The sentence's text."""

    @property
    def question(self) -> str:
        """A prediction to ask for here; empty for none."""

    @property
    def about_slots(self) -> bool:
        """True if the sentence is about slots: block tables are then shown slot by slot."""

    def matches(self, event: ev.Event) -> bool:
        """Return True if the sentence belongs to this event."""


class PairViewSource(Protocol):
    """The compare view's interface to a comparison: the sources of both sides."""

    @property
    def title(self) -> str:
        """The comparison's title, one line."""

    @property
    def names(self) -> tuple[str, str]:
        """The names of the sides, left and right."""

    @property
    def roles(self) -> tuple[str, str]:
        """Each side's role in the story, such as the bug and the fix; empty without a story."""

    @property
    def guide(self) -> Sequence[GuidedSentence]:
        """Sentences in the order in which they are due."""

    @property
    def view_sources(self) -> tuple[ViewSource, ...]:
        """The sources of the left and the right side."""

    @property
    def follow_up_question(self) -> str:
        """The label of the button that runs the follow-up, shown while has_follow_up."""

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """The recordings, left and right."""

    @property
    def aligned_at(self) -> tuple[int, int]:
        """The last moments (left, right) at which both sides had done the same acts."""

    @property
    def last_boundary(self) -> tuple[int, int]:
        """The last moments (left, right) at which both sides were between two steps."""

    @property
    def is_live(self) -> bool:
        """True when it can be stepped."""

    @property
    def is_running(self) -> bool:
        """True while both step by themselves."""

    @property
    def is_going_back(self) -> bool:
        """True while both sides are rewound or reset: one of them may be there before the other."""

    @property
    def has_follow_up(self) -> bool:
        """True while the follow-up command is available."""

    def post_command(self, action: str, **arguments: Any) -> Future[Any]:
        """Have both sides run a command; the Future carries the error, if any."""
