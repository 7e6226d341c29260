"""What a dashboard uses up while a lab runs: memory, nodes, listeners, comms, threads of kernel and page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from playwright.sync_api import CDPSession

from browser.lab_page import LabPage

SHOWN = """
import comm, gc, json, threading, time, labengine
from random import Random
from labengine import events
lab = labengine.Lab('simulated', num_blocks={blocks}, block_size=4, max_num_seqs=32, record={record})
rng = Random(1)

def add_many():
    for _ in range(64):
        prompt = [1] * 8 + [rng.randrange(50_000) for _ in range(rng.randint(1, 24))]
        lab.add(token_ids=prompt, max_tokens=rng.randint(5, 40))
for _ in range(10):  # the pool has been full before anybody looks
    add_many()
    lab.step(40)
lab
"""

# The lab steps on its own thread; the cell only waits, so that the kernel answers the page meanwhile.
RUN = """
import asyncio
pace = lab.hooks.subscribe(lambda event: time.sleep(1 / {rate}), events.StepEnded)
last_step, last_message = lab.snapshot().step + {steps}, lab.feed.num_messages + {steps} // 4
while lab.snapshot().step < last_step or lab.feed.num_messages < last_message:
    if len(lab.session.stepper.engine.scheduler.waiting) < 64:
        add_many()
    lab.start()
    await asyncio.sleep(0.1)
lab.pause()
pace.close()
"""

KERNEL = """
def resident():
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * 4096 / 1e6
gc.collect()
print(json.dumps(dict(rss=resident(), threads=threading.active_count(), comms=len(comm.get_comm_manager().comms),
    step=lab.snapshot().step, messages=lab.feed.num_messages, failures=[str(e) for e in lab.feed.failures])))
"""

PAGE = """() => {
  const root = document.querySelector(".labengine"), { step, moment, used } = root.dataset;
  const dashboard = root.querySelectorAll("*").length;
  return { dashboard, step: Number(step), moment: Number(moment), used: Number(used) };
}"""


@dataclass(frozen=True)
class Sample:
    """One look at both halves, both after a garbage collection. rss and heap in MB."""

    rss: float
    heap: float
    nodes: int
    dashboard: int
    listeners: int
    documents: int
    comms: int
    threads: int
    step: int
    messages: int

    def __str__(self) -> str:
        return "  ".join(f"{name} {value:g}" for name, value in asdict(self).items())


class Wear:
    """A notebook whose lab runs with its dashboard open, a stretch at a time."""

    def __init__(self, lab: LabPage, blocks: int = 128, record: int = 20_000) -> None:
        self.lab = lab
        lab.is_worn = True  # its DevTools stay attached
        lab.open_cells(SHOWN.format(blocks=blocks, record=record))
        lab.run_cell(0)
        lab.wait_for("the dashboard", lambda: lab.page.locator(".labengine[data-step='400']").count() > 0)
        self.devtools: CDPSession = lab.page.context.new_cdp_session(lab.page)
        self.devtools.send("Performance.enable")
        self._cell = lab.add_cell("pass")

    def run(self, num_steps: int, rate: float = 30) -> Sample:
        """Let the lab take so many steps, `rate` a second at most, and send a quarter as many messages; then look."""
        self._execute(RUN.format(steps=num_steps, rate=rate))
        return self.sample()

    def sample(self) -> Sample:
        """A sample of both halves, once the page shows the kernel's last step."""
        kernel = json.loads(self._execute(KERNEL))
        assert kernel.pop("failures") == []
        self.lab.wait_for("the last step", lambda: self.page_state()["step"] == kernel["step"])
        self.devtools.send("HeapProfiler.collectGarbage")
        metrics = {one["name"]: one["value"] for one in self.devtools.send("Performance.getMetrics")["metrics"]}
        return Sample(
            heap=metrics["JSHeapUsedSize"] / 1e6,
            nodes=int(metrics["Nodes"]),
            listeners=int(metrics["JSEventListeners"]),
            documents=int(metrics["Documents"]),
            dashboard=self.page_state()["dashboard"],
            **kernel,
        )

    def page_state(self) -> dict[str, Any]:
        """What the page shows."""
        state: dict[str, Any] = self.lab.page.evaluate(PAGE)
        return state

    def _execute(self, source: str) -> str:
        """Run a text in the one cell kept for it, so that the notebook does not grow."""
        self.lab._ask("setSource", self._cell, source)
        self.lab.run_cell(self._cell)
        assert self.lab.errors() == []
        return self.lab.text(self._cell)
