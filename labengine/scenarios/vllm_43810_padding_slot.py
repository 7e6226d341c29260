"""vLLM issue 43810: a padded row's slot is -1, and Python's indexing takes that for the last slot.

A recorded decode has a fixed number of rows. The rows without a request have slot -1, which a kernel skips. Code that
computes block -1 // block_size and offset -1 % block_size writes the last slot of the pool's last block instead.
In vLLM that was the cache of hidden states (extract_hidden_states). Here it is the KV store, so that tokens show it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labengine.events import PrefixHit, SlotsWritten, StepStarted, TokenSampled
from labengine.lab import Lab
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Table, sentences, settings
from labengine.scenarios.tiny_model import TinyModelScenario


class PaddingSlot(TinyModelScenario):
    """Three decodes in a graph of four rows, while the pool's last block holds a prompt."""

    id = "vllm-43810"
    title = "A padded row writes the pool's last slot"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="43810",
        title=(
            "[Bug]: extract_hidden_states CUDA graph padding writes PADDING_SLOT_ID=-1 into last hidden-state KV slot"
        ),
        state="closed",
        as_of="2026-09-11",
        seen_in="commit 284e6f5 by the report; code of 0.22.0 to 0.24.0",
        mended_in="0.25.0, which sends padding to the null block 0 (by which pull request is not known here)",
        needs=(
            "the speculative method extract_hidden_states",
            "ExampleHiddenStatesConnector",
            "CUDA graphs with padded rows",
        ),
    )
    kind = "padding"
    breaks = "Slot -1 of a padded row is indexed from the end: the last block's last slot is overwritten each step."
    claim = (
        "With CUDA graphs, padded rows (slot -1) write into the last slot of the cache of hidden states, and what a "
        "request keeps there is lost."
    )
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "For the cache of hidden states alone. The kernel that stores KV skips negative slots, as pull request "
            "43869 says, which would use it here, too; what landed writes the null block instead."
        ),
        passages=(
            CodePassage(
                version="vllm 0.24.0",
                file="vllm/model_executor/models/extract_hidden_states.py",
                line=87,
                text="kv_cache[slot_mapping // block_size, slot_mapping % block_size] = to_cache",
                says="Slot -1 is indexed as any other: the last block, the last offset.",
            ),
            CodePassage(
                version="vllm 0.32.0",
                file="vllm/model_executor/models/extract_hidden_states.py",
                line=88,
                text="slot_mapping = slot_mapping.clamp_min(0)",
                says="Padding writes slot 0, of the block that no request gets.",
            ),
            ThreadPassage(
                source="vllm-project/vllm 43869",
                says=(
                    "The pull request proposes the KV store's kernel, which returns at a negative slot; it was open on "
                    "2026-09-11."
                ),
            ),
        ),
    )
    question = "Three requests decode in a graph of four rows: how many of their tokens are wrong?"
    columns = (
        Column(
            "from the end",
            "labengine",
            "Writes slot -1 as Python indexes it, as vLLM's cache of hidden states up to 0.24.",
            "WritesTheLastSlot",
        ),
        Column(
            "skips",
            "labengine",
            "Skips slots below 0, as pull request 43869 and vLLM's KV store; same replay, same padding.",
            "StaticRunner",
        ),
        Column("unpadded", "labengine", "Runs decodes without recording: there is no padding."),
    )
    settings = settings(num_blocks=12, block_size=4, device="cpu")
    prompt = tuple(range(10, 18))
    guide = (
        GuideStop(
            "D's prompt of 8 tokens is computed. Its second block is #11, the pool's last one: position 7 is in slot "
            "47, the last of all.",
            SlotsWritten,
            lambda event: event.request_id == 3,
            about_slots=True,
        ),
        GuideStop(
            "Three requests decode. The graph has rows for 1, 2, 4 ... requests, so a fourth row is padding: slot -1.",
            StepStarted,
            lambda event: event.step == 3,
            about_slots=True,
        ),
        GuideStop(
            "Left, the padded row has written slot 47: there D reads the KV of token 0 instead of its own. "
            "Right, the row was skipped.",
            TokenSampled,
            lambda event: event.request_id == 3,
            about_slots=True,
        ),
        GuideStop(
            "Later. E begins with D's prompt and hits #11. On the left it reads the overwritten slot without padding.",
            PrefixHit,
            lambda event: event.request_id == 4,
            about_slots=True,
        ),
    )
    sentences = sentences(guide[:3])

    def opening(self, lab: Lab) -> None:
        """Use and free six blocks, so that the next requests get the last six; compute prompts, decode five times."""
        lab.generate([range(60, 84)], max_tokens=1, ignore_eos=True)
        lab.add(token_ids=range(30, 35), max_tokens=6, ignore_eos=True)
        lab.add(token_ids=range(40, 45), max_tokens=6, ignore_eos=True)
        lab.add(token_ids=self.prompt, max_tokens=6, ignore_eos=True)
        lab.run()

    def play(self, lab: Lab) -> None:
        """Run the three, and then one that hits what D leaves."""
        self.opening(lab)
        for act in self.follow_up_acts():
            act(lab)

    def follow_up_acts(self) -> tuple[Callable[[Lab], Any], ...]:
        """Return the acts that run a request alone, behind D's prompt."""
        steps = (Lab.step,) * 6
        return (lambda lab: lab.add(token_ids=[*self.prompt, 20], max_tokens=6, ignore_eos=True), *steps)

    def answer(self, table: Table) -> str:
        """State the figures, and what upstream's write damages."""
        broken, fixed, unpadded = table.columns.values()
        return (
            f"{broken['wrong tokens']} of {broken['tokens']} tokens are wrong; {fixed['wrong tokens']} where negative "
            f"slots are skipped, and {unpadded['wrong tokens']} without padding. In vLLM it was the cache of hidden "
            f"states that was indexed so: what is saved there is wrong, and the tokens stay right (our reading)."
        )


SCENARIO = PaddingSlot()
