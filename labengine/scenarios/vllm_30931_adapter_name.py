"""vLLM issue 30931: two LoRA adapters of the same name with other weights share KV blocks.

The hash takes an adapter's name and leaves out its id. (Until pull request 27211 it took the id. Ids depend on the
order of loading, so engines did not agree on hashes.)
"""

from __future__ import annotations

from collections.abc import Mapping

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.prefix_cache import HashChain
from labengine.core.request import ExtraKeys
from labengine.events import BlockCached, PrefixHit, RequestAdded, RequestFinished, StepEnded
from labengine.lab import Lab
from labengine.scenarios.figures import events_of, num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, Experiment, GuideStop, Scenario, Table, sentences, settings


class NameOnly(HashChain):
    """Hashes an adapter's name."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys but the adapter's id."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] != "lora_int_id"))


class IdOnly(HashChain):
    """Hashes an adapter's id, as before pull request 27211."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys but the adapter's name."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] != "lora"))


BROKEN = Column(
    "name",
    Parts(name="vllm, adapter's name", hash_chain=NameOnly).overriding(VLLM),
    "Hashes the adapter's name: two adapters of one name share blocks.",
)
FIXED = Column("name and id", "vllm", "Hashes everything that the KV depends on: nothing is shared.")
ID = Column(
    "id",
    Parts(name="vllm, adapter's id", hash_chain=IdOnly).overriding(VLLM),
    "Hashes the id: right in one engine, and another engine numbers its adapters in another order.",
)


SAME, OTHER = "tokens found of the same adapter", "tokens found of another adapter"


class SharedTier(Experiment):
    """Two engines that number their adapters in opposite order. The pool stands for a cache that both use."""

    question = "Two engines load the adapters 'sql' and 'poem' in opposite order, and share a cache: who finds what?"
    columns = (BROKEN, FIXED, ID)
    settings = settings(num_blocks=12, block_size=4)
    num_first = 2
    """Requests of the first engine."""

    def play(self, lab: Lab) -> None:
        """Run one prompt with each adapter under the first engine's ids, then under the second one's."""
        for adapters in (("sql", "poem"), ("poem", "sql")):
            for number, name in enumerate(adapters, 1):
                lab.add(token_ids=range(1, 6), extra_keys={"lora": name, "lora_int_id": str(number)}, max_tokens=1)
                lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that the second engine finds, by the adapter that they were computed with."""
        source = {event.block_id: event.request_id for event in events_of(lab, BlockCached)}
        found = {SAME: 0, OTHER: 0}
        for hit in events_of(lab, PrefixHit)[self.num_first :]:
            other = 2 * self.num_first - 1 - hit.request_id
            for block_id in hit.block_ids[0]:
                found[SAME if source[block_id] == other else OTHER] += lab.config.groups[0].block_size
        return found

    def answer(self, table: Table) -> str:
        """State why the id was taken out of the hash."""
        name, both, by_id = (table[column.name] for column in self.columns)
        return (
            f"An id depends on the order in which an engine loads its adapters. Two engines that share a cache find "
            f"{by_id[OTHER]} tokens of the wrong adapter if the id alone is hashed (the reason for pull request "
            f"27211), {both[SAME]} tokens with name and id, and {name[SAME]} of the right adapter with the name. A "
            f"hash that is right in both cases needs a name for the weights themselves."
        )


class AdapterName(Scenario):
    """One prompt with adapter "sql" of id 1, and then with adapter "sql" of id 2: the same name, other weights."""

    id = "vllm-30931"
    title = "Two adapters of one name read each other's KV"
    url = "https://github.com/vllm-project/vllm/issues/30931"
    upstream = "Open: issue 30931."
    claim = (
        "LoRA requests with the same lora_name and different lora_int_id share KV blocks, though their weights differ."
    )
    kind = "extra keys"
    breaks = "An adapter answers from KV that was computed with the weights of another one."
    seen_by = ("read",)
    question = "The same tokens with adapter 'sql' of id 1 and of id 2: what does the second request find?"
    columns = (BROKEN, FIXED, ID)
    settings = settings(num_blocks=12, block_size=4)
    roles = ("the bug: the name alone", "correct: all that the KV depends on")
    guide = (
        GuideStop("A's prompt is computed with adapter 'sql', id 1.", RequestAdded),
        GuideStop("A has ended; its two full blocks are cached.", RequestFinished),
        GuideStop(
            "B has the same tokens and adapter 'sql', id 2: other weights that were loaded under the same name.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, B finds both blocks of the first adapter. Right, none.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, B has answered from KV of other weights.", StepEnded),
    )
    sentences = sentences(guide)
    experiments: Mapping[str, Experiment] = {"shared tier": SharedTier()}

    def play(self, lab: Lab) -> None:
        """Run A; then B, with another adapter of the same name."""
        for number in ("1", "2"):
            lab.add(token_ids=range(1, 10), extra_keys={"lora": "sql", "lora_int_id": number}, max_tokens=1)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds, and misreads."""
        return {"tokens that B finds": num_hit_tokens(lab, 1), "requests that misread": num_misread_requests(lab)}

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a request read KV of another adapter."""
        return measured["requests that misread"] > 0

    def answer(self, table: Table) -> str:
        """State what is found."""
        wrong, right = (table[column.name] for column in (BROKEN, FIXED))
        return (
            f"B finds {wrong['tokens that B finds']} tokens of the other adapter; with the id in the hash "
            f"{right['tokens that B finds']}."
        )


SCENARIO = AdapterName()
