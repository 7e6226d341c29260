"""A saved session in JupyterLab, with no engine and no torch in the kernel."""

from __future__ import annotations

from pathlib import Path

import labengine
from browser.jupyter_server import JupyterServer
from browser.lab_page import LabPage
from browser.open_view import printed, shown


def test_it_is_shown_without_torch_and_controls_and_asked_why(notebook: LabPage, jupyter_server: JupyterServer) -> None:
    path: Path = jupyter_server.root_dir / "run.lab"
    with labengine.Lab("simulated", num_blocks=32, block_size=4, max_num_seqs=4) as lab:
        for _ in range(2):
            lab.add(token_ids=list(range(14)), max_tokens=8)
        lab.run()
        num_steps = lab.snapshot().step
        lab.save(path)
    view = shown(notebook, "import sys\ntrace = labengine.open('run.lab')\ntrace.show()")
    loaded = printed(notebook, "[name for name in ('torch', 'numpy', 'transformers') if name in sys.modules]")
    assert loaded == "[]"
    view.press("End")
    view.until("step", str(num_steps))
    assert not view.root.get_by_role("button", name="Step", exact=True).is_visible()
    notebook.execute("trace.goto(1)")
    view.until("step", "1")
    assert (view.data("used"), view.data("peak")) == ("5", "8")
    view.click_block(0, on_count=True)
    notebook.wait_for("links", lambda: view.root.locator(".le-why-link").count() == 2)
    assert notebook.errors() == []
