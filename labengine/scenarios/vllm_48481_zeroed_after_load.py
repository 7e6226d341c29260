"""vLLM pull request 48481 (see also 50696): fresh blocks are zeroed after a load has filled them.

For models with Mamba layers vLLM clears fresh blocks of full attention (states are written whole): bits of another
group's dtype may be NaN, and masking by a product with 0 keeps NaN. With asynchronous scheduling the clearing is queued
behind the step before. KV that comes by RDMA bypasses that queue, so it can be in the block before it is cleared. The
request then attends over zeros. (Here the model attends fully in all layers, labengine's host tier stands for the
transfer, and the blocks are cleared when the step begins, after the load.)
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, SlotsWritten, TokenSampled
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences
from labengine.scenarios.tiny_model import LoadsStoredBlocks


class ZeroedAfterLoad(LoadsStoredBlocks):
    """A prompt is computed and saved; the pool forgets it; a longer prompt loads it."""

    id = "vllm-48481"
    title = "Blocks are zeroed after a load has filled them"
    report = Report(
        repository="vllm-project/vllm",
        kind="pull request",
        number="48481",
        title="[KV Connector] Fix PD async scheduling race condition for hybrid attn models",
        state="merged",
        as_of="2026-09-20",
        seen_in="code of 0.18.0 to 0.25.1",
        mended_in="0.26.0 (48481); in 0.32.0 the blocks of a load are no longer noted for clearing",
        needs=(
            "a model with Mamba layers, whose fresh attention blocks are cleared",
            "asynchronous scheduling",
            "a connector that loads while the request waits, outside the device's stream, such as NIXL",
        ),
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "In 0.25.1 the list of blocks to clear has every new attention block, those of a load too; 0.26.0 takes "
            "the blocks of a load out. That answers and not errors are the symptom is the thread's finding."
        ),
        passages=(
            CodePassage(
                version="vllm 0.25.1",
                file="vllm/v1/core/sched/scheduler.py",
                line=1080,
                text="self.kv_cache_manager.take_new_block_ids()",
                says="All new blocks are sent to be cleared, whatever is loaded into them.",
            ),
            CodePassage(
                version="vllm 0.26.0",
                file="vllm/v1/core/sched/scheduler.py",
                line=1002,
                text="self._skip_zero_block_ids.update(",
                says="Blocks that an asynchronous load will overwrite are not cleared.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 45357",
                says=(
                    "A comment of 2026-06-25 finds the race: the transfer lands, then the queued clearing runs. 10 of "
                    "40 layers lose the prompt, 30 with states keep theirs; the drop on GSM8K is 0.108 to 0.480."
                ),
            ),
            ThreadPassage(
                source="vllm-project/vllm 50696",
                says=(
                    "OffloadingConnector, whose copies do use a stream, was exposed to clearing from earlier steps; "
                    "its loads wait for the compute stream since this pull request (merged)."
                ),
            ),
        ),
    )
    kind = "external tier"
    breaks = "The KV that was loaded for a request is cleared before the request reads it."
    claim = (
        "Zeroing of newly allocated blocks is not ordered with transfers into them: KV that has arrived is wiped, and "
        "the request attends over zeros for all of its loaded prefix. No error, only worse answers."
    )
    question = "B loads 8 tokens, and its new blocks are zeroed: how many of its tokens are wrong?"
    roles = ("the bug: zeroed after the load", "the fix: loaded blocks are left alone")
    columns = (
        Column(
            "all new blocks",
            "vllm",
            "Clears all blocks that were allocated for the step, as vLLM 0.25.1; here after the load.",
            "ZeroesNewBlocks",
            HostStore,
        ),
        Column(
            "not the loaded",
            "vllm",
            "Clears only blocks that this step will compute, as vLLM since 0.26.0.",
            "SkipsLoadedBlocks",
            HostStore,
        ),
    )
    guide = (
        GuideStop("A's two full blocks are computed, and saved to the tier.", BlocksSaved),
        GuideStop(
            "The pool has forgotten A. B begins with the same tokens: the tier has 8 of them.",
            ExternalHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("They are loaded into two new blocks.", BlocksLoaded),
        GuideStop(
            "The step runs. Left, it begins by clearing its new blocks, and the two that were loaded are among them.",
            SlotsWritten,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, B has attended over zeros for 8 of its 11 tokens: its first token is wrong.",
            TokenSampled,
            lambda event: event.request_id == 1,
        ),
    )
    sentences = sentences(guide)

    def answer(self, table: Table) -> str:
        """State the wrong tokens, and what upstream measured."""
        wrong, right = (column["wrong tokens"] for column in table.columns.values())
        return (
            f"{wrong} of {table['all new blocks']['tokens']} tokens are wrong, and {right} if loaded blocks are not "
            "cleared. In the model of the report 10 layers of 40 attend fully and lost the prefix in this way, and 30 "
            "kept their state: the output was partly coherent (thread of 45357, which names a drop of 0.108 to 0.480 "
            "on GSM8K)."
        )


SCENARIO = ZeroedAfterLoad()
