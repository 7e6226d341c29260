"""A session with user-written parts as a script: what their classes use is included, or asked for by name."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import labengine
from labengine.core.merge_policy import MergePolicy
from labengine.lab import Lab
from labengine.record.files.parsing import TraceError
from labengine.session.source_text import checked_literal, literal

Cell = Callable[[str], type]

POLICY = '''
from labengine.core.merge_policy import LateMerge
{before}

class Mine(LateMerge):
    """Uses names of its cell."""

    def merge_target(self, mapped, block, request, link):
        """Asks first."""
        {asks}
        return super().merge_target(mapped, block, request, link)
'''


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Runs a cell as a notebook does, and gives the class Mine that it defines."""

    def run(text: str) -> type:
        name = "<a cell>"
        monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(keepends=True), name))
        notebook = ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", notebook)
        exec(compile(text, name, "exec", dont_inherit=True), vars(notebook))
        return notebook.Mine  # type: ignore[no-any-return]

    return run


def lab_with(policy: type, **others: type) -> Lab:
    lab = Lab("simulated", num_blocks=12, block_size=4, parts=labengine.Parts(merge_policy=policy, **others))
    for _ in range(2):
        lab.add(token_ids=range(14), max_tokens=3)
    lab.run()
    return lab


def code_of(policy: type) -> str:
    with lab_with(policy) as lab:
        return lab.to_code()


def ran(code: str, **known: Any) -> dict[str, Any]:
    """The names that a script defines."""
    space: dict[str, Any] = {"__name__": "a_script", **known}
    with redirect_stdout(StringIO()):
        exec(compile(code, "<to_code>", "exec", dont_inherit=True), space)
    space["lab"].close()
    return space


@pytest.mark.parametrize(
    ("constant", "line"),
    [
        ("K = 3", "K = 3"),
        ("K = -2.5", "K = -2.5"),
        ("K = 'it''s'", "K = 'its'"),
        ("K = (1, None, [True, {'a': (2,)}])", "K = (1, None, [True, {'a': (2,)}])"),
        ("K = float('inf')", "K = 1e999"),
        ("K = {'b', 'a'}", "K = {'a', 'b'}"),
        ("K = ()", "K = ()"),
    ],
)
def test_a_plain_value_comes_along(cell: Cell, constant: str, line: str) -> None:
    code = code_of(cell(POLICY.format(before=constant, asks="self.seen = K")))
    assert f"\n{line}\n" in code and code.index(line) < code.index("class Mine") and "needed here" not in code
    assert ran(code)["K"] == ran(constant + "\nlab = open(0, closefd=False)")["K"]


def test_the_same_code_from_a_file(cell: Cell, tmp_path: Path) -> None:
    with lab_with(cell(POLICY.format(before="K = 3", asks="assert K == 3"))) as lab:
        lab.save(tmp_path / "run.lab")
        with labengine.open(tmp_path / "run.lab") as trace:
            assert trace.to_code() == lab.to_code()
            ran(trace.to_code())


def test_a_value_that_a_base_and_a_class_body_use(cell: Cell) -> None:
    text = POLICY.format(before="K, NUM = 3, 4", asks="assert self.own == 7 and K == 3").replace("Mine", "Base")
    text += "\nclass Mine(Base):\n    own = K + NUM\n\n    def nothing(self):\n        pass\n"
    code = code_of(cell(text))
    assert "\nK = 3\nNUM = 4\n" in code or "\nNUM = 4\nK = 3\n" in code
    ran(code)


def test_a_name_of_its_own_is_not_taken_for_the_notebooks(cell: Cell) -> None:
    """A name that only looks the same is not asked for."""
    code = code_of(cell(POLICY.format(before="block = held = object()", asks="held = block.ref_count")))
    assert "needed here" not in code
    ran(code)


def test_what_cannot_be_written_is_asked_for_before_anything_else(cell: Cell) -> None:
    code = code_of(cell(POLICY.format(before="K, asked = object(), print.__call__", asks="asked(); self.seen = K")))
    for name in ("K", "asked"):
        assert f"# {name} is needed here" in code
    with pytest.raises(NameError, match=r"^define K, asked above: it could not be saved$"):
        ran(code)
    with pytest.raises(NameError, match=r"^define asked above"):
        ran(code, K=3)
    assert ran(code, K=3, asked=lambda: None)["lab"].snapshot().step == 3


def test_a_function_of_the_cell_comes_along(cell: Cell) -> None:
    code = code_of(cell(POLICY.format(before="K = 3\ndef asked(): return K", asks="assert asked() == 3")))
    assert "needed here" not in code and code.index("def asked") < code.index("class Mine")
    ran(code)


