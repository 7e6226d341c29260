"""What %lab step, run and goto print when a part is wrong: violations in a line, a crash in a sentence."""

from __future__ import annotations

import pytest

from magic_notebook import Notebook

WRONG = """
from labengine import Lab, Parts
from labengine.core.block_pool import BlockPool

class WrongTouch(BlockPool):
    def touch(self, block_ids, *rest, **named):
        for block_id in block_ids:
            self.blocks[block_id].ref_count += 1

lab = Lab("simulated", num_blocks=8, block_size=4, parts=Parts(block_pool=WrongTouch))
lab.add(token_ids=list(range(1, 10)), max_tokens=1)
lab.step()
lab.add(token_ids=list(range(1, 10)), max_tokens=6)
lab.add(token_ids=list(range(50, 62)), max_tokens=6)
"""


@pytest.fixture
def wrong(notebook: Notebook) -> Notebook:
    notebook.run(WRONG)
    return notebook


def test_a_step_says_what_it_has_broken_and_how_to_ask(wrong: Notebook) -> None:
    printed = wrong.printed("%lab step")
    number, rules = len(wrong.lab.violations), {violation.rule for violation in wrong.lab.violations}
    assert number > 1 and printed.count("violations (") == 1 and f"{number} violations (" in printed
    assert all(rule in printed for rule in rules) and "WrongTouch.touch" in printed
    assert f"%lab why event {wrong.lab.violations[0].first_event} shows" in printed and "Warning" not in printed
    assert f"{number} (" in wrong.printed("%lab status")


def test_a_run_that_fails_says_where_and_the_crash_can_be_looked_at(wrong: Notebook) -> None:
    said = wrong.refused("%lab run --wait")
    crash = wrong.lab.crash
    assert crash is not None and str(crash) in said and "%lab goto crash" in said
    looked = wrong.printed("%lab goto crash")
    assert "failed here in BlockPool.release" in looked and f"still after step {crash.step - 1}" in looked
    assert f"step {crash.step} " in wrong.printed("%lab view pool --at crash")
    assert "'crsh'" in wrong.refused("%lab goto crsh")


def test_goto_crash_without_one_says_so(started: Notebook) -> None:
    started.value("%lab step")
    assert "exception" in started.refused("%lab goto crash")


def test_start_takes_how_to_check(notebook: Notebook) -> None:
    for mode, meant in (("stop", "stop"), ("off", False), ("on", True)):
        notebook.value(f"%lab start --model simulated --blocks 8 --block-size 4 --check {mode}")
        assert notebook.lab.settings.check == meant
    assert "on, stop, off" in notebook.refused("%lab start --check never")
