"""A seam as a cell's text, and the edited text as a class: its execution, its display, and refusals."""

from __future__ import annotations

import ast
import inspect
import traceback
from collections.abc import Mapping
from typing import Any

import pytest

from labengine.config import ConfigError
from labengine.core.block_pool import BlockPool
from labengine.core.editions import EDITIONS, LABENGINE, VLLM
from labengine.core.parts import Parts
from labengine.session.carried_text import class_text
from labengine.session.patch.cell import cell_text, parts_from_cell
from labengine.session.patch.seams import find_seam, seams_in_use

BOTH = ("full", "sliding_window")


def patched(name: str, text: str, parts: Parts = LABENGINE, known: Mapping[str, Any] | None = None) -> Parts:
    """The parts with the cell's method instead of the seam."""
    return parts_from_cell(find_seam(name, parts, BOTH), text, parts, known or {})


TOUCH = "def touch(self, block_ids):\n    super().touch(block_ids)\n    self._journal.record((NULL_BLOCK,))\n"


def test_the_method_becomes_one_of_a_subclass_of_the_class_in_use() -> None:
    parts = patched("touch", TOUCH, VLLM)
    pool = parts.block_pool
    assert pool.__mro__[1] is VLLM.block_pool and pool.__name__ == "PatchedVllmBlockPool"
    assert pool.touch is not BlockPool.touch and pool.take is BlockPool.take
    assert parts.name == "vllm + touch" and parts.merge_policy is VLLM.merge_policy


def test_names_come_from_the_seams_own_module_then_from_the_notebook() -> None:
    text = "def reused_first(self, block_ids):\n    return _without(block_ids, wanted) + [NULL_BLOCK]\n"
    pool = patched("reused_first", text, known={"wanted": [1], "NULL_BLOCK": "the notebook's"}).block_pool
    assert pool.reused_first(None, [1, 2]) == [2, -1]


def test_imports_helpers_and_constants_of_the_cell_are_known_to_the_method() -> None:
    text = (
        "from heapq import nsmallest\nMOST = 2\ndef few(ids):\n    return nsmallest(MOST, ids)\n\n"
        "def reused_first(self, block_ids):\n    return few(block_ids)\n"
    )
    assert patched("reused_first", text).block_pool.reused_first(None, [3, 1, 2]) == [1, 2]


def test_a_property_and_a_class_attribute_are_replaced_too() -> None:
    pool = patched("num_free", "@property\ndef num_free(self):\n    return 7\n").block_pool
    assert isinstance(vars(pool)["num_free"], property)
    assert patched("null_block", "null_block: int = 3").block_pool.null_block == 3


def test_one_cell_patches_both_kinds_of_group() -> None:
    parts = patched("cached_block", "def cached_block(self, request, index):\n    return None\n")
    assert parts.full_attention_group.__name__ == "PatchedFullAttentionGroup"
    assert parts.sliding_window_group.__name__ == "PatchedSlidingWindowGroup"
    for group in (parts.full_attention_group, parts.sliding_window_group):
        assert group.cached_block(None, None, 0) is None


def test_a_second_patch_has_a_name_of_its_own() -> None:
    once = patched("touch", TOUCH)
    twice = patched("share", "def share(self, block):\n    super().share(block)\n", once).block_pool
    assert twice.__name__ == "PatchedBlockPool2" and twice.__mro__[1] is once.block_pool


def test_an_error_names_the_line_of_the_cell() -> None:
    """Line 1 is the line of the magic."""
    pool = patched("touch", "\n\ndef touch(self, block_ids):\n    raise KeyError('x')\n").block_pool
    with pytest.raises(KeyError) as caught:
        pool.touch(None, [])
    place = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (place.lineno, place.line) == (5, "raise KeyError('x')") and "BlockPool.touch" in place.filename


