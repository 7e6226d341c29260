"""An engine in a notebook: a restarted kernel, a run in the background, an interrupted cell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser.lab_page import LabPage
from browser.lab_pages import LabPages
from browser.live_dashboard import dashboard, painted, wait_painted
from browser.open_view import printed

SLOWLY = """
import time
runner, forward = lab.session.model.runner, lab.session.model.runner.forward
runner.forward = lambda plan: (time.sleep(0.1), forward(plan))[1]
"""
"""Half a minute or more to the end: it is still running when a test pauses or interrupts it."""


def test_a_restart_is_shown_where_the_lab_was(lab_page: LabPage) -> None:
    lab_page.open_cells("import labengine\nlab = labengine.Lab('simulated', num_blocks=12, block_size=4)\nlab")
    lab_page.run_all()
    wait_painted(lab_page, "used", "0")
    lab_page.restart()
    message = dashboard(lab_page).locator(".le-message")
    lab_page.wait_for("a word on the lost kernel", lambda: "is gone: run the cell again" in message.inner_text())
    assert dashboard(lab_page).get_by_role("button", name="Step", exact=True).is_disabled()


@pytest.fixture(scope="module")
def real_lab(lab_pages: LabPages, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """A real lab with requests to run, its dashboard open."""
    with lab_pages.lent(request) as lab:
        lab.open_cells(
            "%load_ext labengine",
            "%lab start --model smollm2 --blocks 128 --block-size 16",
            f"ids = [lab.add('The tide comes in, and', max_tokens=400, ignore_eos=True) for _ in range(4)]\n{SLOWLY}",
        )
        for cell in range(3):
            lab.run_cell(cell)
        assert lab.errors() == []
        yield lab


def test_cells_run_while_the_engine_runs_and_pause_answers(real_lab: LabPage) -> None:
    real_lab.execute("%lab run")
    wait_painted(real_lab, "running", "true")
    cell = real_lab.execute(
        "before = lab.stats().num_steps\nwhile lab.is_running and lab.stats().num_steps < before + 5: pass\n"
        "print(lab.is_running, lab.stats().num_steps >= before + 5)"
    )
    assert real_lab.text(cell) == "True True\n", "the engine stepped on while this cell ran"
    dashboard(real_lab).get_by_role("button", name="Pause").click()
    wait_painted(real_lab, "running", "false")
    state = "lab.is_running, lab.check(), lab.stats().num_sampled_tokens"
    first, step = printed(real_lab, state), printed(real_lab, "lab.snapshot().step")
    wait_painted(real_lab, "step", step)
    assert first.startswith("False [] ")
    assert (printed(real_lab, state), painted(real_lab, "step")) == (first, step), "a paused lab takes no steps"


def test_an_interrupted_cell_leaves_lab_and_dashboard_consistent(real_lab: LabPage) -> None:
    before = int(painted(real_lab, "step") or 0)
    real_lab.execute("lab.run()", wait=False)
    real_lab.wait_for("some steps", lambda: int(painted(real_lab, "step") or 0) > before + 5)
    real_lab.interrupt()
    real_lab.wait_idle()
    assert [error.partition(": ")[2].partition(":")[0] for error in real_lab.errors()] == ["KeyboardInterrupt"]
    checked, _, used = printed(real_lab, "lab.check(), lab.snapshot().num_used_blocks").rpartition(" ")
    assert checked == "[]"
    wait_painted(real_lab, "used", used)
    wait_painted(real_lab, "running", "false")
