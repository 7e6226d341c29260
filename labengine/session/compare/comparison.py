"""Two engines beside one another: the same requests, the same steps, and where they part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from labengine.config import checked_bool, checked_text
from labengine.deprecated import with_old_names
from labengine.engine.interrupts import interrupts_allowed, interrupts_deferred
from labengine.session.compare.comparable import Recorded, checked_names, is_live, names_of, refuse_incomparable
from labengine.session.compare.later import Later
from labengine.session.compare.lockstep import Act
from labengine.session.compare.pair_time import PairTime

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from labengine_widgets.compare import CompareView
    from labengine_widgets.compared import Stop
    from labengine_widgets.joint import PairViewSource

_SAME = "The two tell the same so far."


@with_old_names
class Comparison(PairTime):
    """Two labs in lockstep: whatever is asked of the comparison is done to both, left first.

    left, right: labs that have seen the same requests, or opened traces (which cannot be stepped).
    names: what to call them; by default their editions.
    title, guide, later: a scenario's title, its guided sentences, and the acts that show what it costs later.
    roles: what each side is in the story, in a few words: "the bug ...", "the fix ...".
    ConfigError, before anything happens, for sides that have nothing to do with each other.

    An interrupt may leave one side a step ahead: the next call first brings the other along. An error of one side does
    not hold up the other: both have their turn, then it is raised. Told by theme: steps in pair_stepping.py, earlier
    moments, the selection and the difference in pair_looking.py, breakpoints and rewind in pair_time.py.
    """

    def __init__(
        self,
        left: Recorded,
        right: Recorded,
        *,
        names: tuple[str, str] | None = None,
        roles: tuple[str, str] = ("", ""),
        title: str = "",
        guide: Sequence[Stop] = (),
        later: Sequence[Act] = (),
        later_question: str = "What does it cost later?",
    ) -> None:
        refuse_incomparable(left, right)
        self.left, self.right = left, right
        self.names, self.roles = checked_names(names) or names_of(left, right), roles
        self.title = title or f"{self.names[0]} and {self.names[1]}"
        self.guide, self.later_question = tuple(guide), later_question
        self.is_live = all(map(is_live, self.sides))
        self._pair(Later(later, left.snapshot().step), self._step_in_background)

    def show(self) -> CompareView:
        """The compare view."""
        with interrupts_deferred():
            from labengine_widgets.compare import CompareView

        if self._view is None:
            with interrupts_deferred():
                made = CompareView(self.view_source())
                with self._guard:  # of views that several threads have made at once the first one stays
                    self._view = self._view or made
                if self._view is not made:
                    made.close()
        return self._view

    def export_html(self, path: str | PathLike[str], title: str | None = None, *, charts: bool = False) -> Path:
        """One self-contained page in which both sides scrub together, with no Python and no network; its path.

        charts: plotly's figures of both sides too, with plotly itself (5 MB more).
        """
        from labengine_widgets.pair_page import export_pair

        charts = checked_bool("charts", charts)
        if title is not None:
            checked_text("title", title)
        with ExitStack() as still:
            still.enter_context(interrupts_deferred())
            for lab in self._labs() if self.is_live and not self._is_closed else ():
                still.enter_context(lab._still())
            still.enter_context(interrupts_allowed())
            return export_pair(self.view_source(), path, title, charts=charts)

    def view_source(self) -> PairViewSource:
        """What the compare view may see and ask of this comparison (labengine_widgets.joint.PairViewSource)."""
        from labengine.session.compare.pair_view_source import ComparisonViewSource

        return ComparisonViewSource(self)

    def close(self) -> None:
        """Stop and close both sides; what was recorded can still be looked at, also in the view. Twice is harmless."""
        with interrupts_deferred():
            self._is_closed = True
            self._background.close()
            for side in self.sides:
                close = getattr(side, "close", None)
                if close is not None:
                    close()
            for feed in self._view.feeds if self._view is not None else ():
                feed.settle()

    def __enter__(self) -> Comparison:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        from labengine_widgets.ascii import block_map

        maps = zip(self.names, map(block_map, self.snapshots, self.timelines), strict=True)
        return "\n\n".join([*(f"{name}\n{drawn}" for name, drawn in maps), self._told_difference()])

    def _told_difference(self) -> str:
        found = self.first_difference()
        return str(found) if found else " ".join(filter(None, [_SAME, self.configuration_difference]))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.show()._repr_mimebundle_(**options)

    def _ipython_display_(self) -> None:
        self.show()._ipython_display_()
