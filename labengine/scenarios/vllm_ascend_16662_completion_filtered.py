"""vllm-ascend issue 16662: the end of an aborted request's load is filtered away, and its blocks are never freed.

Since 0.16.0 vLLM keeps the blocks of a request that was aborted during its load until the connector reports the
transfer (pull request 32255). vllm-ascend's AscendStoreConnector reports only transfers of requests that it has on a
list, and the end of a request takes it off that list. So the report that the scheduler waits for never comes.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.events import ExternalHit, RequestAdded, RequestFinished, RequestScheduled, StepEnded
from labengine.lab import Lab
from labengine.scenarios.aborted_loads import FREES_AFTER_LOAD
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import (
    Column,
    FirstWrong,
    GuideStop,
    Scenario,
    Table,
    moment_of,
    sentences,
    settings,
    wrong_at,
)
from labengine.scenarios.tiers import LandsAnyway, late_host

NUM_ABORTS = 4


class CompletionFiltered(Scenario):
    """Four requests are aborted during their loads; a fifth one needs blocks."""

    id = "vllm-ascend-16662"
    title = "The end of an aborted load is filtered away"
    report = Report(
        repository="vllm-project/vllm-ascend",
        kind="issue",
        number="16662",
        title="[Bug][AscendStore] KV blocks leak when a request is aborted during async KV-pool load",
        state="open",
        as_of="2026-09-16",
        seen_in="commit 660c4582 (issue 16460, the same defect, of 2026-09-13), and code of 182b75ea (2026-08-22)",
        needs=(
            "AscendStoreConnector with load_async=true, and transfers that are not layer by layer",
            "aborts during loads",
        ),
    )
    claim = (
        "When a request is aborted during an asynchronous load, its id is removed from the set of loading requests, "
        "and the load's completion is filtered by that set. The scheduler keeps the blocks for ever: with repeated "
        "aborts no request can be admitted."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "The connector forgets an ended request before its load is over, the worker reports only loads that are "
            "not forgotten, and vLLM frees an aborted load's blocks at that report alone."
        ),
        passages=(
            CodePassage(
                version="vllm-ascend 182b75ea",
                file="vllm_ascend/distributed/kv_transfer/kv_pool/ascend_store/pool_scheduler.py",
                line=814,
                text="self._loading_req_ids.discard(finished_req_id)",
                says="A request that has ended is taken off the list of loads.",
            ),
            CodePassage(
                version="vllm-ascend 182b75ea",
                file="vllm_ascend/distributed/kv_transfer/kv_pool/ascend_store/pool_worker.py",
                line=2047,
                text="get_and_clear_finished_requests(meta.loading_req_ids)",
                says="Only loads on that list are reported.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=3231,
                text="self._free_blocks(self.requests[req_id])",
                says="The report of a load frees the blocks of a request that has ended meanwhile.",
            ),
            ThreadPassage(
                source="vllm-project/vllm-ascend 16460",
                says=(
                    "The same defect, reported three days before. Two proposals were open as of 2026-09-16: 16461 "
                    "keeps the entry until the report, 16663 drops the list."
                ),
            ),
        ),
    )
    kind = "abort during load"
    breaks = "Blocks wait for the report of a transfer that the connector has forgotten."
    wrong_figure = "blocks that they hold"
    why_unseen = (
        "Each block is held by a request that waits for its load: the state is valid, and only the missing report "
        "would change it."
    )
    question = "Four requests are aborted during their loads: how many blocks come back?"
    roles = ("the bug: the report is dropped", "the fix: every load is reported")
    columns = (
        Column(
            "filtered",
            FREES_AFTER_LOAD,
            "Waits as vLLM since 0.16.0; an abort takes the load off the tier's list, and its end is not reported.",
            tier=lambda: late_host(2),
        ),
        Column(
            "reported",
            FREES_AFTER_LOAD,
            "Waits as well; the load stays on the list until it is over, whatever its request does.",
            tier=lambda: LandsAnyway(HostStore(), 2),
        ),
        Column(
            "labengine",
            "labengine",
            "labengine's way, in every edition: frees at once, and the tier stops. No request waits for a report.",
            tier=lambda: late_host(2),
        ),
    )
    settings = settings(num_blocks=10, block_size=4)
    guide = (
        GuideStop(
            "Four requests load two blocks each: 8 of 9 blocks are in use.",
            ExternalHit,
            lambda event: event.request_id == NUM_ABORTS - 1,
        ),
        GuideStop(
            "All four have been aborted: their blocks wait for the transfers. E comes, and needs 3 blocks.",
            RequestAdded,
            lambda event: event.request_id == NUM_ABORTS,
        ),
        GuideStop(
            "Right, the tier reports the loads: the requests end, and their blocks are free.",
            RequestFinished,
        ),
        GuideStop(
            "Right, E runs. Left, the tier has forgotten the loads, and E waits for blocks that no request uses.",
            RequestScheduled,
            lambda event: event.request_id == NUM_ABORTS,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Start four loads, abort their requests, and add one that needs blocks."""
        for first in range(100, 100 * (NUM_ABORTS + 1), 100):
            lab.fill_external(token_ids=range(first, first + 9))
            lab.add(token_ids=range(first, first + 9), max_tokens=2)
        lab.step()
        for request_id in range(NUM_ABORTS):
            lab.abort(request_id)
        lab.add(token_ids=range(9), max_tokens=8)
        for _ in range(6):
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count aborted requests that have ended, blocks that they hold, and tokens of the last request."""
        snapshot = lab.snapshot()
        aborted = [snapshot.requests[request_id] for request_id in range(NUM_ABORTS)]
        return {
            "requests aborted": NUM_ABORTS,
            "of them ended": sum(request.status == "finished" for request in aborted),
            "blocks that they hold": sum(len(table) for request in aborted for table in request.block_tables),
            "tokens of the request behind": len(snapshot.requests[NUM_ABORTS].token_ids) - 9,
        }

    def first_wrong(self, lab: Lab) -> FirstWrong | None:
        """Return the end of the step in which the loads should have been reported."""
        if not self.measure(lab)["blocks that they hold"]:
            return None
        moment = moment_of(lab, StepEnded, lambda event: event.step == 3)
        assert moment is not None
        return wrong_at(lab, moment, "The loads are over by now, and no request of theirs has ended.")

    def answer(self, table: Table) -> str:
        """State what is held, and what waits for it."""
        wrong, right = (table[column.name] for column in self.columns[:2])
        return (
            f"{wrong['requests aborted']} aborts leave {wrong['blocks that they hold']} blocks in use, and "
            f"{right['blocks that they hold']} if the tier reports the loads of ended requests, too. The request "
            f"behind has {wrong['tokens of the request behind']} tokens instead of "
            f"{right['tokens of the request behind']}: a pool that is full of such blocks admits nothing any more."
        )


SCENARIO = CompletionFiltered()
