"""%lab seams, %lab seam and %%lab patch: a method edited in a cell, and the same workload run on it."""

from __future__ import annotations

import _thread

import pytest

import labengine
from ctrl_c import press_ctrl_c_in_main_thread
from interrupting import python_takes_ctrl_c
from labengine.engine import endless
from labengine.lab import Lab
from labengine.session.compare.comparison import Comparison
from magic_notebook import Notebook
from sessions import story
from waiting import wait_until

KEEP = "def merge_target(self, mapped, block, request, link):\n    return None\n"


@pytest.fixture
def worked(started: Notebook) -> Notebook:
    """Both requests have finished."""
    started.printed("%lab run --wait")
    return started


def patch(seam: str, method: str) -> str:
    """The text of a cell."""
    return f"%%lab patch {seam}\n{method}"


def opened(notebook: Notebook) -> Comparison:
    """The comparison that the patch opened."""
    comparison = notebook.shell.user_ns["comparison"]
    assert isinstance(comparison, Comparison)
    return comparison


# -- seams -------------------------------------------------------------------------------------------------------------


def test_seams_are_listed_with_what_they_do_and_where_they_are(notebook: Notebook) -> None:
    printed = notebook.printed("%lab seams touch")
    [line] = printed.splitlines()
    assert line.startswith("BlockPool.touch  Add one reference to each of these cached blocks; a free one leaves")
    assert line.endswith("]") and "[labengine/core/block_pool.py:" in line
    everything = notebook.printed("%lab seams").splitlines()
    assert len(everything) > 90 and any(line.startswith("SlidingWindowGroup.find_hit ") for line in everything)
    assert "no seam has 'frob' in its name" in notebook.refused("%lab seams frob")


def test_the_seams_are_those_of_the_labs_own_parts(notebook: Notebook) -> None:
    notebook.value("%lab start --model simulated --blocks 8 --block-size 4 --edition vllm")
    printed = notebook.printed("%lab seams")
    assert "VllmBlockPool.null_block" in printed and "SlidingWindowGroup" not in printed


def test_a_seam_opens_in_a_cell_that_can_be_run_as_it_is(worked: Notebook) -> None:
    assert "BlockPool.touch is in the cell below, from labengine/core/block_pool.py:" in worked.printed(
        "%lab seam touch"
    )
    cell = worked.shell.rl_next_input
    assert cell.startswith("%%lab patch BlockPool.touch\ndef touch(self, block_ids: Sequence[int]) -> None:\n")
    assert "No difference: PatchedBlockPool.touch was never called in this workload.\n" in worked.printed(cell)
    assert "did you mean BlockPool.touch?" in worked.refused("%lab seam tuch")


# -- a patch -----------------------------------------------------------------------------------------------------------


def test_a_patch_runs_the_same_workload_beside_what_it_was(worked: Notebook) -> None:
    lab, before = worked.lab, story(worked.lab)
    printed = worked.printed(patch("merge_target", KEEP))
    name = "PatchedLateMergeComparingPrefixes.merge_target"
    assert f"2 requests and 4 steps, run again with {name} instead of LateMerge.merge_target." in printed
    assert "with your merge_target: 3 violations (duplicate): " in printed
    assert "First difference: step 1, update." in printed and f"    {name}: " in printed
    places = [printed.index(words) for words in ("2 requests", "\n+ merge_target\nstep 4", "act on it now")]
    assert places == sorted(places), "the verdict, the picture, and what to do next"
    comparison = opened(worked)
    assert story(comparison.left) == before == story(lab) and worked.lab is lab
    assert "`lab` stays as it is" in printed
    event = comparison.right.violations[0].first_event
    assert f"comparison.right.why(event={event}) shows how it began" in printed
    assert name in str(worked.value(f"comparison.right.why(event={event})"))
    assert "act on `lab` again" in worked.printed("%lab close") and lab.status()["state"] == "paused"


def test_an_edited_cell_begins_with_the_labs_parts_and_on_top_adds(worked: Notebook) -> None:
    worked.printed(patch("merge_target", KEEP))
    first = opened(worked)
    worked.printed(patch("merge_target", KEEP.replace("None", "None  # again")))
    second = opened(worked)
    assert isinstance(second.left, Lab) and isinstance(second.right, Lab)
    assert second.right.parts.merge_policy.__name__ == "PatchedLateMergeComparingPrefixes"
    assert second.left.parts == worked.lab.parts and first.left.status()["state"] == "closed"
    worked.printed("%%lab patch --on-top is_equal\ndef is_equal(self, other, request, link):\n    return True\n")
    right = opened(worked).right
    assert isinstance(right, Lab) and right.parts.name == "labengine + merge_target + is_equal"
    assert right.parts.merge_policy.__mro__[1] is second.right.parts.merge_policy
    assert opened(worked).left.parts == worked.lab.parts


