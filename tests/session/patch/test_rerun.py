"""lab.rerun: the same workload on a lab's own parts and with one override, side by side."""

from __future__ import annotations

import _thread
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import labengine
from ctrl_c import press_ctrl_c_in_main_thread
from endless_parts import EndlessTouch, switch
from interrupting import assert_nothing_held, labengine_threads, python_takes_ctrl_c
from labengine import BlockPool, HashChain, HostStore, KVCacheGroup, LateMerge, MergePolicy, Parts
from labengine.config import ConfigError, GroupSpec
from labengine.core.connector import BlockTransfer
from labengine.core.editions import EDITIONS
from labengine.core.merge_policy import KeepDuplicates, LateMergeComparingPrefixes
from labengine.engine import endless
from labengine.events import ExternalHit
from labengine.lab import Lab
from labengine.session.history.inputs import AddInput
from labengine.session.origin import Origin
from labengine.session.violation_warnings import ViolationWarning
from sessions import Session, lab_for, story
from waiting import wait_until
from workloads import random_workload

PROMPT = list(range(1, 10))
SEEDS = range(5)

pytestmark = pytest.mark.filterwarnings("ignore::labengine.session.violation_warnings.ViolationWarning")


@pytest.fixture
def worked(lab: Lab) -> Lab:
    """Two equal requests, then one with the same beginning: merges, hits, decodes, all finished."""
    for _ in range(2):
        lab.add(token_ids=PROMPT, max_tokens=4)
    lab.step()
    lab.add(token_ids=[*PROMPT, 10, 11, 12, 13], max_tokens=3)
    lab.run()
    return lab


class NeverMerges(LateMergeComparingPrefixes):
    """Every copy stays."""

    def merge_target(self, mapped: Any, block: Any, request: Any, link: int) -> Any:
        return MergePolicy.merge_target(self, mapped, block, request, link)


def touch(self: BlockPool, block_ids: list[int]) -> None:
    """Count, and leave the block in the queue."""
    for block_id in block_ids:
        self.blocks[block_id].ref_count += 1


def merge_target(self: MergePolicy, mapped: Any, block: Any, request: Any, link: int) -> Any:
    """Keep every copy."""
    return None


# -- both sides --------------------------------------------------------------------------------------------------------


def test_the_same_workload_runs_on_both_sides_and_they_differ_where_the_override_decides(worked: Lab) -> None:
    before = story(worked)
    with worked.rerun(NeverMerges) as comparison:
        left, right = comparison.sides
        assert isinstance(left, Lab) and isinstance(right, Lab)
        assert story(left) == before and left.parts == worked.parts
        assert right.parts.merge_policy is NeverMerges and comparison.names == ("labengine", "+ NeverMerges")
        difference = comparison.first_difference()
        assert difference is not None and type(difference.left).__name__ == "BlockMerged"
        assert difference.reasons[1].startswith("NeverMerges.merge_target: ")
        comparison.add(token_ids=PROMPT, max_tokens=2)
        comparison.run()
    assert story(worked) == before and worked.status()["state"] == "paused", "the lab itself has not changed"


def test_a_function_named_like_a_seam_is_an_override(worked: Lab) -> None:
    with worked.rerun(merge_target) as comparison:
        made = comparison.right.parts.merge_policy
        assert made.__mro__[1] is LateMergeComparingPrefixes and made.__name__ == "PatchedLateMergeComparingPrefixes"
        difference = comparison.first_difference()
        assert difference is not None and "PatchedLateMergeComparingPrefixes.merge_target: Keep every copy" in str(
            difference
        )


def test_an_override_that_changes_nothing_has_no_difference(worked: Lab) -> None:
    class Same(BlockPool):
        """Unchanged."""

        def touch(self, block_ids: Any) -> None:
            super().touch(block_ids)

    with worked.rerun(Same) as comparison:
        assert comparison.first_difference() is None and story(comparison.right)[1:] == story(worked)[1:]
    with worked.rerun(Parts(block_pool=Same)) as comparison:
        assert comparison.right.parts.block_pool is Same and comparison.first_difference() is None


@pytest.mark.parametrize("seed", SEEDS)
def test_random_sessions_are_repeated_exactly(seed: int) -> None:
    """Adds, aborts, resets of the cache, interrupted steps: the left side does what the lab did."""
    with lab_for(random_workload(seed), "vllm" if seed % 2 else "nano-vllm+243") as lab:
        Session(lab, random_workload(seed), seed).work(40)
        lab.step()
        with lab.rerun(Parts(block_pool=lab.parts.block_pool)) as comparison:
            num_steps = lab.snapshot().step
            assert story(comparison.left) == story(lab) and comparison.left.snapshot().step == num_steps
            assert comparison.first_difference() is None
            lab.run()
            comparison.run()
            assert story(comparison.left) == story(lab)


