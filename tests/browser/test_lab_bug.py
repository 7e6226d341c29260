"""%lab bug in JupyterLab: the verdict, and the broken lab at the event that made it wrong."""

from __future__ import annotations

from browser.lab_page import LabPage


def test_it_opens_at_the_first_wrong_event_and_goes_on_from_there(lab_page: LabPage) -> None:
    lab_page.open_cells("%load_ext labengine", "%lab bug nano-vllm-219", "%lab step")
    lab_page.run_cell(0)
    lab_page.run_cell(1)
    assert lab_page.errors() == []
    shown = lab_page.cell(1)
    assert shown.locator("b", has_text="The claim holds.").count() == 1
    root = shown.locator(".labengine-dashboard")
    root.scroll_into_view_if_needed()

    def painted(name: str) -> str:
        return root.get_attribute(f"data-{name}") or ""

    lab_page.wait_for("the first lost block", lambda: painted("lost") == "1", timeout=30)
    assert int(painted("frame")) < int(painted("num-frames"))
    root.press("ArrowLeft")
    lab_page.wait_for("the last state that was right", lambda: painted("lost") == "0", timeout=30)
    root.press("ArrowRight")
    root.press("ArrowRight")
    lab_page.wait_for("the next lost block", lambda: painted("lost") == "2", timeout=30)
    lab_page.run_cell(2)
    lab_page.wait_for("the step after it", lambda: painted("step") == "2", timeout=30)
    assert lab_page.errors() == []
