"""Experiments on vLLM 44409: a prompt whose beginning is in the pool and whose rest is in the tier."""

from __future__ import annotations

from functools import partial
from typing import Any

from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_blocks, num_preemptions
from labengine.scenarios.scenario import symptom
from labengine.scenarios.vllm_44409_columns import (
    COLUMNS,
    HybridExperiment,
    num_doubled,
    num_loaded_blocks,
    prompt,
)

TALE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or "
    "twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, “and "
    "what is the use of a book,” thought Alice “without pictures or conversations?”\n\nSo she was considering in her "
    "own mind (as well as she could, for the hot day made her feel very sleepy and stupid), whether the pleasure of "
    "making a daisy-chain would be worth the trouble of getting up and picking the daisies, when suddenly a White "
    "Rabbit with pink eyes ran close by her.\n\nThere was nothing so very remarkable in that; nor did Alice think it "
    "so very much out of the way to hear the Rabbit say to itself, “Oh dear! Oh dear! I shall be late!” (when she "
    "thought it over afterwards, it occurred to her that she ought to have wondered at this, but at the time it all "
    "seemed quite natural); but when the Rabbit actually took a watch out of its waistcoat-pocket, and looked at it, "
    "and then hurried on, Alice started to her feet, for it flashed across her mind that she had never before seen a "
    "rabbit with either a waistcoat-pocket, or a watch to take out of it, and burning with curiosity, she ran across "
    "the field after it, and fortunately was just in time to see it pop down a large rabbit-hole under the hedge."
)
"""Lewis Carroll, 1865."""


class PrefixInTwoPlaces(HybridExperiment):
    """A story in blocks: its beginning is in the pool, about to be reused; more of it is in the tier.

    The sizes are for the simulated model; a real model gets four times as many blocks of its own size.
    """

    num_local, num_external, num_further = 2, 2, 2
    """Number of the prompt's blocks in the pool, of those only in the tier, and of the next prompt's further blocks."""

    def settings_for(self, model: str) -> dict[str, Any]:
        """Return more blocks for a real model, which brings its own groups."""
        return dict(self.settings) if model == "simulated" else {"num_blocks": 121, "block_size": 16}

    def play(self, lab: Lab) -> None:
        """Run the long prompt, then another prompt that begins with it."""
        self.play_long(lab)
        lab.generate([self.prompts(lab)[1]], max_tokens=1)

    def play_long(self, lab: Lab) -> None:
        """Prepare pool and tier, and run the long prompt alone."""
        self.set_the_stage(lab)
        lab.generate([self.prompts(lab)[0]], max_tokens=2 if lab.model == "simulated" else 24)

    def set_the_stage(self, lab: Lab) -> None:
        """Compute the beginning; push it to the head of the free queue; let another engine fill the tier."""
        size = lab.config.groups[0].block_size
        lab.generate([self.prompts(lab)[0][: self._scale(lab) * self.num_local * size + 1]], max_tokens=1)
        snapshot = lab.snapshot()
        num_unused = sum(not snapshot.blocks[block_id].grouped_hashes for block_id in snapshot.free_queue)
        starts = range(1000, 1000 + num_unused // len(lab.config.groups) * size, size)
        lab.generate([range(start, start + size) for start in starts], max_tokens=1)
        lab.fill_external(token_ids=self.prompts(lab)[1])

    def prompts(self, lab: Lab) -> tuple[list[int], list[int]]:
        """Return the long prompt and the longer one, each of full blocks and one more token."""
        size = lab.config.groups[0].block_size
        num_tokens = self._scale(lab) * (self.num_local + self.num_external) * size + 1
        tokens = list(range(100, 200)) if lab.model == "simulated" else lab.encode(TALE)
        return tokens[:num_tokens], tokens[: num_tokens + self.num_further * size]

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count blocks in two tables, misread blocks, loaded blocks, hit tokens and leaked blocks."""
        *_, long, longer = sorted(lab.snapshot().requests)
        return {
            "blocks in two tables": num_doubled(lab),
            "blocks misread": num_misread_blocks(lab),
            "blocks loaded for the long prompt": num_loaded_blocks(lab, long),
            "tokens that the next one finds": num_hit_tokens(lab, longer),
            "blocks never given back": lab.snapshot().num_used_blocks,
        }

    def _scale(self, lab: Lab) -> int:
        return 1 if lab.model == "simulated" else 4


class ThreeGroups(PrefixInTwoPlaces):
    """The same experiment with a second window group."""


class Preempted(HybridExperiment):
    """Two requests in a pool too small for both, without another engine.

    The second request is preempted, and its last blocks are reused. When it is admitted again, its other blocks are at
    the head of the free queue, and the tier has kept the reused ones.
    """

    figures = {
        "preemptions": num_preemptions,
        "blocks in two tables": num_doubled,
        "blocks misread": num_misread_blocks,
    }

    def play(self, lab: Lab) -> None:
        """Run two prompts at once."""
        lab.add(token_ids=prompt(108, 8, 15), max_tokens=10)
        lab.add(token_ids=prompt(500, 8, 15), max_tokens=6)
        lab.run()


class PreemptedThreeGroups(Preempted):
    """The same requests with a second window group."""


class Conversations(HybridExperiment):
    """Conversations one after the other, each with a hit that the window skips once the tier's tokens count."""

    columns = COLUMNS[1:3]

    def play(self, lab: Lab) -> None:
        """Start each conversation with two blocks, and run it again when the tier holds two more; stop at an error."""
        for first in range(0, 20 * 100, 100):
            tokens = range(first, first + 17)
            lab.generate([tokens[:9]], max_tokens=1)
            lab.fill_external(token_ids=tokens)
            if symptom(partial(lab.generate, [tokens], max_tokens=1)):
                return

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the served conversations and the leaked blocks."""
        served = lab.stats().num_finished // 2
        return {"conversations served": served, "blocks never given back": lab.snapshot().num_used_blocks}