def test_on_top_of_nothing_is_refused(worked: Notebook) -> None:
    cell = "%%lab patch touch --on-top\ndef touch(self, block_ids): pass"
    assert "omit it" in worked.refused(cell)
    worked.printed("%lab bug nano-vllm-71")
    assert "omit it" in worked.refused(cell), "a bug beside its fix is no patch"


def test_the_method_knows_the_names_of_the_notebook(worked: Notebook) -> None:
    worked.printed("limit = 3")
    printed = worked.printed(patch("longest_chunk", "def longest_chunk(self):\n    return limit\n"))
    assert "First difference: step 1, schedule." in printed


def test_a_bug_is_patched_back_and_is_clean(notebook: Notebook) -> None:
    notebook.printed("%lab bug nano-vllm-71")
    notebook.value("%lab step")
    printed = notebook.printed(
        patch(
            "num_missing_blocks",
            "def num_missing_blocks(self, request, num_tokens):\n"
            "    return -(-num_tokens // self.block_size) - len(request.block_tables[self.index])\n",
        )
    )
    assert "as it was: " in printed and "(slot" in printed
    assert "with your num_missing_blocks: no violation" in printed
    comparison = opened(notebook)
    assert isinstance(comparison.left, Lab) and comparison.left.parts.name == "nano-vllm-2025-07 + AppendsWhenFull"
    assert [snapshot.step for snapshot in comparison.snapshots] == [3, 3]
    assert len(notebook.value("%lab step")) == 2, "and it goes on from there"


def test_a_bug_whose_tier_was_filled_by_hand_is_patched_back(notebook: Notebook) -> None:
    notebook.printed("%lab bug vllm-44409")
    notebook.value("%lab step")
    notebook.printed("%lab seam KVCacheManager.allocate_computed")
    assert "InterleavedKVCacheManager.allocate_computed" in notebook.shell.rl_next_input
    method = (
        "def allocate_computed(self, request, hit, num_external):\n"
        "    return super(InterleavedKVCacheManager, self).allocate_computed(request, hit, num_external)\n"
    )
    printed = notebook.printed(patch("allocate_computed", method))
    assert "(one_entry" in printed and "with your allocate_computed: no violation" in printed


def test_a_workload_that_never_gets_to_the_method_is_said_to(worked: Notebook) -> None:
    printed = worked.printed(patch("choose_victim", "def choose_victim(self, request):\n    return self.running[0]\n"))
    assert "No difference: PatchedTokenBudgetScheduler.choose_victim was never called in this workload." in printed
    printed = worked.printed(
        patch("finish_reason", "def finish_reason(self, request):\n    return super().finish_reason(request)")
    )
    assert "No difference: on this workload" in printed


def test_a_decision_without_consequences_is_told_from_the_same_decision(worked: Notebook) -> None:
    same = "def mapped_after(self, mapped, block_id):\n    return (block_id,)\n"
    printed = worked.printed(patch("mapped_after", same))
    assert "No difference: on this workload" in printed
    printed = worked.printed(patch("longest_chunk", "def longest_chunk(self):\n    return 999\n"))
    assert "longest_chunk decided differently" in printed


def test_a_method_behind_an_attribute_is_said_to_be_never_called(worked: Notebook) -> None:
    """Where every block is worth caching, nothing asks which."""
    method = "def is_worth_caching(self, request, index):\n    return False\n"
    printed = worked.printed(patch("is_worth_caching", method))
    assert "is_worth_caching was never called in this workload." in printed


def test_without_checks_nothing_is_claimed(notebook: Notebook) -> None:
    notebook.printed(
        "import labengine\n"
        "lab = labengine.Lab('simulated', num_blocks=8, block_size=4, check=False)\n"
        "lab.add(token_ids=[1, 2], max_tokens=1); lab.run()"
    )
    printed = notebook.printed(patch("longest_chunk", "def longest_chunk(self):\n    return 999\n"))
    assert "longest_chunk was called" in printed


def test_a_right_side_that_does_not_end_is_said_to_have_work_left(worked: Notebook) -> None:
    printed = worked.printed(patch("finish_reason", "def finish_reason(self, request):\n    return None\n"))
    assert "some requests are not finished; %lab run continues" in printed


