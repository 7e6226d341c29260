"""labengine course DIR: what it writes, what it refuses, and that the wheel has the notebooks and the command."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from checkout import ROOT
from labengine.__main__ import main
from labengine.config import ConfigError
from labengine.course.copying import copy_course, course_files

NAMES = {
    path.relative_to(ROOT / "notebooks").as_posix()
    for pattern in ("*.ipynb", "pictures/*")
    for path in (ROOT / "notebooks").glob(pattern)
}


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_notebooks_and_their_pictures_are_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "course"
    assert main(["course", str(folder)]) == 0
    assert names_in(folder) == NAMES
    assert f"wrote {len(NAMES)} files" in capsys.readouterr().out
    (folder / "01_first_light.ipynb").unlink()
    assert main(["course", str(folder)]) == 0
    assert f"wrote 1 file ({len(NAMES) - 1} were already there)" in capsys.readouterr().out
    assert main(["course", str(folder)]) == 0
    assert "are already there" in capsys.readouterr().out


def test_a_changed_file_is_kept_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = tmp_path / "01_first_light.ipynb"
    changed.write_text("the reader's own")
    assert main(["course", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "01_first_light.ipynb" in said and "Name a new folder" in said
    assert names_in(tmp_path) == {changed.name} and changed.read_text() == "the reader's own"


def test_what_can_be_no_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["course", str(tmp_path / "file")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


@pytest.mark.sweep
def test_an_installed_wheel_copies_them(tmp_path: Path) -> None:
    """Installed without what it needs: the command needs the standard library alone."""
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "build", "--wheel", "--quiet", f"--out-dir={tmp_path}", ROOT], check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            name.removeprefix("labengine/course/notebooks/") for name in archive.namelist() if "/notebooks/" in name
        }
        assert packed == NAMES
        assert not [name for name in archive.namelist() if name.startswith(("notebooks/", "tests/", "tools/"))]
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([*uv, "venv", "--quiet", f"--python={sys.executable}", tmp_path / "env"], check=True)
    subprocess.run([*uv, "pip", "install", "--quiet", f"--python={python}", "--no-deps", wheel], check=True)
    folder = tmp_path / "course"
    done = subprocess.run(
        [python.with_name("labengine"), "course", folder], cwd=tmp_path, capture_output=True, text=True, env={}
    )
    assert done.returncode == 0, done.stderr
    assert names_in(folder) == NAMES


def test_a_pipe_in_place_of_a_notebook_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / course_files()[0].name)
    with pytest.raises(ConfigError, match="00_why_blocks"):
        copy_course(tmp_path)
