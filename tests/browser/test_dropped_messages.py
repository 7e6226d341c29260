"""Messages that never arrive: the page notices by itself, asks, and shows what the lab is in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from browser.jupyter_server import JupyterServer
from browser.lab_page import LabPage
from labengine_widgets.feed.worker import PERIOD

SHOWN = """
import json, random, time, labengine
from labengine import events
lab = labengine.Lab('simulated', num_blocks=512, block_size=2, max_num_seqs=32, check=False)
def add_many(number=64):
    for i in range(number):
        lab.add(token_ids=range(i * 3, i * 3 + 9), max_tokens=200)
add_many()
lab.step()
dashboard = lab.show()
dashboard
"""

# Every third message is lost, the last one of the run for certain.
LOSSY = """
dice, sends, num_lost, is_ending = random.Random(3), dashboard.send, 0, False
def send(content, buffers=None):
    global num_lost
    if content["type"] == "more" and (is_ending or dice.random() < 1 / 3):
        num_lost += 1
    else:
        sends(content, buffers)
dashboard.send = send
"""

RUN = """
import asyncio
before, began = lab.feed.num_messages, time.monotonic()
pace = lab.hooks.subscribe(lambda event: time.sleep({pause}), events.StepEnded)
lab.start()
while lab.feed.num_messages < before + {messages}:
    if len(lab.session.stepper.engine.scheduler.waiting) < 64:
        add_many()
    await asyncio.sleep(0.05)
is_ending, lost = True, num_lost
while num_lost == lost:
    await asyncio.sleep(0.02)
lab.pause()
pace.close()
print(json.dumps([lab.feed.num_messages - before, time.monotonic() - began]))
"""

# The server drops what goes beyond its limit, of this widget as of others, until the kernel is idle again. The limit
# here is a count, whatever the machine's speed: 300 messages in ten minutes.
STRICT: dict[str, object] = {
    "ZMQChannelsWebsocketConnection.iopub_msg_rate_limit": 0.5,
    "ZMQChannelsWebsocketConnection.rate_limit_window": 600,
}

FLOOD = """
import time
before, began, num_rounds = lab.feed.num_messages, time.monotonic(), 0
lab.start()
while num_rounds < {rounds} or lab.snapshot().step < 20:
    num_rounds += 1
    for _ in range(400):
        dashboard.comm.send({{"method": "custom", "content": {{"type": "noise"}}}})
    if len(lab.session.stepper.engine.scheduler.waiting) < 64:
        add_many()
    time.sleep(0.02)
lab.pause()
found = [lab.feed.num_messages - before, time.monotonic() - began]
"""

STATE = """
snapshot = lab.snapshot()
ref_counts = [block.ref_count for block in snapshot.blocks]
print(json.dumps(dict(step=snapshot.step, end=lab.timeline.end, ref_counts=ref_counts,
    queue=snapshot.free_queue, map=sorted([key, list(ids)] for key, ids in snapshot.prefix_map.items()),
    tables=sorted([id, request.num_computed_tokens, request.block_tables] for id, request in snapshot.requests.items()
                  if request.status == "running"))))
"""

MOMENT = """() => document.querySelector(".labengine").stage.sides[0].moment"""
"""The one that is painted: the recording's end comes earlier."""

PICTURE = """() => {
  const { stage } = document.querySelector(".labengine"), [{ scene, recording }] = stage.sides;
  const running = [...scene.requests.values()].filter(({ status }) => status === "running");
  return {
    step: scene.step, end: recording.end, ref_counts: [...scene.refCounts],
    queue: [...scene.queue.first(scene.queue.size)],
    map: [...scene.map.keys()].map((key) => [key, [...scene.map.get(key)]]).sort(([a], [b]) => (a < b ? -1 : 1)),
    tables: running.map(({ id, numComputed, tables }) => [id, numComputed, tables]).sort(([a], [b]) => a - b),
  };
}"""


def shown(lab: LabPage) -> None:
    lab.open_cells(SHOWN)
    lab.run_cell(0)
    lab.wait_for("the dashboard", lambda: lab.page.locator(".labengine[data-step='1']").count() > 0)


def run(lab: LabPage, source: str) -> int:
    """Run `source` to its end in a new cell and return its index; questions that the page asks meanwhile may wait."""
    index = lab.add_cell(source)
    lab.run_cell(index, wait=False)
    counts = lab.execution_counts
    lab.wait_for("the cell's end", lambda: counts()[index] is not None and lab.kernel_status() == "idle")
    assert lab.errors() == []
    return index


def lines(lab: LabPage, source: str) -> list[str]:
    """What a cell prints, and the server beside it."""
    index = run(lab, source)
    lab.wait_for("what it prints", lambda: lab.text(index).rstrip().endswith(("]", "}")) or lab.errors())
    assert lab.errors() == []
    return lab.text(index).splitlines()


def the_page_shows_what_the_lab_is_in(lab: LabPage) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(lines(lab, STATE)[-1])
    assert sum(state["ref_counts"]) > 0 and state["step"] > 10
    lab.wait_for("the lab's moment", lambda: lab.page.evaluate(MOMENT) == state["end"])
    assert lab.page.evaluate(PICTURE) == state
    return state


def test_what_was_lost_on_the_way_is_asked_for(lab_page: LabPage) -> None:
    shown(lab_page)
    lab_page.execute(LOSSY)
    messages, seconds = json.loads(lines(lab_page, RUN.format(messages=60, pause=0.02))[-1])
    assert json.loads(lines(lab_page, "print([num_lost])")[-1])[0] >= 5
    assert 60 <= messages <= seconds / PERIOD + 3
    the_page_shows_what_the_lab_is_in(lab_page)


@pytest.fixture
def strict_lab_page(
    browser: Browser, jupyter_dirs: dict[str, str], tmp_path: Path, artifacts: Path
) -> Iterator[LabPage]:
    """A page on a separate server, with the limits of STRICT."""
    server = JupyterServer(tmp_path, STRICT)
    server.start()
    page = browser.new_page()
    lab = LabPage(page, server, artifacts)
    yield lab
    page.close()
    server.stop()
    assert lab.watch.complaints() == []


@pytest.mark.sweep
def test_a_server_that_drops_messages_costs_nothing_but_time(strict_lab_page: LabPage) -> None:
    lab = strict_lab_page
    shown(lab)
    run(lab, FLOOD.format(rounds=2))
    said = "".join(lab.text(index) for index in range(len(lab.sources())))
    assert "rate exceeded" in said, "the server dropped nothing: the flood is too small"
    messages, seconds = json.loads(lines(lab, "print(json.dumps(found))")[-1])
    assert messages <= seconds / PERIOD + 3
    the_page_shows_what_the_lab_is_in(lab)
