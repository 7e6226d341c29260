"""vLLM issue 44701: an adapter's name and a cache salt are the same string, and make the same hash.

In vLLM 0.11.1 to 0.30.0 both are strings of one tuple of extra keys that does not say which is which. The name is in
the tuple of every block, the salt in that of the first one only.
"""

from __future__ import annotations

import hashlib

from labengine.core.editions import VLLM, VllmKVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import PrefixHit, RequestAdded, RequestFinished, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_requests
from labengine.scenarios.report import CodePassage, Conclusion, Report
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class UntaggedKeys(VllmKVCacheManager):
    """Block hashes as vLLM 0.30 makes them."""

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        """Hash the keys' values with each block's tokens, without their domains: a salt in the first block only."""
        hashes, size = request.block_hashes, self._config.hash_block_size
        for start in range(len(hashes) * size, num_tokens - size + 1, size):
            token_ids = tuple(request.token_ids[start : start + size])
            values = [value for domain, value in request.extra_keys if domain != "cache_salt" or start == 0]
            linked = self._hash_chain.link(hashes[-1] if hashes else b"", token_ids)
            hashes.append(hashlib.sha256(linked + "\0".join(values).encode()).digest())
            request.links.append(token_ids)


BROKEN = Column(
    "as 0.30",
    Parts(name="vllm, as 0.30: untagged keys", kv_cache_manager=UntaggedKeys).overriding(VLLM),
    "Hashes the extra keys' values, as vLLM 0.11.1 to 0.30.0: an adapter and a salt of one name are the same.",
)
FIXED = Column(
    "tagged",
    "vllm",
    "Hashes each value with its domain, as vLLM since 0.31.0: lora and cache_salt cannot be mistaken.",
)


class UntaggedExtraKeys(Scenario):
    """One prompt three times: with adapter "tenant-7", with cache salt "tenant-7", and with that salt again."""

    id = "vllm-44701"
    title = "A cache salt that is called like an adapter hits the adapter's blocks"
    report = Report(
        repository="vllm-project/vllm",
        kind="issue",
        number="44701",
        title="[Bug]: V1 prefix-cache extra-key domain collision between LoRA name and cache_salt",
        state="open",
        as_of="2026-09-11",
        seen_in="0.11.1, where the name took the place of the adapter's number, to 0.30.0",
        mended_in="0.31.0, which tags both keys (by which pull request is not known here: 44706 proposes it)",
        needs=("V1", "--enable-lora", "prefix caching", "a salt that is equal to an adapter's name"),
    )
    claim = (
        "A request of the base model with cache_salt 'X' and one with LoRA adapter 'X' have the same hash of their "
        "first block, so that the one hits what was computed for the other: the extra keys do not say what they are."
    )
    conclusion = Conclusion(
        answer="holds",
        reason="In 0.11.1 to 0.30.0, for a prompt's first block, the only one that has the salt. Not since 0.31.0.",
        passages=(
            CodePassage(
                version="vllm 0.30.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=571,
                text="return [request.lora_request.lora_name]",
                says="The adapter's name is a string of the tuple, in every block.",
            ),
            CodePassage(
                version="vllm 0.30.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=622,
                text="[request.cache_salt] if (start_token_idx == 0 and request.cache_salt)",
                says="So is the salt, in the first block.",
            ),
            CodePassage(
                version="vllm 0.31.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=584,
                text='return [("lora", lora_request.lora_name, lora_request.lora_path)]',
                says="The name comes with a tag.",
            ),
            CodePassage(
                version="vllm 0.31.0",
                file="vllm/v1/core/kv_cache_utils.py",
                line=637,
                text='[("cache_salt", request.cache_salt)]',
                says="The salt comes with another one.",
            ),
        ),
    )
    kind = "extra keys"
    breaks = (
        "The base model reads KV that was computed with an adapter's weights, although the salt is there to isolate it."
    )
    wrong_figure = "requests that misread"
    seen_by = ("scope", "read")
    question = "The same tokens, with adapter 'tenant-7' and with salt 'tenant-7': who finds whose blocks?"
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=12, block_size=4)
    roles = ("the bug: values alone, as 0.30", "the fix: values with domains, as 0.31")
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
            "Left, both names give the same hash of the first block: B finds A's. The second block's hash has the "
            "adapter's name again, and the salt not. Right, B finds nothing.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, the base model has answered from the adapter's KV.", StepEnded),
        GuideStop(
            "C has B's salt. It may share with B, and does on both sides; left, the first block is A's.",
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

    def answer(self, table: Table) -> str:
        """State what is shared, and what should be."""
        wrong, right = (table[column.name] for column in self.columns)
        return (
            f"B, with the salt, finds {wrong['tokens that B finds']} tokens of the adapter's request: its first block. "
            f"Once the keys are tagged it finds {right['tokens that B finds']}. C, with the same salt as B, finds "
            f"{right['tokens that C finds']} in both. No check on counts can see it here: the two hashes are equal, "
            f"and only the content differs."
        )


SCENARIO = UntaggedExtraKeys()
