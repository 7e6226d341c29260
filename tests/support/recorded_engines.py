"""Recordings as the doctor opens them."""

from __future__ import annotations

from pathlib import Path

from labengine.lab import Lab
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.traffic.sources import MAX_SECONDS
from labengine.record.files.file_access import MAX_BYTES, Limits


def recorded_engine(place: Lab | Path) -> RecordedEngine:
    """Return the first piece of a recording."""
    return recordings_of(place, None, Limits(place, MAX_BYTES, MAX_SECONDS))[0]
