"""%lab find: parts by name, what is found, and what the notebook then holds."""

from __future__ import annotations

import pytest

from labengine.finder import find as find_module
from labengine.finder.counterexample import Counterexample
from labengine.finder.scopes import small_scopes
from magic_notebook import Notebook

CELL = """
from labengine import BlockPool

class Untouched(BlockPool):
    def touch(self, block_ids):
        raise RuntimeError("no hits here")
"""


@pytest.fixture(autouse=True)
def in_one_small_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_module, "kind_scopes", lambda overridden, **settings: (((), ()), ((), ())))
    monkeypatch.setattr(find_module, "small_scopes", lambda keys, **settings: small_scopes(**settings)[:1])
    monkeypatch.setattr(find_module, "large_scopes", lambda keys, **settings: small_scopes(**settings)[:1])


def test_a_class_of_a_cell_is_found_opened_and_taken_home(notebook: Notebook) -> None:
    notebook.shell.run_cell(CELL).raise_error()
    printed = notebook.printed("%lab find Untouched --seconds 60")
    found = notebook.shell.user_ns["counterexample"]
    assert isinstance(found, Counterexample) and found.message == "RuntimeError: no hits here"
    assert "print(counterexample.to_test())" in printed
    comparison = notebook.shell.user_ns["comparison"]
    assert [side.snapshot().step for side in comparison.sides][1] > 0
    assert "class Untouched(BlockPool):" in found.to_test()
    notebook.printed("%lab close")


def test_names_that_are_nothing_are_refused(notebook: Notebook) -> None:
    assert "no variable 'Frob'" in notebook.refused("%lab find Frob")
    assert "no lab yet" in notebook.refused("%lab find")
