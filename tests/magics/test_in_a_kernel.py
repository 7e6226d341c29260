"""All commands in one session, on the real model, and in a real kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from magic_notebook import START, Notebook
from waiting import PATIENCE


def test_the_full_walk_on_the_real_model(notebook: Notebook) -> None:
    notebook.value("%lab start --model smollm2 --blocks 16 --block-size 4 --dtype float32 --device cpu")
    notebook.printed("%%prompt --max-tokens 4 --copies 2\nThe capital of France is")
    ran = notebook.run("%lab step")
    assert ran.value.scheduled == {0: 5, 1: 5} and "peak 4 blocks" in ran.printed
    assert notebook.lab.snapshot().num_used_blocks == 3
    notebook.printed("%lab run --wait")
    said = notebook.printed("%lab status")
    assert said.count("Paris") == 2 and "llama, 30 layers" in said and "dtype  float32" in said
    notebook.printed("%%prompt --chat --max-tokens 8\n2+2=?")
    notebook.printed("%lab run --wait")
    assert "<|im_start|>" in "".join(map(notebook.lab.token_text, notebook.lab.snapshot().requests[2].token_ids))
    assert "step 1 of " in notebook.printed("%lab goto 1") and notebook.printed("%lab check") == "all invariants hold\n"


def test_in_a_kernel_cells_run_while_the_engine_runs_and_tab_completes(
    jupyter_dirs: dict[str, str], tmp_path: Path
) -> None:
    from jupyter_client.manager import KernelManager

    # on files: ports that are free now may be another process's before the kernel has started
    manager = KernelManager(transport="ipc", ip=str(tmp_path / "kernel"))
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)

        def run(code: str) -> dict[str, Any]:
            printed: list[str] = []
            reply = client.execute_interactive(
                code, timeout=PATIENCE, output_hook=lambda m: printed.append(str(m["content"].get("text", "")))
            )
            return {"status": reply["content"]["status"], "printed": "".join(printed)}

        assert run("%load_ext labengine")["status"] == "ok"
        assert run(START.replace("12", "9000"))["status"] == "ok"
        assert run("%lab add on and on --max-tokens 30000")["status"] == "ok"
        assert "running" in run("%lab run")["printed"]
        assert "True" in run("print(lab.is_running)")["printed"]
        assert "paused after step" in run("%lab pause")["printed"]
        assert "did you mean step?" in run("%lab stepp")["printed"]
        reply = client.complete("%lab st", reply=True, timeout=PATIENCE)
        assert reply["content"]["matches"] == ["start", "step", "status"]
        reply = client.complete("x = 1\n%lab start --ed", reply=True, timeout=PATIENCE)
        assert reply["content"]["matches"] == ["--edition"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
