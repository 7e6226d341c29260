"""The interface of a comparison's view: the sources of both sides, and commands that run on its own thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from labengine.config import ConfigError
from labengine.record.timeline import Timeline
from labengine.session.compare.history import PairHistory
from labengine.session.compare.pair import Ends, SidePair
from labengine.session.compare.pair_runs import PairRuns
from labengine.session.view_source import Command

if TYPE_CHECKING:  # widgets are imported for views only
    from labengine_widgets.view_source import GuidedSentence, ViewSource


class ComparisonViewSource:
    """A comparison's labengine_widgets.view_source.PairViewSource.

    commands: functions by the names that the view sends. guide, follow_up_question: a scenario's story.
    """

    def __init__(
        self,
        pair: SidePair,
        runs: PairRuns,
        history: PairHistory,
        commands: Mapping[str, Command],
        *,
        title: str,
        names: tuple[str, str],
        roles: tuple[str, str],
        guide: Sequence[GuidedSentence],
        follow_up_question: str,
    ) -> None:
        self.title, self.names, self.roles = title, names, roles
        self.guide, self.follow_up_question = guide, follow_up_question
        self.view_sources: tuple[ViewSource, ...] = tuple(side.view_source() for side in pair.sides)
        self._pair, self._runs, self._history, self._commands = pair, runs, history, commands

    @property
    def timelines(self) -> tuple[Timeline, Timeline]:
        """The recordings, left and right."""
        return self._pair.timelines

    @property
    def aligned_at(self) -> Ends:
        """The last moments (left, right) at which both sides had done the same acts."""
        return self._pair.aligned_at

    @property
    def last_boundary(self) -> Ends:
        """The last moments (left, right) at which both sides were between two steps."""
        return self._pair.last_boundary

    @property
    def is_live(self) -> bool:
        """False for opened traces."""
        return self._pair.is_live

    @property
    def is_running(self) -> bool:
        """True while both sides run."""
        return self._runs.is_running

    @property
    def is_going_back(self) -> bool:
        """True while both sides are rewound or reset: one of them may be there before the other."""
        return self._pair.is_going_back

    @property
    def has_follow_up(self) -> bool:
        """True while the follow-up can be asked for."""
        return self._history.has_follow_up

    def post(self, action: str, **arguments: Any) -> Future[Any]:
        """Have the comparison's own thread run a command; the Future carries its result or its error.

        ConfigError for an unknown command.
        """
        if action not in self._commands:
            raise ConfigError(f"a comparison cannot {action}; it can {', '.join(self._commands)}")
        if action == "pause":  # posted, it would wait for a step that may not end
            self._runs.background.end_step()
        return self._runs.background.post(partial(self._commands[action], **arguments))