def test_a_class_of_the_notebook_can_be_patched(notebook: Notebook) -> None:
    notebook.printed(
        "import labengine\n"
        "class Mine(labengine.BlockPool):\n    def reused_first(self, block_ids):\n        return []\n"
        "lab = labengine.Lab('simulated', num_blocks=8, block_size=4, parts=labengine.Parts(block_pool=Mine))"
    )
    assert "[this notebook, not called so far]" in notebook.printed("%lab seams reused_first")
    notebook.printed("%lab seam reused_first")
    assert (
        notebook.shell.rl_next_input
        == "%%lab patch Mine.reused_first\ndef reused_first(self, block_ids):\n    return []\n"
    )
    assert "No difference" in notebook.printed(notebook.shell.rl_next_input)
    assert opened(notebook).right.parts.block_pool.__name__ == "PatchedMine"


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("%%lab patch tuch\ndef tuch(self): pass", "did you mean BlockPool.touch?"),
        ("%%lab patch admit\ndef admit(self): pass", "TokenBudgetScheduler.admit or KVCacheManager.admit?"),
        ("%%lab patch touch\ndef touch(self): pass", "cannot be called that way"),
        ("%%lab patch touch\ndef touch(self, block_ids): return frob", "line 2: neither labengine.core.block_pool nor"),
        ("%%lab patch touch\ndef touch(self block_ids): pass", "line 2: "),
        ("%%lab patch\ndef touch(self, block_ids): pass", "usage: %%lab patch"),
        ("%%lab patch touch --frob\ndef touch(self, block_ids): pass", "no option --frob"),
        ("%%lab step\nx", "put %lab step on its own line"),
        ("%lab patch touch", "write the method below %%lab patch touch"),
    ],
)
def test_a_wrong_cell_is_refused_in_a_sentence_and_nothing_changes(worked: Notebook, cell: str, says: str) -> None:
    before = set(worked.shell.user_ns)
    assert says in worked.refused(cell)
    assert "comparison" not in set(worked.shell.user_ns) - before


def test_a_patch_that_raises_in_a_step_is_shown_at_its_crash(worked: Notebook) -> None:
    printed = worked.printed(
        patch("append_token", "def append_token(self, request, token_id):\n    raise ValueError('no')\n")
    )
    assert (
        "with your append_token: step 1 failed in PatchedTokenBudgetScheduler.append_token: ValueError: no; "
        "%lab goto crash shows the moment" in printed
    )
    assert "step 1" in worked.printed("%lab goto crash")


def test_a_patch_that_raises_when_a_request_is_added_is_reported_with_its_line(worked: Notebook) -> None:
    text = worked.refused(patch("Scheduler.add", "def add(self, request):\n    raise ValueError('nobody comes in')\n"))
    assert "%%lab patch: nobody comes in (ValueError in add, line 3 of <patch" in text
    assert "comparison" not in worked.shell.user_ns
    assert worked.value("%lab reset") is None


ENDLESS = """%%lab patch append_token
def append_token(self, request, token_id):
    inside.append(token_id)
    while inside:
        pass
"""


def test_ctrl_c_ends_a_patch_that_never_ends_and_the_loop_is_named(
    worked: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endless, "PATIENCE_S", 0.05)
    inside: list[int] = []
    worked.shell.user_ns["inside"] = inside

    def press() -> None:
        wait_until(lambda: bool(inside))
        press_ctrl_c_in_main_thread()

    with python_takes_ctrl_c():
        _thread.start_new_thread(press, ())
        ran = worked.run(ENDLESS)
    assert isinstance(ran.error, KeyboardInterrupt)
    assert (
        "It was in PatchedTokenBudgetScheduler.append_token (a cell:4)" in ran.printed
        and "this lab is unchanged" in ran.printed
    )
    assert "comparison" not in worked.shell.user_ns
    assert worked.printed("%lab check") == "all invariants hold\n"


# -- help and completion -----------------------------------------------------------------------------------------------


def test_the_tab_key_offers_the_command_the_seams_and_the_option(notebook: Notebook) -> None:
    assert notebook.completions("%%lab ") == ["patch"]
    assert "BlockPool.touch" in notebook.completions("%%lab patch Block") and "BlockPool.touch" in notebook.completions(
        "%lab seam Bl"
    )
    assert notebook.completions("%%lab patch touch --") == ["--on-top"]


def test_help_says_what_it_does_without_listing_every_seam(notebook: Notebook) -> None:
    text = notebook.printed("%lab patch --help")
    assert "%%lab patch [--on-top] SEAM" in text and "own parts" in text and "FreeQueue.take" not in text
    assert notebook.printed("%%lab patch --help\nx") == text


def test_unloading_takes_the_cell_magic_away(notebook: Notebook) -> None:
    labengine.unload_ipython_extension(notebook.shell)
    assert "lab" not in notebook.shell.magics_manager.magics["cell"]
    labengine.load_ipython_extension(notebook.shell)
