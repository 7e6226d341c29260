"""vLLM pull request 32255: a request is aborted during its load, and the transfer lands in another request's blocks.

A request whose KV comes from a remote engine waits with its blocks. When it was aborted, vLLM before 0.16.0 freed them
at once, while the transfer into them went on. It lands in blocks that another request may hold by then. The fix keeps
them until the transfer is reported. (labengine's edition vllm frees them at once, and has the tier stop the transfer.)
"""

from __future__ import annotations

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.engine.external.host import HostStore
from labengine.events import BlockAllocated, BlocksLoaded, ExternalHit, RequestFinished, SlotsWritten
from labengine.lab import Lab
from labengine.scenarios.aborted_loads import FREES_AFTER_LOAD
from labengine.scenarios.counts import num_finished, num_misread_blocks
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings
from labengine.scenarios.tiers import LandsAnyway, late_host

FREES_AT_ONCE = Parts(name="vllm, frees at once").overriding(VLLM)


class AbortDuringLoad(Scenario):
    """A and B load; A is aborted, and C gets A's blocks before A's transfer lands."""

    id = "vllm-32255"
    title = "An aborted load lands in another request's blocks"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="32255",
        title="[BugFix] scheduler: Delay freeing blocks of aborted async loads",
        state="merged",
        as_of="2026-09-11",
        seen_in="code of 0.13.0 to 0.15.1",
        mended_in="0.16.0 (32255)",
        needs=("a connector that loads while the request waits (WAITING_FOR_REMOTE_KVS), such as NIXL", "an abort"),
    )
    claim = (
        "Aborting a request that waits for remote KV frees its blocks while the transfer into them is under way. They "
        "can be given to another request, whose KV the transfer then overwrites."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.15.1 an abort frees a request's blocks whatever it waits for, unless the connector asks to keep "
            "them; the scheduler does not wait for the end of a load. Since 0.16.0 it does."
        ),
        passages=(
            CodePassage(
                version="vllm 0.15.1",
                file="vllm/v1/core/sched/scheduler.py",
                line=1681,
                text="self._free_request(request)",
                says="An abort frees a request without a look at a load.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=2702,
                text="if request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:",
                says="An abort of a request that loads delays the free until the load is reported.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 46283",
                says=(
                    "What the fix costs: with NixlPushConnector the report may never come, and the blocks are held for "
                    "good (open as of 2026-09-11)."
                ),
            ),
        ),
    )
    kind = "abort during load"
    breaks = "A transfer for a request that has ended overwrites the KV of the blocks' next owner."
    wrong_figure = "blocks misread"
    seen_by = ("read", "named")
    question = "A is aborted during its load, and C computes in the blocks that are free: what does C read?"
    roles = ("the bug: freed while the transfer runs", "labengine's way: the transfer is stopped")
    columns = (
        Column(
            "lands anyway",
            FREES_AT_ONCE,
            "Frees A's blocks at once, as vLLM before 0.16.0; the tier cannot stop what it has started.",
            tier=lambda: LandsAnyway(HostStore(), 2),
        ),
        Column(
            "stopped",
            FREES_AT_ONCE,
            "labengine's own contract: frees them at once as well, and the tier drops what arrives for A.",
            tier=lambda: late_host(2),
        ),
        Column(
            "freed after the load",
            FREES_AFTER_LOAD,
            "32255, as vLLM since 0.16.0: the blocks wait for the transfer. Here A's end is reported then, too.",
            tier=lambda: LandsAnyway(HostStore(), 2),
        ),
    )
    settings = settings(num_blocks=9, block_size=4)
    guide = (
        GuideStop(
            "A and B have 8 tokens each in the tier. Both wait with their blocks until the loads are over.",
            ExternalHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "A is aborted, and its two blocks are free. Left, A's transfer is still under way.",
            RequestFinished,
            lambda event: event.request_id == 0,
        ),
        GuideStop("C gets the two blocks, among others ...", BlockAllocated, lambda event: event.request_id == 2),
        GuideStop("... and computes its prompt in them.", SlotsWritten, lambda event: event.request_id == 2),
        GuideStop(
            "Both transfers land. Left, A's is written over C's KV, in the blocks that were A's when it began.",
            BlocksLoaded,
        ),
        GuideStop(
            "C decodes. Left, it reads A's KV for its own first tokens.",
            SlotsWritten,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Start both loads, abort A, and add C, which computes a step before they land."""
        prompts = range(1, 10), range(101, 110)
        for prompt in prompts:
            lab.fill_external(token_ids=prompt)
            lab.add(token_ids=prompt, max_tokens=2)
        lab.step()
        lab.abort(0)
        lab.add(token_ids=range(201, 214), max_tokens=4)
        for _ in range(4):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count misread blocks, requests that finished, and blocks that are in use at the end."""
        return {
            "blocks misread": num_misread_blocks(lab),
            "requests finished": num_finished(lab),
        }

    def answer(self, table: Table) -> str:
        """State what is misread, and that two different promises of the tier are safe."""
        wrong, stopped, waited = (table[column.name]["blocks misread"] for column in self.columns)
        return (
            f"{wrong} blocks of C are misread. There are two ways out: a tier that writes nothing more once it was "
            f"told ({stopped} misread; labengine's contract), or blocks that are kept until the tier has reported "
            f"({waited}; vLLM since 0.16.0)."
        )


SCENARIO = AbortDuringLoad()
