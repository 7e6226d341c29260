"""The seams of an edition: each kind of event has one, and an override is shown beside the overridden method."""

from __future__ import annotations

import json
import re
import sys
from types import ModuleType
from typing import Any

import pytest

from checkout import ROOT
from labengine.config import GroupSpec
from labengine.core.block import Block
from labengine.core.collaborator import Absent
from labengine.core.editions import EDITIONS, LABENGINE, NANO_VLLM_243, VLLM
from labengine.core.kv_cache_group import KVCacheGroup
from labengine.core.merge_policy import LateMerge, MergePolicy
from labengine.core.parts import Parts
from labengine.core.seams import DECIDED_BY
from labengine.events import EVENT_KINDS, BlockAllocated
from labengine.lab import Lab
from labengine.record.hooks import Hooks
from labengine.scenarios.nano_vllm_219_duplicate_blocks import NoAliveCheck
from labengine.scenarios.vllm_44409_columns import InterleavedKVCacheManager
from labengine.session.reasons import Seam, seams_of

EDITIONS_PAGE = ROOT / "docs" / "editions.md"


def methods_of(seams: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every method whose source is included, by its seam's name."""
    return {method["seam"]: method for seam in seams.values() for method in (seam, *seam["methods"])}


@pytest.fixture(params=EDITIONS.values(), ids=lambda parts: parts.name)
def parts(request: pytest.FixtureRequest) -> Parts:
    return request.param  # type: ignore[no-any-return]


def test_every_kind_of_event_has_a_seam(parts: Parts) -> None:
    decided = {kind.__name__ for kind in EVENT_KINDS if kind.decided_by}
    lacking = {"beams": {"BeamReplaced"}, "hand_over": {"RequestHandedOver", "RequestReleased"}}
    absent = set().union(*(kinds for part, kinds in lacking.items() if getattr(parts, part) is Absent))
    assert decided == set(seams_of(parts)) & decided | absent and not absent & set(seams_of(parts))
    assert {kind.partition(":")[0] for kind in DECIDED_BY} == decided


def test_every_seam_of_the_table_of_editions_is_found() -> None:
    table = [line for line in EDITIONS_PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [line.split("|")[2] for line in table if re.match(r"\| [^|]+\| `[A-Z]\w+\.\w+`", line)]
    found = set()
    for parts in EDITIONS.values():
        for seam, method in methods_of(seams_of(parts)).items():
            found |= {seam, f"{method['class']}.{seam.split('.')[1]}"}
    assert len(cells) > 10
    for cell in cells:
        owner = ""
        for name in re.findall(r"`([^`]+)`", cell):
            owner, attribute = name.split(".") if "." in name else (owner, name)
            assert {f"{owner}.{attribute}", f"SlidingWindowGroup.{attribute}"} & found, name


def test_a_seam_is_json_with_source_and_reason(parts: Parts) -> None:
    seams = seams_of(parts)
    assert json.loads(json.dumps(seams)) == seams
    for seam in methods_of(seams).values():
        assert seam["seam"].split(".")[1] in seam["source"]
        assert seam["line"] > 0
    for kind in ("BlockMerged", "BlockCached", "BlockFreed", "PrefixHit", "RequestPreempted", "BlockAllocated"):
        assert seams[kind]["reason"], kind


def test_an_editions_own_choice_is_shown_beside_the_base() -> None:
    seam = seams_of(LABENGINE)["BlockMerged"]
    assert (seam["seam"], seam["class"], seam["base"]["class"]) == (
        "MergePolicy.merge_target",
        "LateMerge",
        "MergePolicy",
    )
    assert "is_alive" in seam["source"] and "return None" in seam["base"]["source"]
    assert not seam["is_custom"]
    assert seams_of(VLLM)["BlockCached"]["class"] == "KeepDuplicates"


def test_an_abstract_method_is_nobodys_base() -> None:
    assert seams_of(LABENGINE)["PrefixHit"]["base"] is None


def test_an_override_is_what_one_sees_first() -> None:
    seam = seams_of(Parts(merge_policy=NoAliveCheck).overriding(NANO_VLLM_243))["BlockMerged"]
    assert (seam["seam"], seam["class"], seam["base"]["class"]) == ("MergePolicy.is_alive", "NoAliveCheck", "LateMerge")
    assert seam["is_custom"] and "return True" in seam["source"] and "ref_count > 0" in seam["base"]["source"]
    assert seam["reason"].startswith("Accept a freed block")
    assert seam["methods"][0]["seam"] == "MergePolicy.merge_target"
    assert seam["methods"][-1]["is_emitter"]
    interleaved = seams_of(Parts(kv_cache_manager=InterleavedKVCacheManager).overriding(VLLM))["BlockTouched"]
    assert interleaved["class"] == "InterleavedKVCacheManager" and interleaved["base"]["class"] == "KVCacheManager"


def test_an_attribute_is_described_with_its_words() -> None:
    null_block = methods_of(seams_of(VLLM))["BlockPool.null_block"]
    assert "null_block = 0" in null_block["source"] and null_block["class"] == "VllmBlockPool"
    assert "NULL_BLOCK" in null_block["base"]["source"]


class Silent(LateMerge):
    def is_alive(self, other: Block) -> bool:
        return True


def test_without_a_reason_the_one_of_the_base_is_not_claimed() -> None:
    seam = seams_of(Parts(merge_policy=Silent).overriding(LABENGINE))["BlockMerged"]
    assert seam["class"] == "Silent"
    assert seam["reason"].startswith("Silent overrides LateMerge.is_alive ")


IN_A_CELL = """
class Never(MergePolicy):
    def merge_target(self, mapped, block, request, link):
        '''Nobody merges here.'''
        return None
"""


def test_a_part_from_a_notebook_cell_is_read_where_the_notebook_keeps_it() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.user_ns["MergePolicy"] = MergePolicy
    assert shell.run_cell(IN_A_CELL).success
    seam = seams_of(Parts(merge_policy=shell.user_ns["Never"]).overriding(LABENGINE))["BlockMerged"]
    assert seam["reason"] == "Nobody merges here." and "return None" in seam["source"]


def test_a_part_without_any_text_is_named_as_such() -> None:
    module = ModuleType("made_up")
    sys.modules["made_up"] = module
    try:
        exec(IN_A_CELL, module.__dict__ | {"MergePolicy": MergePolicy, "__name__": "made_up"}, module.__dict__)
        seam = seams_of(Parts(merge_policy=module.Never).overriding(LABENGINE))["BlockMerged"]
    finally:
        del sys.modules["made_up"]
    assert seam["source"].startswith("# Python has no source of Never.merge_target")
    assert seam["reason"] == "Nobody merges here." and seam["line"] == 0


def test_seams_load_no_torch() -> None:
    import subprocess

    code = "import sys; from labengine.session.reasons import seams_of; from labengine.core.editions import VLLM; "
    code += "seams_of(VLLM); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def emitted_places(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, int]]]:
    """Return a list that receives the kind, file and line of the call for each event emitted from now on."""
    places: list[tuple[str, tuple[str, int]]] = []
    emit = Hooks.emit

    def traced(hooks: Hooks, event: Any) -> None:
        frame = sys._getframe(1)
        places.append((type(event).__name__, (frame.f_code.co_filename, frame.f_lineno)))
        emit(hooks, event)

    monkeypatch.setattr(Hooks, "emit", traced)
    return places


def line_that_emits(seam: Seam) -> tuple[str, int] | None:
    """Return the file and line that the Why? tab highlights, or None."""
    for method in (seam, *seam["methods"]):
        if "emits_at" in method:
            return str(sys.modules[method["module"]].__file__), method["line"] + method["emits_at"]
    return None


def test_the_line_that_is_lit_has_emitted_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    places = emitted_places(monkeypatch)
    groups = [GroupSpec(4), GroupSpec(4, "sliding_window", 8)]
    with Lab("simulated", num_blocks=26, block_size=4, groups=groups, external="host", keep_finished=2) as lab:
        for _ in range(2):
            for _ in range(2):
                lab.add(token_ids=range(30), max_tokens=6)
            lab.run()
        lab.add(token_ids=range(90, 100), max_tokens=2)
        lab.abort(4)
        lab.reset_prefix_cache()
        seams = seams_of(lab.parts)
    lit = {kind: line_that_emits(seam) for kind, seam in seams.items()}
    unlit = {kind for kind, _ in places if lit.get(kind) is None}
    wrong = [(kind, place) for kind, place in places if kind not in unlit and lit[kind] != place]
    assert wrong == []
    assert unlit <= {"BlocksLoaded", "BlocksSaved", "LoadFailed"}, (
        "their method builds them elsewhere, or in two places"
    )
    assert len({kind for kind, _ in places} - unlit) >= 19


def test_an_override_that_emits_has_its_own_line_and_one_that_leaves_it_to_another_has_none() -> None:
    class Own(KVCacheGroup):
        def extend(self, request: Any, *rest: Any) -> Any:
            self.hooks.emit(
                BlockAllocated(0, 0, 0, 0),
            )

    class Quiet(KVCacheGroup):
        def extend(self, request: Any, *rest: Any) -> Any:
            return super().extend(request, *rest)

    own, quiet = (
        seams_of(Parts(full_attention_group=cls).overriding(LABENGINE))["BlockAllocated"] for cls in (Own, Quiet)
    )
    assert own["source"].splitlines()[own["emits_at"]].strip() == "self.hooks.emit("
    assert line_that_emits(own) is not None
    assert line_that_emits(quiet) is None
