"""The %lab commands, in the order of the help."""

from __future__ import annotations

from labengine.magics import bug, examining, looking, patching, stepping, time
from labengine.magics.table import put_in_order

MODULES = (stepping, looking, time, patching, examining, bug)
"""Importing these modules registers their commands."""

put_in_order(
    *("start", "drive", "add", "step", "run", "pause", "reset", "abort"),
    *("show", "view", "select", "check", "status", "why"),
    *("back", "forward", "goto", "rewind", "fork", "break", "save", "open", "attach"),
    *("seams", "seam", "patch", "find", "judge", "doctor"),
    *("bugs", "bug", "exercise", "close"),
)
