"""lab.to_test(): a test that was seen red with the overrides and green with production's classes, or an error."""

from __future__ import annotations

import linecache
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError
from labengine.core.block import Block
from labengine.core.block_pool import BlockPool
from labengine.core.connector import BlockKV, Connector
from labengine.core.merge_policy import LateMerge
from labengine.core.parts import Parts
from labengine.engine.external import Delayed
from labengine.engine.external.host import HostStore
from labengine.lab import Lab
from labengine.scripts import decisions
from labengine.session.saved.regression import NoTestError
from reported import REPORTS, HitLosesHash, KeepsKeys, Reported

pytestmark = pytest.mark.filterwarnings("ignore::labengine.session.violation_warnings.ViolationWarning")


class MergesIntoFree(LateMerge):
    """Merges into blocks that are free."""

    def is_alive(self, other: Block) -> bool:
        return True


class SaysTheSame(BlockPool):
    """Changes nothing."""

    def reused_first(self, block_ids: list[int]) -> list[int]:
        return super().reused_first(block_ids)


def lab_of(**settings: Any) -> Lab:
    lab = Lab("simulated", num_blocks=8, block_size=4, **settings)
    for max_tokens in (1, 3):
        lab.add(token_ids=range(5), max_tokens=max_tokens)
    lab.run()
    return lab


RED_AND_GREEN = ("failed", "passed")


def outcomes(folder: Path, text: str) -> tuple[str, ...]:
    """Run a generated test unchanged and with PARTS = None; return both results."""
    return tuple(run_here(folder, one) for one in (text, without_parts(text)))


def without_parts(text: str) -> str:
    """Return a generated test of production's classes."""
    return re.sub(r"^PARTS = .*$", "PARTS = None", text, flags=re.MULTILINE)


def run_here(folder: Path, text: str) -> str:
    """Run a generated test in this process; return "passed" or "failed"; other exceptions pass through."""
    file = folder / "made.py"
    file.write_text(text)
    try:
        runpy.run_path(str(file))["test_session"]()
    except AssertionError:
        return "failed"
    return "passed"


