"""vLLM pull request 48481 (see also 50696): fresh blocks are zeroed after a load has filled them.

For hybrid models vLLM clears each block that it gives away: bits of another group's dtype may be NaN, and masking by a
product with 0 keeps NaN. With asynchronous scheduling the clearing is queued behind the step before. KV that comes by
RDMA bypasses that queue, so it can be in the block before it is cleared. The request then attends over zeros.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, SlotsWritten, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class ZeroedAfterLoad(TinyModelScenario):
    """A prompt is computed and saved; the pool forgets it; a longer prompt loads it."""

    id = "vllm-48481"
    title = "Blocks are zeroed after a load has filled them"
    url = "https://github.com/vllm-project/vllm/pull/48481"
    upstream = "Merged: pull request 48481, in vLLM 0.29."
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
            "Clears what was allocated for the step, whenever it comes to it.",
            "ZeroesNewBlocks",
            HostStore,
        ),
        Column(
            "not the loaded", "vllm", "Clears only blocks that this step will compute.", "SkipsLoadedBlocks", HostStore
        ),
    )
    settings = settings(num_blocks=24, block_size=4, device="cpu")
    prefix = tuple(range(10, 20))
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

    def play(self, lab: Lab) -> None:
        """Run A, which fills the tier; forget what the pool has cached; run B to its end."""
        lab.generate([self.prefix], max_tokens=1, ignore_eos=True)
        lab.reset_prefix_cache()
        lab.add(token_ids=[*self.prefix[:8], 60, 61, 62], max_tokens=6, ignore_eos=True)
        for _ in range(6):
            lab.step()

    def answer(self, table: Table) -> str:
        """State the wrong tokens, and what upstream measured."""
        wrong, right = (column["wrong tokens"] for column in table.columns.values())
        return (
            f"{wrong} of {table['all new blocks']['tokens']} tokens are wrong, and {right} if loaded blocks are not "
            "cleared. Upstream 10 layers of 40 attend fully and lost the prefix in this way, and 30 kept their state: "
            "answers still read well, and 45357's thread reports an accuracy drop on GSM8K (0.108 to 0.480)."
        )


SCENARIO = ZeroedAfterLoad()
