"""Saving a session: its recording, and what else is known of it, in one file."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from labengine.config import ConfigError
from labengine.session.saved.facts import facts_of
from labengine.trace.file import save

if TYPE_CHECKING:
    from labengine.lab import Lab


def save_lab(lab: Lab, path: str | PathLike[str]) -> None:
    """Write the session to a file for labengine.open: in one piece or not at all, also of a lab that is closed.

    ConfigError when nothing was recorded, or the file cannot be written.
    """
    if lab.timeline is None:
        raise ConfigError("nothing was recorded, so there is nothing to save: make the lab with record=True")
    with lab._stepper.turn_to_look():
        save(path, lab.timeline, facts_of(lab), lab.token_text)
