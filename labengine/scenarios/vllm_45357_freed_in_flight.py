"""vLLM pull request 45357: a request's blocks are freed while the step in flight still writes to one of them.

With asynchronous scheduling, step N+1 is launched before the output of step N is processed. If step N ended a request,
vLLM up to 0.23.0 gave its blocks back to the pool at once. A waiting request could get them for KV that arrives by
RDMA, which is not ordered with the device's stream. The write of step N+1 then lands on top of the received KV. In vLLM
such an end is a stop token, an abort or a preemption: since pull request 27922 it launches no step past `max_tokens`.
Here `max_tokens` stands for the stop token, and labengine's host tier for a connector that consumes KV.
"""

from __future__ import annotations

from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import BlocksLoaded, ExternalHit, RequestFinished, RequestScheduled, SlotsWritten, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import events_of
from labengine.scenarios.one_step_ahead import ONE_STEP_AHEAD, OneStepAheadScheduler
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
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
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="45357",
        title=("[Bugfix] Defer block freeing until in-flight steps finish under async scheduling + PD KV consumer"),
        state="merged",
        as_of="2026-07-24",
        seen_in="code of 0.23.0; the first version is not known",
        mended_in="0.24.0 (45357)",
        needs=(
            "more than one batch in flight: asynchronous scheduling, or pipeline parallelism",
            (
                "a KV connector that consumes (kv_consumer or kv_both), with loads outside the device's stream, such "
                "as NIXL"
            ),
            "a request that a stop token or an abort ends, or that is preempted, while its next step is in flight",
        ),
    )
    claim = (
        "With asynchronous scheduling a request can end while its next step is in flight. Its blocks are freed at "
        "once, and KV that another request receives into them is overwritten by that step."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.23.0 an ended request's blocks are freed without a look at the steps in flight; since 0.24.0 they "
            "are kept until the newest step that computes the request is processed, if a connector consumes KV."
        ),
        passages=(
            CodePassage(
                version="vllm 0.23.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=1909,
                text="self.kv_cache_manager.free(request)",
                says="The blocks of a finished request are free at once.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=191,
                text="multiple_inflight_batches and kv_transfer_config.is_kv_consumer",
                says="Frees are deferred only with several batches in flight and a connector that consumes.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=674,
                text="Avoid scheduling an extra step",
                says="A request that reaches max_tokens has no step in flight behind its last token.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 45357",
                says="The late write of the old request corrupts the KV that the new one has just received.",
            ),
        ),
    )
    kind = "free in flight"
    breaks = "KV received from the tier is overwritten by the last write of the block's previous owner."
    wrong_figure = "blocks misread by B"
    seen_by = ("write", "read", "named")
    question = (
        "A ends (at max_tokens, in place of a stop token) while its next step is in flight, and B's KV is loaded: what "
        "does B read?"
    )
    roles = ("the bug: freed at once", "the fix: freed when the step in flight is over")
    columns = (
        Column(
            "freed at once",
            BROKEN,
            "Ends A when its last token is seen, as vLLM 0.23.0 at a stop token; a step of A is in flight.",
        ),
        Column(
            "fence",
            ONE_STEP_AHEAD,
            "Frees A's blocks when the newest step that computes it is over, as vLLM since 0.24.0.",
        ),
        Column("labengine", "labengine", "Launches no step before the tokens of the last one are known."),
    )
    settings = settings(num_blocks=8, block_size=4, external="host")
    guide = (
        GuideStop(
            "A has sampled its last token (max_tokens stands for a stop token), and the scheduler has not seen it: A's "
            "next step is planned, and writes position 6 to slot 2 of A's second block.",
            RequestScheduled,
            lambda event: event.request_id == 0 and event.start == 6,
            about_slots=True,
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
        late = [event for event in events_of(lab, RequestScheduled) if event.request_id == 0 and event.start == 6]
        return {"blocks misread by B": misread, "steps computed for A after its end": len(late)}

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the write that destroys B's KV."""
        found = [v for v in lab.violations if v.rule == "read" and v.request_ids == (1,)]
        if not found or found[0].first_event is None:
            return None
        return wrong_at(lab, found[0].first_event, "A's step in flight writes to a block of B.")

    def answer(self, table: Table) -> str:
        """State what B reads, and which block it gets."""
        wrong, right = (table[column.name]["blocks misread by B"] for column in self.columns[:2])
        return (
            f"Without the fence B misreads {wrong} block, with it {right}. Here it takes no rare order of the queue: "
            "the block that A was writing to has no hash, so it is freed to the head, and it is the first that B gets."
        )


SCENARIO = FreedInFlight()
