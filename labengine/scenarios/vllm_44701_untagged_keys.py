"""vLLM issue 44701: an adapter's name and a cache salt are the same string, and make the same hash.

Both are appended to one tuple of extra keys without saying which is which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from labengine.core.editions import VLLM
from labengine.core.parts import Parts
from labengine.core.prefix_cache import HashChain
from labengine.core.request import ExtraKeys
from labengine.events import PrefixHit, RequestAdded, RequestFinished, StepEnded
from labengine.lab import Lab
from labengine.scenarios.figures import num_hit_tokens, num_misread_requests
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class UntaggedKeys(HashChain):
    """Hashes of the values alone."""

    def root(self, extra_keys: ExtraKeys) -> bytes:
        """Return the hash of the keys' values, without their domains."""
        values = "\0".join(value for _, value in extra_keys)
        return hashlib.sha256(values.encode()).digest() if extra_keys else b""


BROKEN = Column(
    "untagged",
    Parts(name="vllm, untagged keys", hash_chain=UntaggedKeys).overriding(VLLM),
    "Hashes the extra keys' values: an adapter and a salt of the same name are the same.",
)
FIXED = Column("tagged", "vllm", "Hashes each value with its domain: lora and cache_salt cannot be mistaken.")


class UntaggedExtraKeys(Scenario):
    """One prompt three times: with adapter "tenant-7", with cache salt "tenant-7", and with that salt again."""

    id = "vllm-44701"
    title = "A cache salt that is called like an adapter hits the adapter's blocks"
    url = "https://github.com/vllm-project/vllm/issues/44701"
    upstream = "Open: issue 44701 and pull request 44706, which tags both keys."
    claim = (
        "A request of the base model with cache_salt 'X' hits blocks that were computed for LoRA adapter 'X': the "
        "extra keys of a block's hash do not say what they are."
    )
    kind = "extra keys"
    breaks = (
        "The base model reads KV that was computed with an adapter's weights, although the salt is there to isolate it."
    )
    seen_by = ("read",)
    question = "The same tokens, with adapter 'tenant-7' and with salt 'tenant-7': who finds whose blocks?"
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=12, block_size=4)
    roles = ("the bug: values without domains", "the fix: each value with its domain")
    guide = (
        GuideStop(
            "A's prompt is computed with LoRA adapter 'tenant-7': its KV depends on the adapter's weights.",
            RequestAdded,
        ),
        GuideStop("A has ended; its two full blocks are cached.", RequestFinished),
        GuideStop(
            "B has the same tokens, no adapter, and cache salt 'tenant-7', which isolates it from all other requests.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, both names give the same hash: B finds all of A's blocks. Right, it finds nothing.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, the base model has answered from the adapter's KV.", StepEnded),
        GuideStop(
            "C has B's salt. It may share with B, and does on both sides.",
            PrefixHit,
            lambda event: event.request_id == 2,
        ),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run the three requests in turn."""
        lab.add(token_ids=range(1, 10), extra_keys={"lora": "tenant-7"}, max_tokens=1)
        lab.step()
        for _ in range(2):
            lab.add(token_ids=range(1, 10), cache_salt="tenant-7", max_tokens=1)
            lab.step()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B and C find, and misreads."""
        return {
            "tokens that B finds": num_hit_tokens(lab, 1),
            "tokens that C finds": num_hit_tokens(lab, 2),
            "requests that misread": num_misread_requests(lab),
        }

    def is_wrong(self, measured: Mapping[str, int]) -> bool:
        """Return True if a request read KV of another model."""
        return measured["requests that misread"] > 0

    def answer(self, table: Table) -> str:
        """State what is shared, and what should be."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"B, with the salt, finds {wrong['tokens that B finds']} tokens of the adapter's request, and "
            f"{right['tokens that B finds']} once the keys are tagged; C, with the same salt as B, finds "
            f"{right['tokens that C finds']} in both. No check on counts can see it: the two hashes are equal, and "
            f"only the content differs."
        )


SCENARIO = UntaggedExtraKeys()
