"""vLLM issue 45704, fixed by pull request 46278: a store copies a block before the step has written it.

vLLM's SimpleCPUOffloadConnector stores a block once its tokens count as computed. That is bookkeeping of the host. Up
to 0.23.0 the copy ran on a stream of its own, and no event ordered it behind the kernels of the step: where the host is
ahead of the device, the copy reads what the block held before. The tier keeps those bytes under the right hash, for
every later hit. (On a device it is a race; here every copy comes first, and labengine's host tier stores the blocks.)
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, SlotsWritten, TokenSampled
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences
from labengine.scenarios.tiny_model import LoadsStoredBlocks


class StoredBeforeWritten(LoadsStoredBlocks):
    """A prompt is computed and stored; the pool forgets it; a longer prompt loads what was stored."""

    id = "vllm-45704"
    title = "A store copies a block before the step has written it"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="45704",
        title=(
            "[Bug]: SimpleCPUOffloadConnector corrupts restored KV under load → intermittent garbled output "
            "(missing GPU→CPU store cross-stream sync)"
        ),
        state="closed",
        as_of="2026-07-01",
        seen_in="code of 0.19.0, the first release with this connector, to 0.23.0",
        mended_in="0.24.0 (46278)",
        needs=("SimpleCPUOffloadConnector (VLLM_USE_SIMPLE_KV_OFFLOAD=1)", "a GPU whose host runs ahead of it"),
    )
    kind = "external tier"
    breaks = "The tier keeps what a block held before its KV was written, under the hash of that KV."
    claim = (
        "Blocks are stored when the scheduler counts them as computed, and nothing orders the copy behind the writes "
        "on the device: restored KV is corrupt, and output is garbled now and then under load."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.23.0 the worker launches the copy on its own stream and waits for nothing; since 0.24.0 it waits for "
            "an event behind the step."
        ),
        passages=(
            CodePassage(
                version="vllm 0.23.0",
                file="vllm/v1/simple_kv_offload/worker.py",
                line=211,
                text="no deferral or cross-stream sync needed",
                says="The worker takes tokens that count as computed for written, and launches the store at once.",
            ),
            CodePassage(
                version="vllm 0.24.0",
                file="vllm/v1/simple_kv_offload/worker.py",
                line=245,
                text="wait_event=self._store_compute_done",
                says="The store waits for an event that is recorded behind the step's kernels.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 47282",
                says=(
                    "The mirror hazard, a load that overwrites what a step still reads, was reported on 2026-07-01; "
                    "47728, merged, states that it mends it (scenario vllm-47728)."
                ),
            ),
        ),
    )
    question = "B loads 8 tokens that were stored while their step ran: how many of its tokens are wrong?"
    roles = ("the bug: copied without waiting", "the fix: copied behind the step's writes")
    columns = (
        Column(
            "own stream",
            "vllm",
            "Copies when the scheduler says so, as vLLM 0.23.0; here the step's kernels have not run.",
            "StoresBeforeTheWrite",
            HostStore,
        ),
        Column(
            "waits",
            "vllm",
            "Copies after the forward pass that filled the blocks, as vLLM since 0.24.0.",
            tier=HostStore,
        ),
    )
    guide = (
        GuideStop("A's prompt is computed: two full blocks.", SlotsWritten),
        GuideStop(
            "They are stored. Left, the copy has read both blocks before the step wrote them: it has brought what was "
            "there before.",
            BlocksSaved,
        ),
        GuideStop(
            "The pool has forgotten A. B begins with the same tokens: the tier has 8 of them, by the right hashes.",
            ExternalHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("They are loaded, and no check can object: name, place and time are right.", BlocksLoaded),
        GuideStop(
            "Left, B has attended to bytes that are no KV of its prompt: its first token is wrong.",
            TokenSampled,
            lambda event: event.request_id == 1,
        ),
    )
    sentences = sentences(guide)

    def answer(self, table: Table) -> str:
        """State the wrong tokens, and what upstream measured."""
        wrong, right = (column["wrong tokens"] for column in table.columns.values())
        return (
            f"{wrong} of {table['own stream']['tokens']} tokens are wrong, and {right} if the copy waits. A itself is "
            "right: its tokens never come from the tier. The issue has a test of the copy alone, on a GPU, with and "
            "without a wait between the streams."
        )


SCENARIO = StoredBeforeWritten()
