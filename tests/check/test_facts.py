"""A contradiction is told as data, too: what differs, what the events say, and what is."""

from __future__ import annotations

from typing import Any

import labengine
from labengine import events as ev
from labengine.check.contradictions import ABOUT
from labengine.core.block_pool import BlockPool
from labengine.core.parts import Parts
from labengine.lab import Lab


class CountsTwice(BlockPool):
    def touch(self, *args: Any, **keywords: Any) -> Any:
        touched = super().touch(*args, **keywords)
        self.blocks[9].ref_count += 1
        return touched


def test_the_fact_of_a_said_violation(tmp_path: Any) -> None:
    with Lab("simulated", num_blocks=16, block_size=2, parts=Parts(block_pool=CountsTwice)) as lab:
        lab.add(token_ids=[1, 2, 3, 4, 5], max_tokens=2)
        lab.run()
        lab.add(token_ids=[1, 2, 3, 4, 5], max_tokens=2)
        lab.run()
        said = [one for one in lab.violations if one.rule == "said"]
        assert any(one.fact for one in said)
        assert all(one.fact[0] in ABOUT and one.fact[2] in one.message for one in said if one.fact)
        assert all(not one.fact for one in lab.violations if one.rule != "said")
        assert lab.timeline is not None
        assert [one.fact for one in lab.timeline.of_kind(ev.ViolationFound)] == [one.fact for one in lab.violations]
        lab.save(tmp_path / "run.lab")
        assert [one.fact for one in labengine.open(tmp_path / "run.lab").violations] == [
            one.fact for one in lab.violations
        ]