def test_the_sessions_have_every_kind_of_input() -> None:
    kinds = set()
    for seed in SEEDS:
        with lab_for(random_workload(seed), "vllm" if seed % 2 else "nano-vllm+243") as lab:
            Session(lab, random_workload(seed), seed).work(40)
            kinds |= {type(done).__name__ for done in lab.inputs}
    assert kinds >= {"AddInput", "AbortInput", "BrokenStep", "ResetInput"}


def test_an_input_keeps_its_salt_its_keys_and_its_sampling(lab: Lab) -> None:
    lab.add(token_ids=PROMPT, cache_salt="s", extra_keys={"adapter": "x"}, max_tokens=3, temperature=0.7, seed=5)
    lab.run()
    with lab.rerun(touch) as comparison:
        for side in comparison.sides:
            assert isinstance(side, Lab)
            [done] = side.inputs
            assert isinstance(done, AddInput) and done == lab.inputs[0]


def test_the_right_side_finishes_its_work_where_the_left_one_is_done(lab: Lab) -> None:
    def longest_chunk(self: Any) -> int:
        """Compute two tokens of a prompt per step."""
        return 2

    lab.add(token_ids=PROMPT, max_tokens=2)
    lab.run()
    with lab.rerun(longest_chunk) as comparison:
        left, right = comparison.snapshots
        assert left.step == 2 < right.step and [r.status for r in right.requests.values()] == ["finished"]


def test_parts_that_never_finish_a_request_end_the_rerun(lab: Lab) -> None:
    def finish_reason(self: Any, request: Any) -> None:
        """Never return."""

    lab.add(token_ids=PROMPT, max_tokens=2, ignore_eos=True)
    lab.run()
    with lab.rerun(finish_reason) as comparison:
        left, right = comparison.snapshots
        assert left.step == 2 and 30 < right.step <= 106 and right.requests[0].status != "finished"


def test_one_more_override_begins_with_the_right_side(worked: Lab) -> None:
    with worked.rerun(NeverMerges) as once, once.right.rerun(touch) as twice:
        assert twice.left.parts.name == "labengine + NeverMerges"
        assert twice.right.parts.name == "labengine + NeverMerges + touch"
        assert twice.right.parts.merge_policy is NeverMerges


def test_both_kinds_of_group_get_a_function_that_they_share() -> None:
    def cached_block(self: KVCacheGroup, request: Any, index: int) -> None:
        """Find nothing."""

    groups = [GroupSpec(4), GroupSpec(4, "sliding_window", 8)]
    with Lab("simulated", num_blocks=32, groups=groups) as lab, lab.rerun(cached_block) as comparison:
        names = [
            cls.__name__
            for cls in (comparison.right.parts.full_attention_group, comparison.right.parts.sliding_window_group)
        ]
        assert names == ["PatchedFullAttentionGroup", "PatchedSlidingWindowGroup"]


def test_settings_hold_for_both_sides(worked: Lab) -> None:
    with worked.rerun(touch, num_blocks=9) as comparison:
        assert [side.config.num_blocks for side in (comparison.left, comparison.right)] == [9, 9]


def test_another_edition_and_other_parts_hold_for_both_sides(worked: Lab) -> None:
    """The override comes on top of them, and the sides are named after them."""
    with worked.rerun(touch, edition="vllm") as comparison:
        left, right = comparison.left.parts, comparison.right.parts
        assert comparison.names == ("vllm", "+ touch") and left is EDITIONS["vllm"]
        assert right.merge_policy is left.merge_policy and issubclass(right.block_pool, left.block_pool)
    with worked.rerun(touch, parts=Parts(merge_policy=KeepDuplicates)) as comparison:
        assert {side.parts.merge_policy for side in (comparison.left, comparison.right)} == {KeepDuplicates}
    with pytest.raises(ConfigError, match=r"parts must be a labengine.Parts or a class that replaces a part, got 3"):
        worked.rerun(touch, parts=3)


# -- a tier that was filled by hand ------------------------------------------------------------------------------------


class NoKV:
    """A simulated engine's side of a transfer."""

    def read_block(self, group: int, block_id: int) -> None:
        """There are no tensors."""

    def write_block(self, group: int, block_id: int, kv: object) -> None:
        """There are no tensors."""


