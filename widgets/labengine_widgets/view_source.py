"""What a view may know of its lab or comparison: hooks, recording, state, and a way to post commands."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from labengine import events as ev
from labengine.fold import Fold
from labengine.hooks import Hooks
from labengine.timeline import Timeline


@runtime_checkable
class ViewSource(Protocol):
    """A lab, or an opened trace, as its views see it. Views read and post; they never touch the engine.

    title: one line, such as "smollm2 · edition labengine · 32 blocks of 16".
    lab: a name that no other lab in this process has; all views of one lab share one feed.
    hooks: None for an opened trace, in which nothing happens any more.
    timeline: the recording; None when the lab records nothing: then the feed keeps a recording of its own.
    is_live: False for a recording to which nothing is added any more (a closed lab's, an opened trace): it cannot be
        stepped, and commands are refused.
    note: where there are no controls, a sentence that says why; empty for none.
    is_running: True while the lab steps by itself, False while the user steps by hand.
    phase: the phase done last in an open step (schedule, forward, sample or update); None between steps.
    stopped: the breakpoint that the newest run or step has met, in a sentence that names it and the event.
    """

    title: str
    lab: str
    hooks: Hooks | None
    timeline: Timeline | None

    @property
    def is_live(self) -> bool:
        """True when it can be stepped."""

    @property
    def note(self) -> str:
        """What a view says in place of its controls."""

    @property
    def is_running(self) -> bool:
        """True while the lab steps by itself."""

    @property
    def phase(self) -> str | None:
        """The phase done last in an open step, None between steps."""

    @property
    def stopped(self) -> str | None:
        """The breakpoint that the newest run or step has met, and its event, in a sentence; None for none."""

    def fold(self) -> Fold:
        """A copy of the state now; may be asked for inside a listener, too."""

    def token_text(self, token_id: int) -> str:
        """Readable text of one token."""

    def seams(self) -> dict[str, Any]:
        """Which method decided an event, by the event's kind: {"seam", "class", "reason", "source", "base", ...}.

        By "Kind:variant" where they differ within a kind. Plain JSON types. Empty where nothing is known of the code.
        """

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have the lab's own thread do `action`; the Future carries the error, if any.

        Actions: step, phase, start, pause, reset, add(prompt, copies, max_tokens), abort(request_id); where the lab
        can: goto(step), rewind(step), fork(step), break(kind).
        """


class GuidedSentence(Protocol):
    """A guided sentence, and the event after which it is said."""

    @property
    def sentence(self) -> str:
        """What is said."""

    @property
    def question(self) -> str:
        """A prediction to ask for here; empty: none."""

    def matches(self, event: ev.Event) -> bool:
        """Whether it belongs to this event."""


class PairViewSource(Protocol):
    """The sources of both views of a comparison, as their view sees them."""

    @property
    def title(self) -> str:
        """What is compared."""

    @property
    def names(self) -> tuple[str, str]:
        """What to call the sides."""

    @property
    def roles(self) -> tuple[str, str]:
        """What each side is in the story, such as the bug and the fix; empty where there is none."""

    @property
    def guide(self) -> Sequence[GuidedSentence]:
        """Sentences in the order in which they are due."""

    @property
    def view_sources(self) -> tuple[ViewSource, ...]:
        """Left and right."""

    @property
    def follow_up_question(self) -> str:
        """The words of the button that goes on with the story, which is there while has_follow_up."""

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """The recordings, left and right."""

    @property
    def aligned_at(self) -> tuple[int, int]:
        """The moments up to which both sides have done the same."""

    @property
    def last_boundary(self) -> tuple[int, int]:
        """The moments at which both last stood between two steps."""

    @property
    def is_live(self) -> bool:
        """True when it can be stepped."""

    @property
    def is_running(self) -> bool:
        """True while both step by themselves."""

    @property
    def has_follow_up(self) -> bool:
        """True while the follow-up command is available."""

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have both do something; the Future carries the error, if any."""
