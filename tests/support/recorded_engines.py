"""Recordings as the doctor opens them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from labengine.lab import Lab
from labengine.prefix_doctor.diagnosis import Diagnosis
from labengine.prefix_doctor.examined import diagnosis_of_recordings
from labengine.prefix_doctor.look_ups.recorded_engine import RecordedEngine
from labengine.prefix_doctor.look_ups.recordings import recordings_of
from labengine.prefix_doctor.mended import Costs
from labengine.prefix_doctor.traffic.prompt import Traffic
from labengine.prefix_doctor.traffic.recorded import traffic_of_recordings
from labengine.prefix_doctor.traffic.sources import MAX_SECONDS, opened
from labengine.record.files.file_access import MAX_BYTES, Limits
from labengine.vllm.stream.live import LiveStream


def diagnosis_without_runs(place: Lab | LiveStream | Path) -> Diagnosis:
    """Return why the requests of a recording hit or missed, without running them again in other settings."""
    recordings = recordings_of(place, None, Limits(place, MAX_BYTES, MAX_SECONDS))
    late = [replace(one, repeatable=None) for one in recordings]
    return diagnosis_of_recordings(late, Costs())


def traffic_in(place: Lab | Path, tokenizer: Path | None = None) -> Traffic:
    """Return the prompts of a file, or the requests of a recording."""
    found = opened(place, tokenizer, Limits(place, MAX_BYTES, MAX_SECONDS))
    return found if isinstance(found, Traffic) else traffic_of_recordings(found)


def recorded_engine(place: Lab | Path) -> RecordedEngine:
    """Return the first piece of a recording."""
    return recordings_of(place, None, Limits(place, MAX_BYTES, MAX_SECONDS))[0]
