"""Events and tables of wrong parts, with ids that no block or request has, are drawn; nothing raises."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from labengine import Lab, Parts
from labengine import events as ev
from labengine.core.block_pool import BlockPool
from widgets.browser.stage.dashboard_page import View, show_dashboard
from widgets.story_219 import merging_step

TABS = ("Timeline", "Step", "Log", "Why?", "Charts")
NO_BLOCK, NO_REQUEST = 10**9, 77
WILD = [
    ev.StepStarted(2),
    ev.BlockAllocated(NO_BLOCK, 0, 0, 4),
    ev.BlockTouched(-7, 1, 0, 9, 3),
    ev.SlotsWritten(0, 0, 14, ((NO_BLOCK, 0, 1), (-7, 3, 4))),
    ev.BlockCached(NO_BLOCK, 0, 0, 4, b"\7" * 8, (NO_BLOCK,)),
    ev.BlockMerged(-7, NO_BLOCK, 1, 0, 0, 5),
    ev.BlockAllocated(9, NO_REQUEST, 0, 0),
    ev.TokenSampled(NO_REQUEST, 3, 5),
    ev.BlockFreed(NO_BLOCK, 0, 0, 4, 0, "tail", "finished"),
    ev.BlockFreed(3, 0, 0, 40, -2, "head", "finished"),
    ev.BlockFreed(3, 0, 0, 3, -3, "tail", "finished"),
    ev.BlockEvicted(NO_BLOCK, "reused"),
    ev.RequestFinished(NO_REQUEST, "length"),
    ev.StepEnded(2),
]


class ManyIds(BlockPool):
    """Hands out ids that no block has."""

    def take(self, num_blocks: int) -> list[int]:
        return [block_id if block_id % 2 else block_id + 1000 for block_id in super().take(num_blocks)]


@pytest.mark.browser
def test_a_dashboard_shows_every_moment_of_what_cannot_have_happened() -> None:
    def check(view: View) -> None:
        for name in TABS:
            view.page.get_by_role("tab", name=name, exact=True).click()
            end = int(view.data("moment"))
            view.walk([*range(end, end - len(WILD), -1), end])
            assert view.bare.errors == [], name
            assert view.data("step") == "2", name

    show_dashboard(check, [*merging_step(), *WILD])


def broken_lab() -> Lab:
    lab = Lab("simulated", num_blocks=8, block_size=4, parts=Parts(block_pool=ManyIds))
    lab.add(token_ids=range(9), max_tokens=4)
    with warnings.catch_warnings(), pytest.raises(IndexError):
        warnings.simplefilter("ignore")
        lab.step()
    return lab


def test_text_picture_and_page_of_it_are_made(tmp_path: Path) -> None:
    with broken_lab() as lab:
        lab.session.stepper.engine.requests[0].block_tables[0][:] = [0, 999, -7, 2, 10**12]  # and no event says so
        assert "#0 #999 #-7 #2 #1000000000000" in repr(lab)
        assert "<svg" in str(lab.show()._repr_mimebundle_())
        assert "failed here in" in lab.goto("crash").text
        lab.export_html(tmp_path / "broken.html")
