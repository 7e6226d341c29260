"""Live: `labengine attach --page` on `vllm serve`, in a browser while requests come, ended by Ctrl-C.

LABENGINE_VLLM_PYTHON=path/to/vllm/bin/python pytest tests/browser/test_serve_vllm_page.py
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from browser.chromium import new_context
from browser.frames import FRAME
from browser.page_watch import PageWatch
from browser.screenshots import keep
from differential.vllm_process import VARIABLE, VERSION, named_interpreter
from differential.vllm_server import VllmServer
from labengine.engine.sources import model_path
from waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.sweep, pytest.mark.timeout(1800)]

PROMPTS = [f"{'Once upon a time ' * (4 + i % 7)}there was a block table, number {i % 5}." for i in range(24)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    python, folder = named_interpreter(), tmp_path_factory.mktemp("serve")
    if python is None:
        pytest.skip(f"set {VARIABLE} to an interpreter with vLLM {VERSION}: this starts its server")
    with VllmServer(python, Path(model_path("smollm2")), folder / "log", f"unix:{folder / 'tap'}") as server:
        server.wait_for_start()
        yield server


def served(place: str, model: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the command; return it, and the address that it prints."""
    command = [sys.executable, "-m", "labengine", "attach", place, "--page", "--tokenizer", str(model)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert running.stdout
    for line in running.stdout:
        if line.startswith("http://127.0.0.1:"):
            return running, line.strip()
    raise AssertionError(f"attach ended with {running.wait()}")


def data(page: Page, name: str) -> str:
    page.evaluate(FRAME)
    return page.locator(".labengine").get_attribute(f"data-{name}") or ""


def test_it_follows_while_requests_come_and_is_asked(server: VllmServer, browser: Browser, artifacts: Path) -> None:
    command, address = served(server.environment["LABENGINE_TAP"], server.model)
    with new_context(browser, viewport={"width": 1440, "height": 900}) as context, ThreadPoolExecutor(1) as pool:
        page = context.new_page()
        watch = PageWatch(page, address)
        page.goto(address)
        wait_until(lambda: data(page, "end") != "", "the dashboard")
        answers = pool.submit(server.tokens, PROMPTS, 48)
        wait_until(lambda: int(data(page, "step") or 0) > 10, "steps")
        assert not answers.done(), "the page follows while requests come"
        assert f"vllm 0.32.0 · rank 0 · {server.model.name} · " in page.locator(".le-title").inner_text()
        page.locator(".labengine").press("PageUp")
        moment = data(page, "moment")
        wait_until(lambda: int(data(page, "end")) > int(moment) + 100, "news while the reader looks back")
        assert data(page, "moment") == moment
        page.locator(".le-tables [data-block]").first.click()
        page.get_by_role("tab", name="Why?").click()
        page.locator(".le-why-place", has_text="vllm/v1/core/").first.wait_for()
        assert "cmpl-" in page.locator(".le-why-names").inner_text()
        keep(page, artifacts / "attached_serve.png")
        assert len(answers.result()) == len(PROMPTS)
        page.locator(".labengine").press("End")
        wait_until(lambda: data(page, "running") == "false", "the end of the requests")
        assert "cmpl-" in page.locator(".le-tables-name").first.inner_text()
        keep(page, artifacts / "attached_serve_end.png")
        assert watch.complaints() == []
        command.send_signal(signal.SIGINT)
        printed, _ = command.communicate(timeout=PATIENCE)
        assert command.returncode == 0 and "Traceback" not in printed and "violations" in printed
        page.locator(".le-message", has_text="has ended").wait_for()
