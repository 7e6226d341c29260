"""%lab show, check, status, close."""

from __future__ import annotations

from labengine_widgets.selection import Selection
from magic_notebook import START, Notebook


def test_show_displays_the_dashboard(started: Notebook) -> None:
    ran = started.run("%lab show\n1")
    assert ran.value == 1 and "0 of 12 blocks used" in ran.printed


def test_check_reports_that_all_is_well_or_what_is_not(started: Notebook) -> None:
    started.value("%lab step")
    assert started.printed("%lab check") == "all invariants hold\n"
    started.lab.session.stepper.engine.scheduler.manager.pool.blocks[0].ref_count += 1
    assert "ref_count: block 0 has ref_count 3" in started.printed("%lab check")


def test_status_names_what_runs_and_counts_the_requests(started: Notebook) -> None:
    started.value("%lab step")
    started.lab.abort(1)
    said = started.printed("%lab status")
    assert "model  simulated" in said and "edition  labengine" in said and "of 12 blocks of 4 tokens in use" in said
    assert "A (id 0)  running, 13 + 1 tokens" in said and "B (id 1)  finished (abort), 13 + 1 tokens" in said


def test_status_names_a_listener_that_was_dropped(started: Notebook) -> None:
    started.lab.hooks.subscribe(lambda event: 1 / 0)
    started.value("%lab step")
    assert "removed: ZeroDivisionError" in started.printed("%lab status")


def test_status_shows_the_newest_of_many_requests(notebook: Notebook) -> None:
    notebook.value(START)
    notebook.printed("%lab add one two --copies 13 --max-tokens 2")
    said = notebook.printed("%lab status")
    assert "(3 earlier requests)" in said and "M (id 12)" in said and "C (id 2)" not in said


def test_close_ends_the_lab_and_start_makes_a_new_one(started: Notebook) -> None:
    started.value("%lab step")
    assert "closed" in started.printed("%lab close")
    for cell in ("%lab step", "%lab add more", "%lab reset", "%lab run"):
        assert "this lab is closed; make a new one" in started.refused(cell)
    assert started.printed("%lab check") == "all invariants hold\n"
    assert "state  closed" in started.printed("%lab status") and "step 1 of 1" in started.printed("%lab goto 1")
    started.value(START)
    assert started.lab.status()["state"] == "paused"


def test_view_displays_single_views(started: Notebook) -> None:
    ran = started.run("%lab view pool tables\n1")
    assert ran.value == 1 and "0 of 12 blocks used" in ran.printed
    assert started.lab.view("pool", "tables").arrangement == {"kind": "view", "views": ["pool", "tables"]}


def test_a_view_of_an_earlier_moment_stays_there(started: Notebook) -> None:
    started.value("%lab step 2")
    assert "step 1 · 5 of 12 blocks used" in started.printed("%lab view pool --at 1")
    assert "8 of 12 blocks used" in started.printed("%lab show --at 1:12")
    assert "step 9 is not in the recording" in started.refused("%lab view pool --at 9")


def test_select_chooses_in_all_views(started: Notebook) -> None:
    assert "nothing" in started.printed("%lab select")
    assert "request 1" in started.printed("%lab select request B")
    assert "block 3" in started.printed("%lab select block #3")
    assert started.lab.selection == Selection("block", 3)
    started.value("%lab step")
    key = next(iter(started.lab.snapshot().prefix_map))
    assert f"hash {key}\n" in started.printed(f"%lab select hash {key[:10]}")
    assert "no block was ever registered under hash '0:ab12'" in started.refused("%lab select hash 0:ab12")
    assert "no block 99: the pool has blocks 0 to 11" in started.refused("%lab select block 99")
    assert "nothing" in started.printed("%lab select nothing") and started.lab.selection is None


def test_why_answers_at_the_shown_moment(started: Notebook) -> None:
    started.value("%lab step 2")
    now = started.run("%lab why block 0")
    assert "ref count 2" in now.value.question and now.value.question in now.printed
    started.printed("%lab goto 0")
    assert "free" in started.value("%lab why block 0").question
    assert "A" in started.value("%lab why request A --about hit").question
    assert "next" in started.value("%lab why next-victim").question
    assert "no block 99" in started.refused("%lab why block 99")
