"""Tests generated for a connector's class and for a patched module: each contains the error, or is refused."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from finder.test_counterexample import outcome
from finder.test_find import TINY, found
from labengine.config import ConfigError
from labengine.core import block_pool
from labengine.core.block_pool import BlockPool
from labengine.core.connector import BlockKV, Connector
from labengine.engine.external import HostStore
from labengine.finder.counterexample import Counterexample
from labengine.finder.find import GRAVE, find
from labengine.finder.find_command import find_from_file
from labengine.finder.scopes import TO_LOAD, Scope, small_scopes
from labengine.finder.suspects import changed_in_place
from labengine.session.saved.regression import NoTestError

FOUR_BLOCKS = replace(small_scopes()[0].config, num_blocks=4)
WITH_LOADS = (Scope("loads", FOUR_BLOCKS, only=(TO_LOAD[1], TO_LOAD[3])),)
SETTINGS = {"scopes": WITH_LOADS, "kinds": GRAVE, "max_workloads": 0}


def mixing_up() -> type[Connector]:
    """A class that cannot be imported."""

    class MixesUp(HostStore):
        """Returns the newest block, whichever is asked for."""

        def _get(self, key: tuple[int, bytes]) -> BlockKV | None:
            return super()._get(list(self._contents)[-1])

    return MixesUp


MixesUp = mixing_up()


def test_a_connectors_class_is_found_and_carried_by_its_test() -> None:
    one = found(MixesUp, **SETTINGS)
    assert (one.kind, one.rule) == ("rule", "read")
    text = one.to_test()
    assert "class MixesUp(HostStore):" in text and "external=MixesUp()" in text
    assert "# The test passes when MixesUp is right." in text
    assert isinstance(outcome(text, production=True), AssertionError), "the tier is wrong, whatever the parts"
    assert outcome(text.replace("list(self._contents)[-1]", "key"), production=True) is None
    assert "external=MixesUp()" in one.to_code()
    assert "external=MixesUp()" in repr(one) and "with MixesUp" in one.headline


def test_a_connectors_class_is_compared_with_the_class_that_it_is_made_from() -> None:
    with found(MixesUp, **SETTINGS).compare() as both:
        yours, reference = both.left, both.right
        assert type(yours.external) is MixesUp
        assert type(reference.external) is HostStore
        assert yours.violations and not reference.violations


def test_a_function_that_makes_one_is_carried_too() -> None:
    def small_tier() -> Connector:
        return MixesUp(max_blocks=4)

    one = found(small_tier, **SETTINGS)
    text = one.to_test()
    assert "def small_tier()" in text and "class MixesUp" in text and "external=small_tier()" in text
    assert isinstance(outcome(text, production=True), AssertionError)


@pytest.mark.parametrize("maker", [partial(MixesUp, max_blocks=4), lambda: MixesUp(max_blocks=4)])
def test_what_has_no_text_makes_no_test(maker: object) -> None:
    one = found(maker, **SETTINGS)
    with pytest.raises(ConfigError, match="cannot be written as Python"):
        one.to_test()
    assert "which this script cannot make" in one.to_code()


def test_a_connectors_class_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from labengine.finder import find as find_module

    monkeypatch.setattr(find_module, "small_scopes", lambda keys, **settings: WITH_LOADS)
    monkeypatch.setattr(find_module, "large_scopes", lambda keys, **settings: WITH_LOADS)
    file, made = tmp_path / "own_tier.py", tmp_path / "test_own_tier.py"
    file.write_text(
        textwrap.dedent("""
        from labengine.engine.external import HostStore

        NOTHING = None

        class Forgets(HostStore):
            def has(self, group, block_hash):
                raise KeyError(NOTHING)
        """)
    )
    assert isinstance(find_from_file(f"{file}:Forgets", "labengine", 5, 0, str(made)), Counterexample)
    sys.modules.pop("own_tier")
    text = made.read_text()
    assert "NOTHING = None" in text and "class Forgets(HostStore):" in text
    assert isinstance(outcome(text, production=True), KeyError)


# -- a module ----------------------------------------------------------------------------------------------------------


def test_a_patched_module_is_searched_and_makes_no_test_that_is_green(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed_in_place(block_pool) == ()

    def touch(self: BlockPool, block_ids: object) -> None:
        raise RuntimeError("patched")

    monkeypatch.setattr(BlockPool, "touch", touch)
    assert changed_in_place(block_pool) == ("BlockPool.touch",)
    one = found(block_pool, scopes=TINY, kinds=GRAVE, max_workloads=0)
    assert one.message == "RuntimeError: patched" and "labengine.core.block_pool patched" in one.headline
    with pytest.raises(ConfigError, match=r"BlockPool.touch differs from labengine.core.block_pool's file"):
        one.to_test()
    monkeypatch.undo()
    with pytest.raises(NoTestError, match=r"^the assertion also holds"):
        one.to_test()


def test_a_module_that_was_not_patched_goes_right() -> None:
    assert not find(block_pool, scopes=TINY, kinds=GRAVE, max_workloads=0, workers=0, show_progress=False)


@pytest.mark.parametrize(
    "name", ["scheduler", "kv_cache_manager", "hash_chain", "merge_policy", "journal", "block", "request"]
)
def test_no_module_of_the_core_counts_as_patched(name: str) -> None:
    __import__(f"labengine.core.{name}")
    assert changed_in_place(sys.modules[f"labengine.core.{name}"]) == ()
