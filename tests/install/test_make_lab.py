"""`make lab` leads to the first notebook, with a browser and without."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path

import pytest

from checkout import ROOT
from waiting import wait_until


def lab_command(environment: Path) -> list[str]:
    """Return the last command of `make lab`, for this interpreter, a free port, and no browser."""
    make = ["make", "--dry-run", "lab", f"VENV={environment}", "LAB_FLAGS=--no-browser --port=0"]
    alone = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }  # make test is a make, too
    recipe = subprocess.run(make, cwd=ROOT, env=alone, capture_output=True, text=True, check=True).stdout.splitlines()
    python, *arguments = shlex.split(recipe[-1])
    assert python == str(environment / "bin" / "python")
    return [sys.executable, *arguments]


def opened(address: str) -> HTTPResponse:
    """Return the page: the address is printed a moment before the server listens."""
    pages: list[HTTPResponse] = []

    def answers() -> bool:
        with suppress(urllib.error.URLError):
            pages.append(urllib.request.urlopen(address))
        return bool(pages)

    wait_until(answers, f"an answer at {address}")
    return pages[0]


@pytest.mark.usefixtures("jupyter_dirs")
def test_the_address_it_prints_is_the_first_notebooks(tmp_path: Path) -> None:
    with subprocess.Popen(lab_command(tmp_path / "venv"), cwd=ROOT, stderr=subprocess.PIPE, text=True) as lab:
        assert lab.stderr is not None
        try:
            address = next(line.split()[-1] for line in lab.stderr if "http://127.0.0.1" in line)
            notebook = address.partition("/lab/tree/")[2].partition("?")[0]
            assert notebook == min(path.relative_to(ROOT).as_posix() for path in (ROOT / "notebooks").glob("*.ipynb"))
            with opened(address) as page:
                assert page.status == 200 and "/login" not in page.url
        finally:
            lab.kill()
