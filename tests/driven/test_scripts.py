"""to_test() and to_code() of a driven lab: scripts that are seen to fail and to pass."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import labengine
from labengine.driven.script import GREEN
from labengine.lab import Lab
from labengine.session.saved.no_test import NoTestError

FREE = "FakePool.free_blocks"


def text_of(lab: Lab, old: str, new: str) -> str:
    text = str(lab.session.model.described(FREE)["text"])  # type: ignore[attr-defined]
    assert old in text
    return text.replace(old, new)


def status(python: str, script: str, folder: Path) -> tuple[int, str]:
    file = folder / "script.py"
    file.write_text(script)
    done = subprocess.run([python, str(file)], capture_output=True, text=True, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def test_a_patch_that_breaks_a_rule_is_in_the_script(lab: Lab, stub: str, tmp_path: Path) -> None:
    leak = labengine.Patch(FREE, text_of(lab, "append_n(to_tail)", "append_n(to_tail[1:])"))
    with lab.rerun(leak) as comparison:
        script = comparison.right.to_test()
        assert "vllm 0.0 with your FakePool.free_blocks fails here: SYMPTOM: block" in script
        failed, said = status(stub, script, tmp_path)
        assert failed == 1 and "is unused, but in the free queue 0 times" in said
        passed, said = status(stub, script.replace("to_tail[1:]", "to_tail"), tmp_path)
        assert passed == 0 and GREEN in said
        assert "(right) fails here" in comparison.to_test()
        code, names = comparison.right.to_code(), dict[str, Lab]()
        assert f'labengine.Patch(\n            "{FREE}",\n            "def free_blocks(' in code
        exec(code, names)
        with names["lab"] as again:
            for one in (again, comparison.right, comparison.left):
                one.run()
            assert again.snapshot() == comparison.right.snapshot() != comparison.left.snapshot()
        with pytest.raises(NoTestError, match="a test is seen to pass, too, before you get it"):
            comparison.left.to_test()


def test_a_patch_that_mends_the_engine_is_not_in_the_script(lab: Lab, stub: str, tmp_path: Path) -> None:
    leak = labengine.Patch(FREE, text_of(lab, "append_n(to_tail)", "append_n(to_tail[1:])"))
    mend = labengine.Patch(FREE, text_of(lab, "to_head, to_tail = [], []", "to_tail, to_head = [], []"))
    with lab.rerun(leak) as faulty, faulty.right.rerun(mend) as mended:
        script = mended.to_test()
        assert "(left) fails here" in script and "to_tail[1:]" in script and "to_tail, to_head" not in script
        assert status(stub, script, tmp_path)[0] == 1


def test_where_the_states_alone_differ_the_right_side_is_named(lab: Lab, stub: str, tmp_path: Path) -> None:
    other = labengine.Patch(FREE, text_of(lab, "append_n(to_tail)", "prepend_n(to_tail)"))
    with lab.rerun(other) as comparison:
        with pytest.raises(NoTestError, match=r"the states differ: use to_test\(asserting='engine'\) if vllm 0\.0 is"):
            comparison.right.to_test()
        with pytest.raises(labengine.ConfigError, match="asserting= names the side whose states are right"):
            comparison.right.to_test("lab.snapshot()")
        script = comparison.right.to_test("engine")
        failed, said = status(stub, script, tmp_path)
        assert failed == 1 and "SYMPTOM: free_queue is [" in said
        wanted = comparison.right.to_test("patch")
        assert "prepend_n(to_tail)" not in wanted and "vllm 0.0 fails here" in wanted
        assert status(stub, wanted, tmp_path)[0] == 1


def test_a_patch_without_effect_gives_no_test(lab: Lab) -> None:
    same = labengine.Patch(FREE, text_of(lab, "to_head", "to_head"))
    with lab.rerun(same) as comparison, pytest.raises(NoTestError, match="both sides have the same states"):
        comparison.right.to_test()


def test_a_patch_that_raises_or_exits(lab: Lab) -> None:
    head = "def free_blocks(self, ordered_blocks):\n    "
    with lab.rerun(labengine.Patch(FREE, f"{head}raise ValueError('no')")) as raises:
        assert raises.right.crash is None
        assert "fails here: ValueError: no" in raises.right.to_test()
    exits = labengine.Patch(FREE, f"{head}import os; os._exit(0)")
    with lab.rerun(exits) as ended, pytest.raises(NoTestError, match="its process exits with 0 before the end"):
        ended.right.to_test()