@pytest.fixture
def filled() -> Iterator[Lab]:
    """A lab with its own store, which was filled before its first request; later it got a second request."""

    def make(parts: Parts) -> Lab:
        return Lab("simulated", num_blocks=12, block_size=4, parts=parts, external=HostStore())

    def play(lab: Lab) -> None:
        saved = [BlockTransfer(9, 0, 0, 0, HashChain().link(b"", PROMPT[:4]))]
        assert isinstance(lab.external, HostStore)
        lab.external.save_kv(saved, NoKV())
        lab.add(token_ids=PROMPT, max_tokens=2)
        lab.step()

    with make(Parts()) as lab:
        play(lab)
        lab.session.origin = Origin(make, play, len(lab.inputs), lab.snapshot().step)
        lab.add(token_ids=[*PROMPT, 10, 11, 12, 13], max_tokens=2)
        lab.run()
        yield lab


def test_a_tier_that_was_filled_by_hand_is_filled_again_on_both_sides(filled: Lab) -> None:
    assert filled.timeline is not None and filled.timeline.of_kind(ExternalHit)
    with filled.rerun(NeverMerges) as comparison:
        assert story(comparison.left) == story(filled)
        assert comparison.right.timeline.of_kind(ExternalHit) and len(comparison.right.snapshot().requests) == 2
        comparison.add(token_ids=PROMPT, max_tokens=2)
        comparison.run()


def test_an_override_that_raises_while_it_is_played_stays_at_its_crash(filled: Lab) -> None:
    def append_token(self: Any, request: Any, token_id: int) -> None:
        raise ValueError("no")

    with filled.rerun(append_token) as comparison:
        assert comparison.right.crash is not None and comparison.right.snapshot().step == 0
        assert story(comparison.left) == story(filled) and len(comparison.right.snapshot().requests) == 2
        comparison.add(token_ids=PROMPT, max_tokens=1)
        comparison.left.run()
        assert comparison.left.snapshot().requests[2].status == "finished", "its methods are its own again"
        with pytest.raises(ValueError):
            comparison.right.step()


def test_other_settings_and_a_reset_forget_how_it_was_filled(filled: Lab) -> None:
    with filled.rerun(touch, external=None) as comparison:
        assert not comparison.left.timeline.of_kind(ExternalHit)
    filled.reset()
    assert filled.session.origin is None


# -- what is shown and saved -------------------------------------------------------------------------------------------


def test_why_and_a_saved_file_hold_the_source_of_a_function(worked: Lab, tmp_path: Any) -> None:
    with worked.rerun(merge_target) as comparison:
        seam = comparison.right.view_source().seams()["BlockMerged"]
        assert seam["class"] == "PatchedLateMergeComparingPrefixes" and '"""Keep every copy."""' in seam["source"]
        comparison.right.save(tmp_path / "right.lab")
        script = comparison.right.to_code()
    trace = labengine.open(tmp_path / "right.lab")
    assert '"""Keep every copy."""' in trace.view_source().seams()["BlockMerged"]["source"]
    assert (
        trace.to_code() == script and "class PatchedLateMergeComparingPrefixes(LateMergeComparingPrefixes):" in script
    )
    assert 'parts=labengine.Parts(name="labengine + merge_target", merge_policy=PatchedLate' in script
    made: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(script, made)
    with made["lab"] as again, worked.rerun(merge_target) as comparison:
        assert story(again) == story(comparison.right)


# -- wrong overrides ---------------------------------------------------------------------------------------------------


def refused(lab: Lab, override: Any) -> str:
    """The error message for a refused override, which leaves no trace."""
    threads = labengine_threads()
    with pytest.raises(ConfigError) as caught:
        lab.rerun(override)
    assert labengine_threads() == threads
    return str(caught.value)


def test_what_is_no_override_is_refused(worked: Lab) -> None:
    assert "got 'touch'" in refused(worked, "touch")
    assert "(Scheduler, KVCacheManager" in refused(worked, dict)
    assert "did you mean BlockPool.touch?" in refused(worked, type(touch)(touch.__code__, {}, "tuch"))
    assert "could replace FullAttentionGroup or SlidingWindowGroup" in refused(
        worked, type("Mine", (KVCacheGroup,), {})
    )


def test_a_wrong_signature_is_refused_before_anything_changes(worked: Lab) -> None:
    def touch(self: Any) -> None:
        """Too few parameters."""

    assert "PatchedBlockPool.touch(self) cannot be called that way" in refused(worked, touch)


def test_a_function_whose_name_several_parts_have_is_refused(worked: Lab) -> None:
    def release(self: Any, block_ids: Any) -> Any:
        """Of which part?"""

    text = refused(worked, release)
    assert "KVCacheGroup.release or BlockPool.release?" in text


def test_super_in_a_function_is_refused(worked: Lab) -> None:
    namespace: dict[str, Any] = {}
    exec("def touch(self, block_ids):\n    super().touch(block_ids)", namespace)
    assert "touch calls super(), which works only inside a class" in refused(worked, namespace["touch"])


