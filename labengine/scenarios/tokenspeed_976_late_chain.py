"""TokenSpeed pull request 976: why an adapter's key has to be in every page's hash, and not in that of page 0 alone.

A prompt shorter than a page has no hash at its admission. Its chain begins later, when the first page is full, and in
TokenSpeed at 760ae6e with an empty predecessor and without keys. A key that is added at admission alone is not in it.
"""

from __future__ import annotations

from labengine.core.editions import NANO_VLLM
from labengine.core.nano_vllm import NanoKVCacheManager
from labengine.core.parts import Parts
from labengine.core.request import Request
from labengine.events import BlockCached, PrefixHit, RequestAdded, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_requests
from labengine.scenarios.report import CodePassage, Conclusion, Report, ThreadPassage
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class KeyedAtAdmission(NanoKVCacheManager):
    """Hash chains whose keys are added at admission: one that begins later has none."""

    def extend_hashes(self, request: Request, num_tokens: int) -> None:
        """Begin a chain without keys if the prompt has no full block."""
        size = self._config.hash_block_size
        if not request.block_hashes and request.num_prompt_tokens < size <= num_tokens:
            token_ids = tuple(request.token_ids[:size])
            request.block_hashes.append(self._hash_chain.link(b"", token_ids))
            request.links.append(token_ids)
        super().extend_hashes(request, num_tokens)


BROKEN = Column(
    "at admission",
    Parts(name="nano-vllm, keys at admission", kv_cache_manager=KeyedAtAdmission).overriding(NANO_VLLM),
    "Adds the adapter to the chain at admission: a chain that begins later is that of the base model.",
)
FIXED = Column(
    "at the root",
    "nano-vllm",
    "Begins every chain with the request's keys, whenever it begins.",
)


class LateChain(Scenario):
    """A short prompt with an adapter fills its first block while it decodes; the base model asks for that block."""

    id = "tokenspeed-976"
    title = "A prompt shorter than a page loses its adapter: its hash chain begins after admission"
    report = Report(
        repository="lightseekorg/tokenspeed",
        kind="pull request",
        number="976",
        title="feat(scheduler): LoRA adapter identity, max_loras batch cap, and per-adapter KV namespace",
        state="closed, not merged",
        as_of="2026-08-22",
        seen_in="no version: the hazard of a design not chosen; at 760ae6e, its parent, no hash has an adapter",
        needs=("LoRA adapters", "a key in the hash of page 0 alone", "a prompt that is shorter than a page"),
    )
    claim = (
        "With the adapter in the hash of page 0 alone, the first page of a prompt that is shorter than a page would be "
        "registered as one of the base model: its chain begins after admission, with an empty predecessor."
    )
    conclusion = Conclusion(
        answer="holds",
        reason="As an argument about the code at 760ae6e, where later chains begin with nothing. No version keyed page "
        "0 alone, so nothing was ever served to a wrong adapter by it.",
        passages=(
            ThreadPassage(
                source="lightseekorg/tokenspeed 976",
                says="Keys go into every page, so that it does not matter where a chain begins.",
            ),
            CodePassage(
                version="tokenspeed 760ae6ed514759bfb42eff796765c8c56878fb5f",
                file="tokenspeed-scheduler/csrc/scheduler/operations/forward.cpp",
                line=73,
                text="page_hashes.empty() ? std::string{} : page_hashes.back()",
                says="A chain that has no page yet begins with an empty predecessor.",
            ),
            CodePassage(
                version="tokenspeed 642c51bcc3eb11ff60cf00bc54026afc5d96c77f",
                file="tokenspeed-scheduler/csrc/scheduler/page_hasher.h",
                line=154,
                text="HashPage(page, current_prior, namespace_keys)",
                says="The pull request hashes the keys with every page.",
            ),
        ),
    )
    kind = "extra keys"
    breaks = "The base model reads KV that was computed with an adapter's weights."
    wrong_figure = "requests that misread"
    seen_by = ("scope", "read")
    question = "A prompt of 3 tokens with an adapter, blocks of 4: whose block is the first one, once it is full?"
    columns = (BROKEN, FIXED)
    settings = settings(num_blocks=8, block_size=4)
    roles = ("the hazard: a key at admission", "a key at the chain's root")
    guide = (
        GuideStop("A has three tokens and adapter 'a'. A block has four: there is nothing to hash yet.", RequestAdded),
        GuideStop(
            "A's first answer token has filled the block, and it gets its hash. Left, without the adapter.",
            BlockCached,
        ),
        GuideStop(
            "B is of the base model. It begins with the same four tokens: A's prompt, and its first answer token.",
            RequestAdded,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, B finds A's block. Right, B finds nothing.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop("Left, the base model has read KV that is the adapter's.", StepEnded),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run A to its end, then B, which begins with what A's first block holds."""
        first = lab.add(token_ids=[1, 2, 3], extra_keys={"lora": "a"}, max_tokens=4)
        lab.run()
        block = lab.snapshot().requests[first].token_ids[:4]
        lab.add(token_ids=[*block, 9, 9], max_tokens=1)
        lab.run()

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B finds, and misreads."""
        return {"tokens that B finds": num_hit_tokens(lab, 1), "requests that misread": num_misread_requests(lab)}

    def answer(self, table: Table) -> str:
        """State whose block it is."""
        wrong, right = (table[column.name]["tokens that B finds"] for column in self.columns)
        return (
            f"The base model's, where the key is added at admission: B finds {wrong} tokens that were computed with "
            f"the adapter. With the key at the chain's root it finds {right}. A prompt of a block or more hides it: "
            f"its chain begins at admission."
        )


SCENARIO = LateChain()
