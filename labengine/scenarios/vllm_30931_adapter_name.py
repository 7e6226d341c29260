"""vLLM issue 30931: two LoRA adapters with the same name but different weights share KV blocks.

Up to 0.11.0 vLLM hashed an adapter's id. Ids depend on the loading order, so engines did not agree on hashes: pull
request 27211 switched to the name, in 0.11.1. Since 0.31.0 the path is hashed as well.
"""

from __future__ import annotations

from labengine.core.hash_chain import HashChain
from labengine.core.request import ExtraKeys
from labengine.events import BlockCached, PrefixHit
from labengine.lab import Lab
from labengine.scenarios.counts import events_of, num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, Experiment, Scenario


class NameOnly(HashChain):
    """Hashes an adapter's name, as vLLM 0.11.1 to 0.30.0 do."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys except the adapter's path and id."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] not in ("lora_path", "lora_int_id")))


class IdOnly(HashChain):
    """Hashes an adapter's id, as vLLM did before pull request 27211."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of all extra keys except the adapter's name and path."""
        return super().root(tuple(pair for pair in extra_keys if pair[0] not in ("lora", "lora_path")))


SAME, OTHER = "tokens found of the same adapter", "tokens found of another adapter"


def adapter(name: str, path: str, number: int) -> dict[str, str]:
    """Return the extra keys of a request with an adapter."""
    return {"lora": name, "lora_path": path, "lora_int_id": str(number)}


class SharedTier(Experiment):
    """Two engines that number their adapters in opposite order. The pool stands for a cache shared by both."""

    columns = (Column("vllm", NameOnly), Column("vllm"), Column("vllm", IdOnly))
    num_first = 2
    """Requests of the first engine."""

    def play(self, lab: Lab) -> None:
        """Run one prompt with each adapter under the first engine's ids, then under the second engine's."""
        for adapters in (("sql", "poem"), ("poem", "sql")):
            for number, name in enumerate(adapters, 1):
                lab.add(token_ids=range(1, 6), extra_keys=adapter(name, f"/{name}", number), max_tokens=1)
                lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that the second engine finds, by the adapter used to compute them."""
        source = {event.block_id: event.request_id for event in events_of(lab, BlockCached)}
        found = {SAME: 0, OTHER: 0}
        for hit in events_of(lab, PrefixHit)[self.num_first :]:
            other = 2 * self.num_first - 1 - hit.request_id
            for block_id in hit.block_ids[0]:
                found[SAME if source[block_id] == other else OTHER] += lab.config.groups[0].block_size
        return found


class AdapterName(Scenario):
    """One prompt with adapter "sql" from one folder, then with adapter "sql" from another, with different weights."""

    columns = SharedTier.columns
    experiments = {"shared tier": SharedTier()}
    figures = {
        "tokens that B finds": lambda lab: num_hit_tokens(lab, 1),
        "requests that misread": num_misread_requests,
    }

    def play(self, lab: Lab) -> None:
        """Run A, then B with another adapter of the same name."""
        for number, path in enumerate(("/one", "/two"), 1):
            lab.add(token_ids=range(1, 10), extra_keys=adapter("sql", path, number), max_tokens=1)
            lab.step()
