"""%lab judge: two requests of a lab, or one request of two engines."""

from __future__ import annotations

import pytest

from labengine.scenarios import bug
from labengine.session.judging.verdict import RunVerdict
from magic_notebook import Notebook

OFF_BY_ONE = bug("nano-vllm-71")

pytestmark = pytest.mark.filterwarnings("ignore::labengine.session.violation_warnings.ViolationWarning")


def verdict_of(notebook: Notebook) -> RunVerdict:
    verdict = notebook.shell.user_ns["verdict"]
    assert isinstance(verdict, RunVerdict)
    return verdict


def test_two_requests_of_the_lab(started: Notebook) -> None:
    started.printed("%lab run --wait")
    started.printed("%lab judge A b")
    assert verdict_of(started).kind == "equal" and verdict_of(started).names == ("request A", "request B")


def test_the_first_differing_request_of_two_engines_side_by_side(notebook: Notebook) -> None:
    notebook.printed(f"%lab bug {OFF_BY_ONE.id}")
    notebook.printed("%lab judge")
    assert verdict_of(notebook).kind == "wrong content" and verdict_of(notebook).names[0] == "PR 71"
    assert "name a single request" in notebook.refused("%lab judge A B")
    notebook.printed("%lab close")


def test_what_cannot_be_judged_is_refused_in_a_sentence(started: Notebook) -> None:
    assert "%lab judge A B" in started.refused("%lab judge A")
    assert "no request Z" in started.refused("%lab judge A Z")
    assert "has not sampled a token yet" in started.refused("%lab judge A B")