def test_a_class_that_leaves_out_what_the_labs_own_class_overrides_is_warned_of(worked: Lab) -> None:
    class Mine(LateMerge):
        """Compares blocks, and no prefixes."""

    with pytest.warns(UserWarning, match="loses LateMergeComparingPrefixes.is_equal") as caught:
        worked.rerun(Mine).close()
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        worked.rerun(LateMerge).close()  # one of labengine's own is meant as it is
        worked.rerun(type("Mine", (LateMerge,), {"is_equal": LateMerge.is_equal})).close()


def test_an_external_tier_that_keeps_what_it_holds_is_refused(tmp_path: Any) -> None:
    with Lab("simulated", num_blocks=12, block_size=4, external=tmp_path) as lab:
        assert "use rerun(external=None) or rerun(external='host')" in refused(lab, touch)
        with lab.rerun(touch, external=None) as comparison:
            assert comparison.left.external is None


# -- overrides that raise, lie or never end ----------------------------------------------------------------------------


def assert_unharmed(lab: Lab, before: list[Any]) -> None:
    assert story(lab) == before
    lab.add(token_ids=PROMPT, max_tokens=2)
    lab.run()
    assert lab.check() == []


def test_an_override_that_raises_stays_at_its_crash_and_the_other_side_goes_on(worked: Lab) -> None:
    def append_token(self: Any, request: Any, token_id: int) -> None:
        """Raise at the second request."""
        raise ValueError(f"no token for {request.request_id}")

    before = story(worked)
    with worked.rerun(append_token) as comparison:
        crash = comparison.right.crash
        assert str(crash) == ("step 1 failed in PatchedTokenBudgetScheduler.append_token: ValueError: no token for 0")
        assert story(comparison.left) == before and len(comparison.right.snapshot().requests) == 3
        assert comparison.first_difference() is not None and "StepFailed" in str(comparison.first_difference())
        assert "step 1" in str(comparison.goto("crash"))
    assert_unharmed(worked, before)


def test_an_override_that_raises_outside_a_step_ends_the_rerun(worked: Lab) -> None:
    def add(self: Any, request: Any) -> None:
        raise ValueError("nobody comes in")

    before = story(worked)
    with pytest.raises(ValueError) as caught:
        worked.rerun(add)
    assert any("after 0 of 4 steps" in note for note in caught.value.__notes__)
    assert_unharmed(worked, before)


def test_a_crash_that_an_override_mends_is_passed_by_it() -> None:
    class Fails(BlockPool):
        """Raises at the first release."""

        def release(self, block_ids: Any) -> Any:
            raise ValueError("not yet")

    class Mended(Fails):
        """Releases as production does."""

        def release(self, block_ids: Any) -> Any:
            return BlockPool.release(self, block_ids)

    with Lab("simulated", num_blocks=12, block_size=4, parts=Parts(block_pool=Fails)) as lab:
        lab.add(token_ids=PROMPT, max_tokens=1)
        with pytest.raises(ValueError):
            lab.step()
        with lab.rerun(Mended) as comparison:
            assert comparison.left.crash is not None and comparison.right.crash is None
            assert comparison.right.snapshot().requests[0].status == "finished"


def test_an_override_that_lies_is_named_with_the_event(worked: Lab) -> None:
    before = story(worked)
    with Lab("simulated", num_blocks=4, block_size=4) as lab:
        lab.add(token_ids=range(8), max_tokens=1)
        lab.run()
        lab.add(token_ids=range(12), max_tokens=1)
        lab.run()
        with pytest.warns(ViolationWarning):
            comparison = lab.rerun(touch)
        with comparison:
            assert not comparison.left.violations and comparison.right.violations
            first = comparison.right.violations[0].first_event
            assert first is not None and "PatchedBlockPool.touch" in str(comparison.right.why(event=first))
    assert_unharmed(worked, before)


@pytest.fixture
def soon_impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Endless after a twentieth of a second; leaves no thread behind."""
    monkeypatch.setattr(endless, "PATIENCE_S", 0.05)
    switch.is_on = switch.is_inside = False
    with python_takes_ctrl_c():
        yield
    switch.is_on = False
    assert_nothing_held()


def press_when_inside() -> None:
    wait_until(lambda: switch.is_inside)
    press_ctrl_c_in_main_thread()


@pytest.mark.usefixtures("soon_impatient")
def test_ctrl_c_ends_an_override_that_never_ends_and_names_its_loop(worked: Lab) -> None:
    before = story(worked)
    switch.is_on = True
    _thread.start_new_thread(press_when_inside, ())
    with pytest.raises(KeyboardInterrupt) as caught:
        worked.rerun(EndlessTouch)
    switch.is_on = False
    loop, *_, final = caught.value.__notes__
    assert "It was in Switch.loop (endless_parts.py:" in loop
    assert "after 2 of 4 steps" in final
    assert_unharmed(worked, before)