def test_a_class_without_text_is_asked_for_too() -> None:
    nameless = type("Nameless", (MergePolicy,), {})
    code = code_of(nameless)
    with pytest.raises(NameError, match=r"^define Nameless above"):
        ran(code)
    ran(code, Nameless=nameless)


def test_values_from_the_function_that_defines_a_class() -> None:
    limit, late = 5, "later"

    class Mine(MergePolicy):
        """Made in a function."""

        def merge_target(self, *asked: Any) -> None:
            """Asks the function."""
            assert (limit, late) == (5, "later")

    code = code_of(Mine)
    assert "\nlimit = 5\n" in code and "\nlate = 'later'\n" in code
    assert code.splitlines()[1] == "from __future__ import annotations", "this file's annotations are not looked at"
    ran(code)


def test_annotations_that_are_not_looked_at_need_no_names(cell: Cell) -> None:
    future = (
        "from __future__ import annotations\nimport typing\nif typing.TYPE_CHECKING:\n    from nowhere import Block\n"
    )
    text = POLICY.format(before="T = object()", asks="pass").replace("block, request", "block: Block, request: T", 1)
    code = code_of(cell(future + text))
    assert "needed here" not in code
    ran(code)


def test_two_values_of_one_name_are_asked_for(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = cell(POLICY.format(before="K = 3", asks="self.seen = K"))
    chain = "from labengine.core.hash_chain import HashChain\nK = 4\nclass Chain(HashChain):\n    def nothing(self):\n"
    chain += "        return K\n"
    monkeypatch.setitem(linecache.cache, "<two>", (len(chain), None, chain.splitlines(keepends=True), "<two>"))
    space: dict[str, Any] = {"__name__": "elsewhere"}
    module = ModuleType("elsewhere")
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    exec(compile(chain, "<two>", "exec"), space)
    vars(module).update(space)
    with lab_with(policy, hash_chain=space["Chain"]) as lab:
        code = lab.to_code()
    assert "# K is needed here" in code and "K = 3" not in code and "K = 4" not in code


def test_classes_that_name_each_other(cell: Cell) -> None:
    text = POLICY.format(before="", asks="assert issubclass(Mine, Base)").replace("Mine(LateMerge)", "Base(LateMerge)")
    text += "\nclass Mine(Base):\n    def nothing(self):\n        return Base\n"
    code = code_of(cell(text))
    assert code.index("class Base") < code.index("class Mine") and code.count("class ") == 2
    ran(code)


@pytest.mark.parametrize(
    "value", [object(), int, float("nan"), complex("inf"), [object()], b"".join, frozenset(), set()]
)
def test_no_plain_value(value: object) -> None:
    assert literal(value) is None


def test_a_value_that_holds_itself() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert literal(endless) is None


@pytest.mark.parametrize("text", ["print(1)", "3\nimport os", "K", "[x for x in ()]", "1 +", "f'{1}'"])
def test_a_strangers_value_becomes_no_other_code(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not a plain value|malformed node"):
        checked_literal(text)
    with lab_with(MergePolicy) as lab:
        lab.save(tmp_path / "run.lab")
    with labengine.open(tmp_path / "run.lab") as trace:
        for constants in ({"K": text}, {"K = 3; print": "3"}):
            trace.facts["parts"]["classes"]["merge_policy"]["constants"] = constants
            with pytest.raises(TraceError, match="this trace has no code"):
                trace.to_code()


QUEUE = '''
from labengine.core.free_queue import FreeQueue


class Mine(FreeQueue):
    """Takes the block that was freed last."""

    def take(self, num_blocks):
        """From the tail."""
        taken = list(self)[::-1][:num_blocks]
        for block_id in taken:
            self.remove(block_id)
        return taken

    def put_back(self, block_ids):
        """At the tail."""
        self.append(block_ids[::-1])
'''


def test_a_free_queue_of_ones_own_goes_wherever_its_lab_goes(cell: Cell, tmp_path: Path) -> None:
    parts = labengine.Parts(free_queue=cell(QUEUE))
    with Lab("simulated", num_blocks=12, block_size=4, parts=parts) as lab:
        lab.add(token_ids=range(14), max_tokens=3)
        lab.run()
        end = lab.snapshot()
        assert end.blocks[11].block_hashes and not end.blocks[0].block_hashes
        lab.save(tmp_path / "own.lab")
        code = labengine.open(tmp_path / "own.lab").to_code()
        assert code == lab.to_code() and "parts=labengine.Parts(free_queue=Mine)" in code
        with lab.fork(1) as fork:
            fork.run()
            assert fork.snapshot() == end
        lab.rewind(1)
        lab.run()
        assert lab.snapshot() == end
    again = ran(code + "end = lab.snapshot()\n")
    assert again["end"] == end
