"""nano-vLLM pull request 243, its collision check: an equal hash and equal own tokens do not mean equal content.

A block's KV depends on all tokens before it. When two hashes collide, comparing the blocks' own tokens tells different
tokens apart, but not the same tokens after different prefixes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random

from labengine.core.hash_chain import HashChain
from labengine.events import BlockMerged
from labengine.lab import Lab
from labengine.record.wording import counted
from labengine.scenarios.counts import events_of, num_misread_requests
from labengine.scenarios.scenario import Column, Experiment, Scenario, Table


class SixBitHashes(HashChain):
    """Hashes short enough to collide soon."""

    def link(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
        """Return the first six bits of the hash."""
        return bytes([super().link(parent_hash, token_ids)[0] >> 2])


class Collision(Experiment):
    """Two prompts whose second blocks hold equal tokens after different ones, with the same hash."""

    columns = (Column("nano-vllm+243", SixBitHashes), Column("labengine", SixBitHashes))
    figures = {
        "merged blocks": lambda lab: len(events_of(lab, BlockMerged)),
        "wrong reads": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run both prompts in one step, then a second step, which reads."""
        for prompt in colliding_prompts():
            lab.add(token_ids=prompt, max_tokens=4)
        lab.step(2)

    def more(self, table: Table) -> Mapping[str, object]:
        """Return further values that the finding names."""
        number = table[self.columns[0].name]["wrong reads"]
        return {"reads": f"{counted(number, 'request')} {'reads' if number == 1 else 'read'}"}


class RandomPrompts(Collision):
    """Forty prompts of two kinds of blocks, so that many hold equal tokens after different ones."""

    def play(self, lab: Lab) -> None:
        """Run all prompts in one step, then a second step, which reads."""
        rng = Random(243)
        for _ in range(40):
            kinds = [rng.randrange(2) for _ in range(5)]
            lab.add(token_ids=[*(token for kind in kinds for token in [7 + kind] * 4), 1], max_tokens=4)
        lab.step(2)


class OwnTokens(Collision, Scenario):
    """The collision, with the pull request's comparison and with a comparison of complete prefixes."""

    experiments = {"random prompts": RandomPrompts()}


def colliding_prompts() -> tuple[list[int], list[int]]:
    """Return two prompts of nine tokens: four different ones, four equal ones with the same six-bit hash, one more."""
    chain, common = SixBitHashes(), [7, 7, 7, 7]
    firsts = [[token] * 4 for token in range(10, 60)]
    for one, other in combinations(firsts, 2):
        parents = [chain.link(chain.root(()), first) for first in (one, other)]
        if parents[0] != parents[1] and len({chain.link(parent, common) for parent in parents}) == 1:
            return [*one, *common, 1], [*other, *common, 1]
    raise AssertionError("64 hashes for 1,225 pairs, and none alike")
