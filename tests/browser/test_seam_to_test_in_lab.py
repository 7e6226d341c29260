"""vLLM 49097 as a user of a notebook meets it: from an overridden seam to a regression test that is red."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser.lab_page import LabPage

OVERRIDE = '''from labengine import TokenBudgetScheduler
from labengine.core.request import RequestStatus


class IndexNotLowered(TokenBudgetScheduler):
    """Goes through the running requests by an index; a victim that leaves the list does not lower it."""

    def choose_victim(self, request):
        return self.running[0]

    def num_plannable(self, request):
        """Leave out a prompt of which chunks are missing, while others run."""
        is_deferred = 0 < request.num_computed_tokens < request.num_prompt_tokens and len(self.running) > 1
        return 0 if is_deferred else super().num_plannable(request)

    def _schedule_running(self, chunk, preempted):
        budget, index, batch = self.config.max_num_batched_tokens, 0, []
        while index < len(self.running) and budget:
            request = self.running[index]
            index += 1
            num_tokens = min(self.num_plannable(request), budget, chunk)
            if num_tokens > 1:
                num_tokens = self.clipped(request, request.num_computed_tokens, num_tokens)
            if num_tokens <= 0:
                continue
            if not self.allocate_or_preempt(request, request.num_computed_tokens + num_tokens, batch, preempted):
                break
            batch.append(self.plan(request, num_tokens, RequestStatus.RUNNING))
            budget -= num_tokens
        return batch'''

RUN = """import labengine
from labengine import Lab, Parts

lab = Lab("simulated", num_blocks=4, block_size=4, max_num_batched_tokens=16, long_prefill_token_threshold=8,
          parts=Parts(scheduler=IndexNotLowered))
lab.add(token_ids=range(1, 13), max_tokens=1)
lab.add(token_ids=[50, 51, 52], max_tokens=6)
lab.add(token_ids=[60, 61], max_tokens=6)
lab.step(3)
lab"""

WHY = "lab.why(event=lab.violations[0].first_event)"
TEST = """test = lab.to_test()
print(test)
open("test_skipped.py", "w").write(test)
mended = test.replace("PARTS = labengine.Parts(scheduler=IndexNotLowered)", "PARTS = None")
open("test_mended.py", "w").write(mended);"""
PYTEST = "!{sys.executable} -m pytest -q -p no:cacheprovider --color no -W ignore %s | tail -2"
FIND = "%lab find IndexNotLowered"


@pytest.mark.journey
def test_a_seam_is_overridden_and_becomes_a_red_test(lab_page: LabPage) -> None:
    runs = PYTEST % "test_skipped.py", PYTEST % "test_mended.py"
    lab_page.open_cells("%load_ext labengine\nimport sys", OVERRIDE, RUN, WHY, TEST, *runs, FIND)
    lab_page.run_all()
    assert lab_page.errors() == []
    assert "step 3 breaks the rule 'idle'" in lab_page.text(2)
    dashboard = lab_page.cell(2)
    expect(dashboard.get_by_text("edition labengine + IndexNotLowered")).to_be_visible()
    expect(dashboard.get_by_text("request 2 is running but gets no token").first).to_be_visible()
    assert "IndexNotLowered._schedule_running" in lab_page.text(3)
    assert "class IndexNotLowered(TokenBudgetScheduler):" in lab_page.text(4)
    assert "1 failed" in lab_page.text(5) and "1 passed" in lab_page.text(6)
    assert "labengine + IndexNotLowered" in lab_page.text(7)
    assert "breaks a rule (idle)" in (found := lab_page.text(7)) or "decides differently" in found  # on a slow machine
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        lab_page.set_theme(theme)
        for width in (1440, 1024, 390):
            lab_page.page.set_viewport_size({"width": width, "height": 1000})
            for index in (2, 7):
                lab_page.cell(index).scroll_into_view_if_needed()
                lab_page.screenshot(f"seam-{theme[11:]}-{width}-{index}")
