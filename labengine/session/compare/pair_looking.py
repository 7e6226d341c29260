"""Looking at both sides of a comparison: the states, an earlier step, what is chosen, and why the two part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from labengine.config import ConfigError
from labengine.session.compare.comparable import generations
from labengine.session.compare.difference import Difference, difference_of, why_of
from labengine.session.compare.pair_moments import PairLook, crash_moments, look_at, moments_of, steps_from
from labengine.session.compare.paired import Ends, Paired
from labengine.session.recorded import CRASH
from labengine.snapshot import Snapshot

if TYPE_CHECKING:
    from labengine_widgets.selection import Selection
    from labengine_widgets.why import Why


class PairLooking(Paired):
    """What one can see of a comparison without changing it."""

    _standing: tuple[Ends, Ends, Ends] | None = None
    """(generations, ends, moments): where Python has put the view, until something happens."""

    @property
    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        """The state of either side."""
        return self.left.snapshot(), self.right.snapshot()

    def snapshot(self) -> tuple[Snapshot, Snapshot]:
        """The state of either side."""
        return self.snapshots

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def moments(self) -> Ends | None:
        """Where goto, back, forward or a breakpoint have put the view on either side; None: at the newest."""
        if self._standing is None or self._standing[:2] != (generations(self.timelines), self._newest()):
            return None
        return self._standing[2]

    def goto(self, step: int | Literal["crash"], event: int | None = None) -> PairLook:
        """Look at both sides after a step (0: before the first one); the view stands there, and no engine moves.

        A side that has taken fewer steps stands at its end. "crash" is the moment at which a part of either side
        raised; the other side stands at the end of that step. ConfigError for what is not recorded. A moment inside a
        step is one side's own: comparison.left.goto(step, event).
        """
        if event is not None:
            raise ConfigError(f"a moment inside a step is one side's own: comparison.left.goto({step!r}, {event!r})")
        if step == CRASH:
            return self._look(crash_moments(self.timelines, (self.left.crash, self.right.crash)))
        return self._look(moments_of(self.timelines, step))

    def back(self, num_steps: int = 1) -> PairLook:
        """Look at the end of the step before the one where Python has put the view, or of so many before it."""
        return self.goto(steps_from(self.timelines, self.moments or self._newest(), num_steps)[0])

    def forward(self, num_steps: int = 1) -> PairLook:
        """Look at the end of the step after the one where Python has put the view, up to the newest."""
        return self.goto(steps_from(self.timelines, self.moments or self._newest(), num_steps)[1])

    def _look(self, moments: Ends) -> PairLook:
        self._stand(moments)
        if self._view is not None:
            self._view.stand_at_both(None if moments == self._newest() else moments)
        return look_at(self.timelines, moments, self.names)

    def _stand(self, moments: Ends) -> None:
        newest = self._newest()
        self._standing = None if moments == newest else (generations(self.timelines), newest, moments)

    def _stand_at_stop(self, side: int, moment: int) -> None:
        """The view stands where a side has met a breakpoint; back and forward go on from that step."""
        if self._view is not None:
            self._view.stand_at(side, moment)

    # -- what is chosen ------------------------------------------------------------------------------------------------

    @property
    def selection(self) -> Selection | None:
        """What is chosen on both sides. Settable: Selection("block", 3), ("block", 3), or None for nothing.

        ConfigError, and nothing changes, for what neither side has.
        """
        chosen: Selection | None = self.left.selection
        return chosen

    @selection.setter
    def selection(self, chosen: Selection | tuple[str, int | str] | None) -> None:
        try:
            self.left.selection = chosen
        except ConfigError:  # there is none on the left: the right side may have one
            self.right.selection = chosen
            self.left.feed.select(self.right.selection)
        else:
            self.right.feed.select(self.left.selection)

    # -- where they part -----------------------------------------------------------------------------------------------

    def first_difference(self) -> Difference | None:
        """The first event at which the two decide otherwise, with both sides' moments and words; None if they do not.

        How they were made (blocks, their size, the null block) is no decision: `configuration_difference` tells it.
        """
        return difference_of(self)

    @property
    def configuration_difference(self) -> str:
        """In what the two were made differently, in one sentence; empty when it is in nothing but their parts."""
        from labengine_widgets.configuration import told_configurations

        return told_configurations(*self.timelines, self.names)

    def why(self, **subject: Any) -> Why:
        """Why the two part: both events, and the methods that decided them. A thing is asked about on its own side."""
        if subject:
            asked = ", ".join(f"{name}={value!r}" for name, value in subject.items())
            raise ConfigError(
                f"each side has its own answer: comparison.left.why({asked}) or comparison.right.why({asked}); "
                f"comparison.why() tells why the two part"
            )
        return why_of(self)
