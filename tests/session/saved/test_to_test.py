"""lab.to_test(): a session of any lab as a test, red with its parts and green with production's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import labengine
from labengine.config import ConfigError
from labengine.core.block import Block
from labengine.core.merge_policy import LateMerge
from labengine.engine.external.host import HostStore
from labengine.lab import Lab


class MergesIntoFree(LateMerge):
    """Merges into blocks that are free."""

    def is_alive(self, other: Block) -> bool:
        return True


def lab_of(**settings: Any) -> Lab:
    lab = Lab("simulated", num_blocks=8, block_size=4, **settings)
    for max_tokens in (1, 3):
        lab.add(token_ids=range(5), max_tokens=max_tokens)
    return lab


def run(text: str, **names: Any) -> None:
    space: dict[str, Any] = {}
    exec(compile(text, "test_made.py", "exec"), space)
    space.update(names)
    space["test_session"]()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_it_is_red_with_the_parts_and_green_without() -> None:
    from labengine.core.parts import Parts

    with lab_of(parts=Parts(merge_policy=MergesIntoFree)) as lab:
        lab.run()
        text = lab.to_test()
    assert "class MergesIntoFree(LateMerge):" in text or "import MergesIntoFree" in text
    with pytest.raises(AssertionError):
        run(text)
    run(text, PARTS=None)


class Forgets(HostStore):
    """Loads nothing."""

    def start_load_kv(self, loads: Any, runner: Any) -> None: ...


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_tier_that_a_test_cannot_make_is_refused(tmp_path: Path) -> None:
    """Without it the test would be green, and a rerun right."""
    with lab_of(external=Forgets()) as lab:
        lab.run()
        with pytest.raises(ConfigError, match=r"a test cannot carry external=.*Forgets.*labengine.find\("):
            lab.to_test()
        lab.save(tmp_path / "run.lab")
    with pytest.warns(UserWarning, match="repeated without external: to_code"):
        labengine.open(tmp_path / "run.lab").rerun(trust=True).close()


def test_a_session_without_overrides_is_green() -> None:
    with lab_of(external="host") as lab:
        lab.run()
        run(lab.to_test())
