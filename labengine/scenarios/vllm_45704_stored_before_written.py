"""vLLM issue 45704, fixed by pull request 46278: a store copies a block before the step has written it.

The scheduler hands a block to the store once its tokens count as computed. That is bookkeeping of the host. The copy
runs on a stream of its own, and no event orders it behind the kernels of the step: where the host is ahead of the
device, the copy reads what the block held before. The tier keeps those bytes under the right hash, for every later hit.
"""

from __future__ import annotations

from labengine.engine.external.host import HostStore
from labengine.events import BlocksLoaded, BlocksSaved, ExternalHit, SlotsWritten, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class StoredBeforeWritten(TinyModelScenario):
    """A prompt is computed and stored; the pool forgets it; a longer prompt loads what was stored."""

    id = "vllm-45704"
    title = "A store copies a block before the step has written it"
    url = "https://github.com/vllm-project/vllm/issues/45704"
    upstream = "Merged: pull request 46278. The same race on the load path, issue 47282, is open."
    kind = "external tier"
    breaks = "The tier keeps what a block held before its KV was written, under the hash of that KV."
    claim = (
        "Blocks are stored when the scheduler counts them as computed, and nothing orders the copy behind the writes "
        "on the device: restored KV is corrupt, and output is garbled now and then under load."
    )
    question = "B loads 8 tokens that were stored while their step ran: how many of its tokens are wrong?"
    roles = ("the bug: copied without waiting", "the fix: copied behind the step's writes")
    columns = (
        Column(
            "own stream",
            "vllm",
            "Copies when the scheduler says so; the step's kernels may not have run.",
            "StoresBeforeTheWrite",
            HostStore,
        ),
        Column("waits", "vllm", "Copies after the forward pass that filled the blocks.", tier=HostStore),
    )
    settings = settings(num_blocks=24, block_size=4, device="cpu")
    prefix = tuple(range(10, 20))
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
            f"{wrong} of {table['own stream']['tokens']} tokens are wrong, and {right} if the copy waits. A itself is "
            "right: its tokens never come from the tier. The issue's test of the copy alone was corrupt in 150 of 150 "
            "runs without an event between the streams, and storing a step later made no difference."
        )


SCENARIO = StoredBeforeWritten()
