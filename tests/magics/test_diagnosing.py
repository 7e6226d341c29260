"""%lab doctor: of the lab, and of a file."""

from __future__ import annotations

from pathlib import Path

from labengine.prefix_doctor.diagnosis import Diagnosis
from magic_notebook import Notebook


def test_the_lab_is_examined_and_the_diagnosis_stored(started: Notebook, tmp_path: Path) -> None:
    started.printed("%lab run --wait")
    assert "A hit ends after a multiple of" in started.printed("%lab doctor")
    diagnosis = started.shell.user_ns["diagnosis"]
    assert isinstance(diagnosis, Diagnosis)
    started.printed(f"%lab save {tmp_path / 'run.lab'}")
    started.printed(f"%lab doctor {tmp_path / 'run.lab'}")
    assert started.shell.user_ns["diagnosis"].look_ups == diagnosis.look_ups


def test_what_is_no_recording_is_refused_in_a_sentence(started: Notebook) -> None:
    assert "cannot be read" in started.refused("%lab doctor nothing.lab")
    assert "--blocks must be" in started.refused("%lab doctor --blocks -1")
