"""The demo: nano-vLLM issue 219 and pull request 243 on a real model, two engines side by side in a table.

The script is the pull request's: a prompt that fills three blocks of 256 tokens and part of a fourth is added twice,
for one step. Each engine computes the same KV twice; one keeps both copies, the other merges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from labengine.events import BlockMerged
from labengine.lab import Lab
from labengine.record.snapshot import Snapshot
from labengine.scenarios.nano_vllm_219_duplicate_blocks import Script

SCRIPT = Script()


@dataclass(slots=True)
class DemoRun:
    """One edition's result for the two equal requests."""

    edition: str
    model: str
    snapshot: Snapshot
    """State after step 1."""
    measured: Mapping[str, int]
    """Figures after step 1, by the scenario's names."""
    num_steps: int
    merges: list[tuple[BlockMerged, float, float]] = field(default_factory=list)
    """Each merge, with max |dK| and max |dV| between the two copies over all layers."""

    @property
    def ref_counts(self) -> tuple[int, ...]:
        """Reference counts of the used blocks, largest first."""
        return tuple(sorted((block.ref_count for block in self.snapshot.blocks if block.ref_count), reverse=True))


def run_edition(edition: str, model: str = "smollm2") -> DemoRun:
    """Run the pull request's script on one edition."""
    with SCRIPT.lab(edition, model) as lab:
        merges: list[tuple[BlockMerged, float, float]] = []

        def compare(event: BlockMerged) -> None:
            merges.append((event, *_kv_difference(lab, event)))

        lab.hooks.subscribe(compare, BlockMerged)
        SCRIPT.play(lab)
        name, snapshot, measured = f"{model} ({lab.status()['model']})", lab.snapshot(), SCRIPT.measure(lab)
        lab.run()
        return DemoRun(edition, name, snapshot, measured, lab.stats().num_steps, merges)


def _kv_difference(lab: Lab, event: BlockMerged) -> tuple[float, float]:
    worst_k = worst_v = 0.0
    for layer in range(lab.num_layers):
        copy_k, copy_v = lab.kv(event.block_id, layer)
        kept_k, kept_v = lab.kv(event.into_block_id, layer)
        worst_k = max(worst_k, (copy_k - kept_k).abs().max().item())
        worst_v = max(worst_v, (copy_v - kept_v).abs().max().item())
    return worst_k, worst_v


def rows(before: DemoRun, after: DemoRun) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the pull request's table, and the peak, which that table does not have."""

    def row(name: str, measured: str) -> tuple[str, ...]:
        return (name, *(str(run.measured[measured]) for run in (before, after)))

    yield ("Metric", before.edition, after.edition)
    yield row("Total used blocks", "used blocks")
    yield row("Unique valid hashes", "unique hashes")
    yield row("Lost blocks", "lost blocks")
    yield ("Ref counts", str(before.ref_counts), str(after.ref_counts))
    yield row("Peak while computing", "peak while computing")


def main(out: TextIO, model: str = "smollm2") -> None:
    """Run both editions and print their state after step 1."""
    before, after = (run_edition(column.name, model) for column in SCRIPT.columns)
    size = SCRIPT.settings["block_size"]
    print(f"nano-vLLM #219 / #243 on {after.model}", file=out)
    print(f"Two identical requests of {SCRIPT.num_prompt_tokens} tokens, blocks of {size}, after step 1:\n", file=out)
    for row in rows(before, after):
        print(f"{row[0]:>22} | {row[1]} | {row[2]}", file=out)
    print("\nMerged pairs in", after.edition, file=out)
    for event, worst_k, worst_v in after.merges:
        pair = f"#{event.block_id} into #{event.into_block_id}"
        print(f"{pair:>22} | max |dK| {worst_k:.3g} | max |dV| {worst_v:.3g}", file=out)
    print("\nMerging gives memory back after the step; the peak and the compute are the same in both.", file=out)
    print(f"Both ran to the end, in {before.num_steps} and {after.num_steps} steps.", file=out)
