"""The sliders of the page's session: its workload as it was, run again with other figures, and the link to that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labengine.config import ConfigError
from labengine.live_page.permalink import MAX_BLOCK_SIZE, MAX_BLOCKS, MAX_COPIES
from labengine.live_page.session import OpenSession, open_session
from labengine.session.compare.variation import Variation

_MOST = {"num_blocks": MAX_BLOCKS, "block_size": MAX_BLOCK_SIZE, "copies": MAX_COPIES}
"""A link names no more."""


class SessionSliders:
    """The workload of a session at this moment. ConfigError for one that cannot be run again.

    A real model computes each run anew, since the reader may go on stepping it.
    """

    def __init__(self, session: OpenSession) -> None:
        self.of = session
        self._variation = Variation(session.shown, on_weights=True)
        self._variation.note_outcome(session.shown)
        self._link = session.permalink()
        self._follow(session)

    def is_of(self, session: OpenSession) -> bool:
        """True if nothing was added to the session, and no step taken, since the sliders led to it."""
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
        """Return figures and outcome as JSON types, for the browser."""
        found = self._variation.to_dict()
        for figure in found["figures"]:
            figure["most"] = min(figure["most"], _MOST[figure["name"]])
        return found

    def _follow(self, session: OpenSession) -> None:
        self._reached = _reached(session)


def sliders_of(session: OpenSession) -> SessionSliders | None:
    """Return the sliders of a session; None where there is no workload, or none that can be run again."""
    try:
        return SessionSliders(session)
    except ConfigError:
        return None


def _reached(session: OpenSession) -> tuple[str, int, int]:
    lab = session.lab
    return lab.lab_id, len(lab.inputs), lab.session.stepper.engine.num_finished_steps
