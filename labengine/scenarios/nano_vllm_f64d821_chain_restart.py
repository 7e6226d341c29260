"""nano-vLLM commit f64d821, on a branch and mended an hour later: a hit on a free block restarts the hash chain.

A cached block that is hit while it is free was taken like a fresh one: its hash was reset. The next block's hash
continues from the hash of the block before it, and there was none: it was hashed as if it came first.
"""

from __future__ import annotations

from labengine.core.editions import LABENGINE, NANO_VLLM
from labengine.core.kv_cache_manager import KVCacheManager
from labengine.core.nano_vllm import NanoKVCacheManager
from labengine.core.parts import Parts
from labengine.core.prefix_lookup import Hit
from labengine.core.request import Request
from labengine.events import BlockCached, BlockEvicted, BlockTouched, PrefixHit, StepEnded
from labengine.lab import Lab
from labengine.scenarios.counts import num_hit_tokens, num_misread_requests
from labengine.scenarios.report import CodePassage, Conclusion, Report
from labengine.scenarios.scenario import Column, GuideStop, Scenario, Table, sentences, settings


class _ForgetsFreeHits(KVCacheManager):
    def allocate_computed(self, request: Request, hit: Hit, num_external: int) -> None:
        """Forget the content of hit blocks that are free; behind such a block the chain begins anew."""
        (hit_ids,) = hit.block_ids
        free = [block_id for block_id in hit_ids if not self.pool.blocks[block_id].ref_count]
        self.pool.evict_cached(free, "reused")
        super().allocate_computed(request, hit, num_external)
        if hit_ids and hit_ids[-1] in free:
            self._journal.record((setattr, request, "block_hashes", request.block_hashes[:]))
            block_hash, size = b"", self._config.hash_block_size
            for link in range(len(hit_ids), len(request.links)):
                token_ids = request.token_ids[link * size : (link + 1) * size]
                request.block_hashes[link] = block_hash = self._hash_chain.link(block_hash, token_ids)


class RestartsTheChain(_ForgetsFreeHits, NanoKVCacheManager):
    """nano-vLLM's manager as it was for an hour, on a branch."""


class RestartsTheChainToo(_ForgetsFreeHits):
    """labengine's manager with the same defect."""


BROKEN = Column(
    "f64d821",
    Parts(name="nano-vllm, f64d821", kv_cache_manager=RestartsTheChain).overriding(NANO_VLLM),
    "Resets the hash of a free block that is hit: the next block is hashed without what stands before it.",
)
FIXED = Column("9fa256a", "nano-vllm", "Keeps the hash of a block that is hit, whether it was free or not.")
COMPARES = Column(
    "labengine, f64d821",
    Parts(name="labengine, f64d821", kv_cache_manager=RestartsTheChainToo).overriding(LABENGINE),
    "The same wrong hash, in an edition that compares everything before a block: the look-up misses.",
)


class ChainRestart(Scenario):
    """X and one token; then X, Y and one token; then Y and one token. Each runs alone."""

    id = "nano-vllm-f64d821"
    title = "A hit on a free block makes the next block look like a first one"
    report = Report(
        repository="GeeeekExplorer/nano-vllm",
        kind="commit",
        number="f64d821",
        title="fix chunked prefill bugs and refactor",
        state="on the main branch",
        as_of="2026-04-26",
        seen_in=(
            "commit f64d821 alone, on the branch of pull request 218: main got it together with the mending commit"
        ),
        mended_in="commit 9fa256a, 56 minutes later on the same branch; main has both since bb823b3",
        needs=("a cached block that is hit while no request has it",),
    )
    claim = "A cached block that is hit while it is free loses its hash, so the hash chain restarts behind it."
    conclusion = Conclusion(
        answer="holds",
        reason=(
            "A hit on a free block went through `_allocate_block`, which resets the hash; the next block "
            "is hashed from it. Main never stood at this commit alone."
        ),
        passages=(
            CodePassage(
                version="nano-vllm f64d821",
                file="nanovllm/engine/block_manager.py",
                line=86,
                text="self._allocate_block(block_id)",
                says="A free block that is hit is allocated like a new one.",
            ),
            CodePassage(
                version="nano-vllm f64d821",
                file="nanovllm/engine/block_manager.py",
                line=48,
                text="block.reset()",
                says="Allocation resets the hash.",
            ),
            CodePassage(
                version="nano-vllm bb823b3",
                file="nanovllm/engine/block_manager.py",
                line=86,
                text="block.ref_count = 1",
                says="A free block that is hit keeps its hash.",
            ),
        ),
    )
    kind = "chain"
    breaks = "KV that was computed after X is filed under the hash of Y alone: a prompt that begins with Y reads it."
    wrong_figure = "requests that misread"
    seen_by = ("read",)
    question = "X|z, then X|Y|z, then Y|z: what does the third one find?"
    columns = (BROKEN, FIXED, COMPARES)
    settings = settings(num_blocks=12, block_size=4)
    roles = ("the bug: commit f64d821", "the fix: commit 9fa256a")
    guide = (
        GuideStop("A's prompt is X and one token. A has ended: the block of X is free, and still cached.", StepEnded),
        GuideStop(
            "B's prompt is X, Y and one token. On both sides it finds X, in a free block.",
            PrefixHit,
            lambda event: event.request_id == 1,
        ),
        GuideStop(
            "Left, the free block is taken like a fresh one: its hash and its map entry are reset.",
            BlockEvicted,
        ),
        GuideStop("On both sides B's table begins with the block of X.", BlockTouched),
        GuideStop(
            "B's second block is full and gets a hash. Right, over X and Y. Left, the block before has no hash, so it "
            "is over Y alone.",
            BlockCached,
            lambda event: event.request_id == 1 and event.index == 1,
        ),
        GuideStop(
            "C's prompt is Y and one token. Right, a miss. Left, a hit on B's block: its own tokens are equal, but its "
            "KV was computed at other positions and after X.",
            PrefixHit,
            lambda event: event.request_id == 2,
        ),
        GuideStop("Left, C has read it. No count is wrong and nothing raises: only the content is wrong.", StepEnded),
    )
    sentences = sentences(guide)

    def play(self, lab: Lab) -> None:
        """Run the three prompts in turn."""
        x, y, z = [1] * 4, [2] * 4, [3]
        for prompt in (x + z, x + y + z, y + z):
            lab.generate([prompt], max_tokens=1)

    def measure(self, lab: Lab) -> dict[str, int]:
        """Count the tokens that B and C find, and the requests that read foreign KV."""
        return {
            "tokens that X|Y|z finds": num_hit_tokens(lab, 1),
            "tokens that Y|z finds": num_hit_tokens(lab, 2),
            "requests that misread": num_misread_requests(lab),
        }

    def answer(self, table: Table) -> str:
        """State that only the content shows it, and what comparing prefixes catches."""
        wrong, right, compared = (table[column.name] for column in self.columns)
        return (
            f"Y|z finds {wrong['tokens that Y|z finds']} tokens that were computed after X ("
            f"{right['tokens that Y|z finds']} with the fix): {wrong['requests that misread']} request reads foreign "
            f"KV in silence. nano-vLLM compares a block's own tokens, and they are equal; an edition that compares all "
            f"tokens before them finds {compared['tokens that Y|z finds']}, wrong hash or not."
        )


SCENARIO = ChainRestart()
