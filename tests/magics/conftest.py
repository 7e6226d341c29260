"""The shell and the notebook of every test of the magics."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import labengine
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison
from magic_notebook import PROMPT, START, Notebook


@pytest.fixture(scope="module")
def shell(jupyter_dirs: dict[str, str]) -> Iterator[Any]:
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    InteractiveShell.clear_instance()


@pytest.fixture
def notebook(shell: Any, capsys: pytest.CaptureFixture[str]) -> Iterator[Notebook]:
    """The extension freshly loaded, and no lab."""
    with pytest.MonkeyPatch.context() as patch:  # reset() collects garbage: slow beside all that other tests have made
        patch.setattr(gc, "collect", lambda: 0)
        shell.reset()
    labengine.load_ipython_extension(shell)
    yield Notebook(shell, capsys)
    labs = [value for value in shell.user_ns.values() if isinstance(value, Lab | Comparison)]
    labengine.unload_ipython_extension(shell)
    for lab in labs:
        lab.close()


@pytest.fixture
def started(notebook: Notebook) -> Notebook:
    """Twelve blocks of four tokens on the simulated model, and two equal requests waiting."""
    notebook.value(START)
    notebook.printed(PROMPT)
    return notebook