def run_by_pytest(folder: Path, *texts: str) -> tuple[str, ...]:
    """Have one process of pytest run files; return "passed", "failed" or "error" for each."""
    files = [folder / f"test_{number}.py" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    found = os.pathsep.join(map(str, [folder, *sys.path]))
    quick = {**os.environ, "PYTHONPATH": found, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    asked = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-c", os.devnull, *map(str, files)]
    said = subprocess.run(asked, env=quick, capture_output=True, text=True, cwd=folder).stdout
    named = {
        name: word.lower() for word, name in re.findall(r"^(PASSED|FAILED|ERROR) (test_\d+)\.py", said, re.MULTILINE)
    }
    return tuple(named[file.stem] for file in files)


def taken(lab: Lab) -> str:
    """Return the lab's test; if no rule is broken, with the assertion that the error proposes."""
    try:
        return lab.to_test()
    except NoTestError as error:
        assert f"to_test(asserting={error.suggestion!r})" in str(error)
        return lab.to_test(error.suggestion)


@pytest.mark.parametrize("reported", REPORTS, ids=[one.name for one in REPORTS])
def test_a_report_is_red_with_its_override_and_green_without(tmp_path: Path, reported: Reported) -> None:
    with reported.lab() as lab:
        text = taken(lab)
    assert outcomes(tmp_path, text) == RED_AND_GREEN


def test_a_rule_that_the_checks_have_not_seen_is_asserted(tmp_path: Path) -> None:
    """kvcached 362: a session made without checks is checked."""
    report = next(one for one in REPORTS if one.name == "kvcached-362")
    lab = Lab("simulated", num_blocks=report.num_blocks, block_size=4, parts=report.parts, check=False)
    report.play(lab)
    assert lab.violations == []
    text = lab.to_test()
    lab.close()
    assert "assert lab.check() == []" in text and "check=False" not in text
    assert outcomes(tmp_path, text) == RED_AND_GREEN


# -- what would not catch ----------------------------------------------------------------------------------------------


def test_an_override_that_changes_nothing_gets_no_test() -> None:
    with lab_of(parts=Parts(block_pool=SaysTheSame)) as lab:
        with pytest.raises(NoTestError, match="decide the same on these requests") as caught:
            lab.to_test()
        said = str(caught.value)
        assert "SaysTheSame.reused_first was called, and made no difference." in said
        assert "(labengine.find(SaysTheSame) searches for them)" in said
        assert caught.value.suggestion == ""
        with pytest.raises(NoTestError, match=r"the assertion also holds .*\(assert lab"):
            lab.to_test("lab.snapshot().step == 3")


def test_a_difference_that_breaks_no_rule_gets_a_proposal() -> None:
    report = next(one for one in REPORTS if one.parts.block_pool is HitLosesHash)
    with report.lab() as lab:
        with pytest.raises(NoTestError, match="no rule is broken here") as caught:
            lab.to_test()
        assert caught.value.suggestion == 'decisions(lab)[6:7] == ["request 2 finds 8 tokens in the cache"]'


def test_an_assertion_that_is_red_with_productions_classes_gets_no_test() -> None:
    with lab_of(parts=Parts(merge_policy=MergesIntoFree)) as lab:
        with pytest.raises(NoTestError, match=r"production's classes: AssertionError, in `assert lab\.s"):
            lab.to_test("lab.snapshot().step == 99")
        with pytest.raises(NoTestError, match=r"production's classes: AttributeError: .*snapsho"):
            lab.to_test("lab.snapsho().step == 3")


def test_a_session_of_production_gets_no_test() -> None:
    with lab_of() as lab, pytest.raises(NoTestError, match=r"production classes.*lab\.rerun\(YourClass\)"):
        lab.to_test()


def test_an_edition_that_goes_wrong_is_green_with_labengines_parts() -> None:
    """nano-vLLM 163: a stale entry leads to a block of equal tokens after another prefix."""
    x, y, z = [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]
    with Lab("simulated", edition="nano-vllm-2025-07", num_blocks=4, block_size=4) as lab:
        for prompt in ([*x, *z, 1], [*x, 2], [*y, *z, 3], [*x, *z, 1]):
            lab.add(token_ids=prompt, max_tokens=1)
            lab.run()
        assert {violation.rule for violation in lab.violations} == {"named", "read"}
        assert "# The test passes with the parts of labengine." in lab.to_test()


# -- assertions of one's own -------------------------------------------------------------------------------------------

SEVEN = 7


def finds_most(lab: Any) -> bool:
    return sum("finds 8 tokens" in one for one in decisions(lab)) > SEVEN - 6


@pytest.mark.parametrize(
    "asserting",
    [
        "cost(lab).hit_tokens == 16",
        "hits = cost(lab).hit_tokens\nassert hits == 16",
        "(cost(lab).hit_tokens\n == 16)",
        finds_most,
        lambda lab: sum("finds 8 tokens" in one for one in decisions(lab)) > SEVEN - 6,
    ],
)
def test_an_assertion_of_ones_own(tmp_path: Path, asserting: Any) -> None:
    report = next(one for one in REPORTS if one.parts.block_pool is HitLosesHash)
    with report.lab() as lab:
        text = lab.to_test(asserting)
    assert outcomes(tmp_path, text) == RED_AND_GREEN


@pytest.mark.parametrize(
    ("asserting", "says"),
    [
        ("lab.step(", "is not valid Python"),
        ("lab.snapshot()\nlab.step()", "asserts nothing"),
        ("x = 3", "asserts nothing"),
        ("len(mine) == 3", "uses mine, .* lab, labengine"),
        (3, "must be Python about `lab`"),
        (lambda: True, "a function of one lab"),
        ((lambda lab: 1, lambda lab: 2)[0], "this lambda's source was not found"),
    ],
)
def test_an_assertion_that_is_none(asserting: Any, says: str) -> None:
    with lab_of(parts=Parts(merge_policy=MergesIntoFree)) as lab, pytest.raises(ConfigError, match=says):
        lab.to_test(asserting)


# -- what a test carries -----------------------------------------------------------------------------------------------

CELLS = (
    "import functools\nfrom labengine import BlockPool\nfrom labengine.core.block import Block as B",
    "LIMITS = {'kept': 0}",
    "def told(function):\n    @functools.wraps(function)\n    def outer(*args):\n        return function(*args)\n"
    "    return outer",
    "def is_kept(block, least):\n    assert isinstance(block, B)\n    return len(block.keys) > least and small(least)",
    "small = lambda number: number < Bound.top",
    "class Bound:\n    top = 5",
    "import dataclasses\n@dataclasses.dataclass\nclass Verdict:\n    kept: bool",
    "@told\ndef keeps(block):\n    return Verdict(is_kept(block, LIMITS['kept'])).kept",
    "class Keeps(BlockPool):\n    def take(self, num_blocks):\n        block_ids = self.free_queue.take(num_blocks)\n"
    "        self._journal.record((self._put_back, block_ids))\n        for block_id in block_ids:\n"
    "            block = self.blocks[block_id]\n            block.ref_count = 1\n"
    "            if block.keys and not keeps(block):\n                self.evict(block)\n        return block_ids",
)


def class_of_cells(cells: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run cells in one namespace, as IPython does; return the class Keeps."""
    notebook = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    space = vars(notebook)
    for number, cell in enumerate(cells):
        name = f"<ipython-input-{number}-{id(space)}>"
        monkeypatch.setitem(linecache.cache, name, (len(cell), None, cell.splitlines(keepends=True), name))
        exec(compile(cell, name, "exec", dont_inherit=True), space)
    return space["Keeps"]


def play_21(lab: Lab) -> None:
    next(one for one in REPORTS if one.name == "kvcached-362").play(lab)


def test_what_other_cells_define_is_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = class_of_cells(CELLS, monkeypatch)
    with Lab("simulated", num_blocks=4, block_size=4, parts=Parts(block_pool=cls)) as lab:
        play_21(lab)
        text = lab.to_test()
    for carried in (
        "LIMITS = {'kept': 0}",
        "def is_kept",
        "small = lambda",
        "class Bound",
        "@dataclasses.dataclass\n",
        "def told",
        "@told\n",
    ):
        assert text.count(carried) == 1, carried
    assert "from labengine.core.block import Block as B" in text and "import functools" in text
    assert run_by_pytest(tmp_path, text, without_parts(text)) == RED_AND_GREEN


def test_a_base_that_an_edition_names_is_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = (
        "from labengine.core.editions import VLLM as THEIRS",
        f"class Keeps(THEIRS.block_pool):{CELLS[-1].partition(':')[2]}".replace("not keeps(block)", "not block.keys"),
    )
    with Lab("simulated", edition="vllm", num_blocks=5, block_size=4, parts=class_of_cells(cells, monkeypatch)) as lab:
        play_21(lab)
        text = lab.to_test()
    assert "from labengine.core.editions import VLLM as THEIRS\n" in text
    assert outcomes(tmp_path, text) == RED_AND_GREEN


def test_what_cannot_be_carried_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = ("LIMITS = object()", *CELLS[2:])
    lacking = tuple(cell.replace("LIMITS['kept']", "LIMITS and 0") for cell in cells)
    cls = class_of_cells((CELLS[0], *lacking), monkeypatch)
    with Lab("simulated", num_blocks=4, block_size=4, parts=Parts(block_pool=cls)) as lab:
        play_21(lab)
        with pytest.raises(ConfigError, match="a test cannot contain LIMITS"):
            lab.to_test()


def test_two_things_of_one_name_are_not_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = class_of_cells(CELLS, monkeypatch)
    other = (
        "from labengine.core.merge_policy import LateMergeComparingPrefixes",
        "def keeps(block):\n    return True",
        "class Keeps(LateMergeComparingPrefixes):\n    def is_alive(self, other):\n"
        "        return keeps(other) and super().is_alive(other)",
    )
    parts = Parts(block_pool=pool, merge_policy=class_of_cells(other, monkeypatch))
    with Lab("simulated", num_blocks=4, block_size=4, parts=parts) as lab:
        play_21(lab)
        with pytest.raises(ConfigError, match="keeps and Keeps"):
            lab.to_test()


# -- tiers -------------------------------------------------------------------------------------------------------------


class MixesUp(HostStore):
    """Returns the newest block, whichever is asked for."""

    def __init__(self, max_blocks: int | None = None, max_bytes: int | None = None, flavour: str = "plain") -> None:
        super().__init__(max_blocks, max_bytes)
        self.flavour = flavour

    def _get(self, key: tuple[int, bytes]) -> BlockKV | None:
        return super()._get(list(self._contents)[-1])


class Unknown(MixesUp):
    """Was given a value without a text."""

    def __init__(self, max_blocks: int | None = None, max_bytes: int | None = None, secret: object = "?") -> None:
        super().__init__(max_blocks, max_bytes)
        self.secret = secret


def lab_with_loads(tier: Connector) -> Lab:
    lab = Lab("simulated", num_blocks=4, block_size=4, external=tier)
    for first in (0, 100, 200, 0):
        lab.add(token_ids=range(first, first + 9), max_tokens=1)
        lab.run()
    return lab


def test_a_connector_is_made_anew(tmp_path: Path) -> None:
    with lab_with_loads(MixesUp(flavour="sweet")) as lab:
        assert lab.violations
        text = lab.to_test()
        lab.save(tmp_path / "run.lab")
    assert "external=MixesUp(flavour='sweet')" in text and "# The test passes when MixesUp is right." in text
    right = text.replace("MixesUp(flavour='sweet')", "labengine.HostStore()")
    assert (run_here(tmp_path, text), run_here(tmp_path, right)) == RED_AND_GREEN
    with pytest.warns(UserWarning, match="repeated without external"):
        labengine.open(tmp_path / "run.lab").rerun(trust=True).close()


def test_a_connector_that_goes_right_gets_no_test() -> None:
    class Renamed(HostStore):
        """Changes nothing."""

    with lab_with_loads(Renamed()) as lab, pytest.raises(NoTestError, match="HostStore would decide the same"):
        lab.to_test()


def test_a_connector_inside_another_is_made_anew() -> None:
    with lab_of(external=Delayed(HostStore(), 2), parts=Parts(merge_policy=MergesIntoFree)) as lab:
        assert "external=Delayed(inner=HostStore(), steps=2)" in lab.to_test()


def test_a_connector_that_cannot_be_made_anew_is_refused(tmp_path: Path) -> None:
    with (
        lab_with_loads(Unknown(secret=object())) as lab,
        pytest.raises(ConfigError, match=r"argument secret is unknown\. Keep it as"),
    ):
        lab.to_test()
    with (
        lab_of(external=tmp_path, parts=Parts(merge_policy=MergesIntoFree)) as lab,
        pytest.raises(NoTestError, match="a tier on disk"),
    ):
        lab.to_test()


# -- what a test may do to its process ---------------------------------------------------------------------------------


class EndsSometimes(BlockPool):
    """Hangs, ends the process, or prints forever, once its file has turned bad."""

    def take(self, num_blocks: int) -> list[int]:
        _misbehave()
        return super().take(num_blocks)


HOW = ""


def _misbehave() -> None:
    while HOW == "loops":
        pass
    if HOW == "exits":
        os._exit(3)
    if HOW == "raises SystemExit":
        sys.exit(4)
    while HOW == "prints":
        print("x" * 100)
    if HOW == "eats":
        _ = [bytearray(2**20) for _ in range(2**20)]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("loops", "in _misbehave"),
        ("exits", r"it ends the process \(exit code 3\)"),
        ("raises SystemExit", r"it ends the process \(SystemExit: 4\)"),
        ("prints", "it does not return"),
    ],
)
def test_a_test_that_hangs_or_exits_is_contained(monkeypatch: pytest.MonkeyPatch, how: str, says: str) -> None:
    with lab_of(parts=Parts(block_pool=EndsSometimes)) as lab:
        monkeypatch.setattr(sys.modules[__name__], "HOW", how)
        with pytest.raises(NoTestError, match=f"would not end: .*{says}.*labengine.find"):
            lab.to_test()


@pytest.mark.usefixtures("memory_ends_first")
def test_one_that_takes_all_memory_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    with lab_of(parts=Parts(block_pool=EndsSometimes)) as lab:
        monkeypatch.setattr(sys.modules[__name__], "HOW", "eats")
        assert "lab.crash is None" in lab.to_test(), "a MemoryError in a step is a crash"


def test_without_copies_of_the_process_it_is_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from labengine.session.saved import played

    monkeypatch.setattr(played, "can_fork", lambda: False)
    with lab_of(parts=Parts(merge_policy=MergesIntoFree)) as lab:
        assert "class MergesIntoFree" in (text := lab.to_test()) or "import MergesIntoFree" in text
        with pytest.raises(NoTestError):
            lab.to_test("lab.snapshot().step == 99")


# -- the other writers -------------------------------------------------------------------------------------------------


def test_a_comparison_gives_the_test_of_the_side_that_goes_wrong(tmp_path: Path) -> None:
    with lab_of() as lab, lab.rerun(MergesIntoFree) as comparison:
        text = comparison.to_test()
        assert outcomes(tmp_path, text) == RED_AND_GREEN
        assert text == comparison.right.to_test()  # type: ignore[attr-defined]
    with (
        lab_of(parts=Parts(merge_policy=MergesIntoFree)) as wrong,
        lab_of() as right,
        wrong.compare(right) as comparison,
    ):
        assert comparison.to_test() == wrong.to_test()


def test_a_comparison_of_editions_is_green_with_the_other_one() -> None:
    with lab_of(edition="vllm") as one, lab_of(edition="nano-vllm") as other, one.compare(other) as comparison:
        with pytest.raises(NoTestError, match="such as to_test") as caught:
            comparison.to_test()
        assert "# The test passes with the parts of vllm." in comparison.to_test(caught.value.suggestion)


def test_a_scenario_gives_one_too(tmp_path: Path) -> None:
    text = labengine.bug("nano-vllm-71").to_test()
    assert outcomes(tmp_path, text) == RED_AND_GREEN
    text = labengine.scenario(KeepsKeys, play=play_21, claim="It keeps keys.", num_blocks=4, block_size=4).to_test()
    assert outcomes(tmp_path, text) == RED_AND_GREEN


# -- a model with weights ----------------------------------------------------------------------------------------------


def test_a_session_with_weights_is_run_on_its_recorded_tokens(smollm2: Lab) -> None:
    first = smollm2.add(token_ids=range(2000, 2009), max_tokens=8, ignore_eos=True)
    smollm2.run()
    answered = [*smollm2.snapshot().requests[first].token_ids, 5]
    for _ in range(2):
        smollm2.add(token_ids=answered, max_tokens=3)
        smollm2.run()
    smollm2.add("Once upon a time", max_tokens=40, temperature=0.8, seed=5)
    smollm2.step(20)
    smollm2.abort(3)
    with smollm2.rerun(HitLosesHash) as comparison:
        with pytest.raises(NoTestError, match="no rule is broken here") as caught:
            comparison.to_test()
        assert "request 2 finds 16 tokens" in caught.value.suggestion
        text = comparison.to_test("cost(lab).hit_tokens == 32")  # 16 of them follow from what was sampled
    assert 'Lab("smollm2"' in text
