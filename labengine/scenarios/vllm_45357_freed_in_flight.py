"""vLLM pull request 45357: a request's blocks are freed while the step in flight still writes to one of them.

With asynchronous scheduling, step N+1 is launched before the output of step N is processed. If step N ended a request,
its blocks went back to the pool at once. A waiting request could get them for KV that arrives by RDMA, which is not
ordered with the device's stream: the write of step N+1 then lands on top of the KV that was received.
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import BlocksLoaded, ExternalHit, RequestFinished, RequestScheduled, SlotsWritten, StepEnded
from labengine.lab import Lab
from labengine.scenarios.one_step_ahead import ONE_STEP_AHEAD, OneStepAheadScheduler
from labengine.scenarios.scenario import Column, FirstWrong, GuideStop, Scenario, Table, sentences, settings, wrong_at


class FreesInFlight(OneStepAheadScheduler):
    """Asynchronous scheduling without the fence."""

    def end_in_flight(self, request: Request) -> None:
        """End the request, and free its blocks, as soon as its last token is seen."""
        self._remove_running(request)
        self.finish(request, "length")


BROKEN = Parts(name="vllm, one step ahead, no fence", scheduler=FreesInFlight).overriding(ONE_STEP_AHEAD)


class FreedInFlight(Scenario):
    """A ends; the step in flight writes its next token; B's KV is loaded into the block in between."""

    id = "vllm-45357"
    title = "Blocks are freed while the step in flight still writes to them"
    url = "https://github.com/vllm-project/vllm/pull/45357"
    upstream = "Merged: pull request 45357."
    claim = (
        "With asynchronous scheduling a request can end while its next step is in flight. Its blocks are freed at "
        "once, and KV that another request receives into them is overwritten by that step."
    )
    kind = "free in flight"
    breaks = "KV received from the tier is overwritten by the last write of the block's previous owner."
    seen_by = ("read",)
    question = "A ends while its next step is in flight, and B's KV is loaded: what does B read?"
    roles = ("the bug: freed at once", "the fix: freed when the step in flight is over")
    columns = (
        Column("freed at once", BROKEN, "Ends A when its last token is seen; a step of A is in flight."),
        Column("fence", ONE_STEP_AHEAD, "Ends A when the newest step that computes it is over."),
        Column("labengine", "labengine", "Launches no step before the tokens of the last one are known."),
    )
    settings = settings(num_blocks=8, block_size=4, external="host")
    guide = (
        GuideStop(
            "A has sampled its last token, and the scheduler has not seen it: A's next step is planned, and writes "
            "position 6 to slot 2 of A's second block.",
            RequestScheduled,
            lambda event: event.request_id == 0 and event.start == 6,
        ),
        GuideStop(
            "Left, the output of the last step is processed now: A ends, and its blocks are free, with a step of A in "
            "flight.",
            RequestFinished,
            lambda event: event.request_id == 0,
        ),
        GuideStop(
            "B is admitted. The tier holds 8 of its tokens; left, the first block for them is the one that A's step "
            "will write to.",
            ExternalHit,
        ),
        GuideStop("B's KV arrives, before the device has come to A's step.", BlocksLoaded),
        GuideStop(
            "The step in flight runs. Left, A's write destroys position 2 of what B has received. Right, A still holds "
            "the block: its fence is the end of this step.",
            SlotsWritten,
            lambda event: event.request_id == 0 and event.start == 6,
        ),
        GuideStop(
            "After the step. Left, B has read KV that is not its own; right, A's blocks are free now.", StepEnded
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Put B's KV into the tier; run A to its last token; add B, and take the step in flight."""
        prompt = range(1, 10)
        lab.fill_external(token_ids=prompt)
        lab.add(token_ids=range(51, 56), max_tokens=2)
        lab.step()
        lab.step()
        lab.add(token_ids=prompt, max_tokens=1)
        lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the blocks in which B found foreign KV. (A's last step reads foreign KV, too: its token is dropped.)"""
        misread = sum(v.rule == "read" and v.request_ids == (1,) for v in lab.violations)
        assert lab.timeline is not None
        late = [event for event in lab.timeline.of_kind(RequestScheduled) if event.request_id == 0 and event.start == 6]
        return {"blocks misread by B": misread, "steps computed for A after its end": len(late)}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if B read KV that is not its own."""
        return measured["blocks misread by B"] > 0

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the write that destroys B's KV."""
        found = [v for v in lab.violations if v.rule == "read" and v.request_ids == (1,)]
        if not found or found[0].first_event is None:
            return None
        return wrong_at(lab, found[0].first_event, "A's step in flight writes to a block of B.")

    def answer(self, table: Table) -> str:
        """State what B reads, and why the free queue makes it likely."""
        wrong, right = (table[column.name]["blocks misread by B"] for column in self.columns[:2])
        return (
            f"Without the fence B misreads {wrong} block, with it {right}. It takes no rare order of the queue: the "
            f"block that A was writing to has no hash, so it is freed to the head, and it is the first that B gets."
        )


SCENARIO = FreedInFlight()
