"""The commands of %lab, each a function of the current lab and of what its line gave, told in this order."""

from __future__ import annotations

from labengine.magics import bug, files, looking, stepping, time
from labengine.magics.table import put_in_order

MODULES = (stepping, looking, time, files, bug)
"""Importing them has put their commands into the table."""

put_in_order(
    *("start", "add", "step", "run", "pause", "reset", "abort"),
    *("show", "view", "select", "check", "status", "why"),
    *("back", "forward", "goto", "rewind", "fork", "break", "save", "open"),
    *("bug", "close"),
)
