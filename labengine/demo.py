"""The demo: nano-vLLM issue 219 and pull request 243 on a real model, two engines side by side, as a table.

The script is the pull request's: one prompt that fills three blocks of 256 tokens and part of a fourth, added twice,
one step. Each engine computes the same KV twice; one keeps both copies, the other merges them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TextIO

from labengine.events import BlockMerged
from labengine.lab import Lab
from labengine.snapshot import Snapshot

PROMPT = "This is a concurrent cache test prompt. " * 100
BLOCK_SIZE = 256
NUM_PROMPT_TOKENS = 801
BEFORE, AFTER = "nano-vllm", "nano-vllm+243"


@dataclass(slots=True)
class DemoRun:
    """What one edition did with the two equal requests."""

    edition: str
    model: str
    snapshot: Snapshot
    """After step 1."""
    peak_used_blocks: int
    num_steps: int = 0
    merges: list[tuple[BlockMerged, float, float]] = field(default_factory=list)
    """Each merge with max |dK| and max |dV| between the two copies, over all layers."""

    @property
    def num_unique_hashes(self) -> int:
        """Distinct hashes among the blocks in use."""
        return len({block.block_hashes for block in self.snapshot.blocks if block.ref_count and block.block_hashes})

    @property
    def ref_counts(self) -> tuple[int, ...]:
        """Of the blocks in use, largest first."""
        return tuple(sorted((block.ref_count for block in self.snapshot.blocks if block.ref_count), reverse=True))


def run_edition(edition: str, model: str = "smollm2") -> DemoRun:
    """The pull request's script on one edition."""
    with Lab(model, num_blocks=16, block_size=BLOCK_SIZE, edition=edition) as lab:
        prompt_ids = lab.encode(PROMPT)[:NUM_PROMPT_TOKENS]
        merges: list[tuple[BlockMerged, float, float]] = []

        def measure(event: BlockMerged) -> None:
            merges.append((event, *_kv_difference(lab, event)))

        lab.hooks.subscribe(measure, BlockMerged)
        for _ in range(2):
            lab.add(token_ids=prompt_ids, temperature=1.0, max_tokens=3)
        report = lab.step()
        run = DemoRun(
            edition, f"{model} ({lab.status()['model']})", lab.snapshot(), report.peak_used_blocks, merges=merges
        )
        lab.run()
        run.num_steps = lab.stats().num_steps
        return run


def _kv_difference(lab: Lab, event: BlockMerged) -> tuple[float, float]:
    worst_k = worst_v = 0.0
    for layer in range(lab.num_layers):
        copy_k, copy_v = lab.kv(event.block_id, layer)
        kept_k, kept_v = lab.kv(event.into_block_id, layer)
        worst_k = max(worst_k, (copy_k - kept_k).abs().max().item())
        worst_v = max(worst_v, (copy_v - kept_v).abs().max().item())
    return worst_k, worst_v


def rows(before: DemoRun, after: DemoRun) -> Iterator[tuple[str, ...]]:
    """The seed's table, and what it left out."""
    both = (before, after)
    yield ("Metric", before.edition, after.edition)
    yield ("Total used blocks", *(str(run.snapshot.num_used_blocks) for run in both))
    yield ("Unique valid hashes", *(str(run.num_unique_hashes) for run in both))
    yield ("Blocks nobody can find", *(str(len(run.snapshot.lost_blocks)) for run in both))
    yield ("Ref counts", *(str(run.ref_counts) for run in both))
    yield ("Peak while computing", *(str(run.peak_used_blocks) for run in both))


def main(out: TextIO, model: str = "smollm2") -> None:
    """Run both editions and print what they hold after step 1."""
    before, after = run_edition(BEFORE, model), run_edition(AFTER, model)
    print(f"nano-vLLM #219 / #243 on {after.model}", file=out)
    print(f"Two equal requests of {NUM_PROMPT_TOKENS} tokens, blocks of {BLOCK_SIZE}, after step 1:\n", file=out)
    for row in rows(before, after):
        print(f"{row[0]:>22} | {row[1]} | {row[2]}", file=out)
    print("\nMerged pairs in", after.edition, file=out)
    for event, worst_k, worst_v in after.merges:
        pair = f"#{event.block_id} into #{event.into_block_id}"
        print(f"{pair:>22} | max |dK| {worst_k:.3g} | max |dV| {worst_v:.3g}", file=out)
    print("\nMerging gives memory back after the step: the peak is the same in both, and so is the compute.", file=out)
    print(f"Both ran to their end in {before.num_steps} and {after.num_steps} steps.", file=out)