def test_a_text_of_several_lines_keeps_its_value() -> None:
    text = 'def reused_first(self, block_ids):\n    """One.\n\n    Two."""\n    return """a\nb"""\n'
    pool = patched("reused_first", text).block_pool
    assert pool.reused_first(None, []) == "a\nb"
    assert inspect.getdoc(pool.reused_first) == "One.\n\nTwo."


def test_the_source_is_found_by_python_and_written_for_a_script() -> None:
    pool = patched("touch", TOUCH).block_pool
    assert "self._journal.record((NULL_BLOCK,))" in inspect.getsource(pool.touch)
    text = class_text(pool)
    assert text["definitions"] == [
        "class PatchedBlockPool(BlockPool):\n    def touch(self, block_ids):\n        super().touch(block_ids)\n"
        "        self._journal.record((NULL_BLOCK,))"
    ]
    assert text["missing"] == [] and "from labengine.core.block_pool import BlockPool" in text["imports"]
    script: dict[str, Any] = {}
    exec(
        "\n".join([*text["imports"], *(f"{n} = {v}" for n, v in text["constants"].items()), *text["definitions"]]),
        script,
    )
    assert issubclass(script["PatchedBlockPool"], BlockPool)


# -- a seam as a text --------------------------------------------------------------------------------------------------


def test_every_seam_opens_as_a_text_that_is_a_patch() -> None:
    for parts in EDITIONS.values():
        for seam in seams_in_use(parts, BOTH):
            made = parts_from_cell(seam, cell_text(seam), parts, {})
            assert [getattr(made, field).__name__[:7] for field in seam.fields] == ["Patched"] * len(seam.fields), str(
                seam
            )


def test_super_means_the_class_that_it_was_written_in() -> None:
    """A plain super() would call the method that the patch copies."""
    seam = find_seam("choose_victim", LABENGINE, BOTH)
    assert "super()" in seam.method.source
    calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(cell_text(seam))) if isinstance(node, ast.Call)]
    assert calls.count("super(TokenBudgetScheduler, self).choose_victim") == 1 and "super" in calls


# -- refused, before anything changes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def touch(self, block_ids:\n    pass", r"line 2: '\(' was never closed: def touch"),
        ("return 1", "line 2: 'return' outside function"),
        (
            "def touch(self, block_ids):\n    return blok",
            "line 3: neither labengine.core.block_pool nor this notebook defines blok",
        ),
        ("def touch(self, block_ids):\n    block_idz", r"defines block_idz; did you mean block_ids\?"),
        ("def touch(self):\n    pass", r"touch\(self\) cannot be called that way.*BlockPool.touch\(self, block_ids\)"),
        ("def touch(self, block_ids, more):\n    pass", "missing a required argument: 'more'"),
        ("def touch(block_ids):\n    pass", "cannot be called that way"),
        ("async def touch(self, block_ids):\n    pass", "is async"),
        ("def touch(self, block_ids):\n    yield 1", "yield"),
        ("touch = 3", "is a plain value"),
        (
            "def tuch(self, block_ids):\n    pass",
            "must define touch to replace BlockPool.touch: it defines tuch",
        ),
        ("", "it defines nothing"),
        ("def touch(self, block_ids):\n    pass\n" * 2, "defines touch 2 times"),
        ("class Mine:\n    pass", r"write only the method.*lab.rerun\(Mine\)"),
        ("\0", "line"),
    ],
)
def test_a_text_that_is_no_patch_is_refused_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        patched("touch", text)
    assert "\n" not in str(caught.value)


def test_names_in_annotations_need_not_exist() -> None:
    text = "def touch(self, block_ids: Unheard[of]) -> Nothing:\n    pass\n"
    assert patched("touch", text).block_pool.touch(None, []) is None


def test_a_method_copied_with_its_indentation_is_read() -> None:
    assert patched("touch", "    def touch(self, block_ids):\n        pass\n").block_pool.__name__ == "PatchedBlockPool"
