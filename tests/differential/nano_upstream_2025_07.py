"""Drive nano-vLLM of July 2025, from a checkout of it: the engine that edition nano-vllm-2025-07 is named for.

Its sequences count cached tokens and not computed ones, and its map keeps entries whose block holds other content by
now. Rows hold what both engines have: the tokens computed follow from the lengths, and of the map the true entries.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from differential.nano_upstream import Row, Upstream, find_checkout
from workloads import Arrival, Workload, random_workload

COMMIT = "38baf0bbe4bef79c7817a4643eade460acfac321"
VARIABLE = "LABENGINE_NANO_VLLM_2025_07"
EDITION = "nano-vllm-2025-07"


def checkout_2025_07() -> Path | None:
    """The checkout that the environment names; None when it names none."""
    return find_checkout(VARIABLE, COMMIT)


def workload_2025_07(seed: int) -> Workload:
    """A random workload with room in a step for each of its requests: this version never cuts a prompt.

    In every second one the same blocks come in many orders: what an old map entry leads to is then often the same
    tokens after another prefix.
    """
    workload = random_workload(seed)
    if seed % 2:
        workload = _same_blocks_in_many_orders(Random(seed), workload)
    longest = max(len(request.prompt) + request.max_tokens - 1 for request in workload.requests)
    return replace(workload, max_num_batched_tokens=max(longest, workload.max_num_batched_tokens))


def _same_blocks_in_many_orders(rng: Random, workload: Workload) -> Workload:
    size = rng.choice((2, 3, 4))
    contents = [tuple(rng.randrange(3) for _ in range(size)) for _ in range(rng.choice((2, 3)))]
    requests = tuple(
        Arrival(
            rng.randint(0, 20),
            sum((rng.choice(contents) for _ in range(rng.randint(1, 4))), ()) + contents[0][: rng.randint(0, size - 1)],
            rng.randint(1, 3 * size),
        )
        for _ in range(rng.randint(6, 14))
    )
    largest = max(-(-(len(r.prompt) + r.max_tokens - 1) // size) for r in requests)
    return replace(
        workload,
        num_blocks=largest + rng.choice((0, 1, 2, largest)),
        block_size=size,
        requests=requests,
        alphabet=rng.choice((1, 2, 3)),
    )


class Upstream202507(Upstream):
    """The modules of the old checkout, driven as the new ones are."""

    def run(self, workload: Workload, edition: str = EDITION) -> list[Row]:
        """What upstream holds after each step; see `row` for the keys."""
        return super().run(workload, edition)

    def _step(self, workload: Workload, scheduler: Any, sequences: dict[int, Any]) -> list[list[int]]:
        ids = {sequence.seq_id: request_id for request_id, sequence in sequences.items()}
        batch, is_prefill = scheduler.schedule()
        computed = [len(sequence) - sequence.num_cached_tokens if is_prefill else 1 for sequence in batch]
        tokens = [workload.next_token(ids[sequence.seq_id], len(sequence)) for sequence in batch]
        scheduler.postprocess(batch, tokens)
        return [[ids[sequence.seq_id], num_tokens] for sequence, num_tokens in zip(batch, computed, strict=True)]

    def _row(self, step: int, scheduled: list[list[int]], sequences: dict[int, Any], manager: Any) -> Row:
        return {
            "step": step,
            "scheduled": scheduled,
            "requests": {
                str(request_id): [
                    len(sequence),
                    len(sequence) - 1 if sequence.block_table else 0,
                    [*sequence.block_table],
                ]
                for request_id, sequence in sequences.items()
            },
            "ref_counts": [block.ref_count for block in manager.blocks],
            "free_queue": list(manager.free_block_ids),
            "map": sorted(
                [list(manager.blocks[i].token_ids), i]
                for block_hash, i in manager.hash_to_block_id.items()
                if manager.blocks[i].hash == block_hash
            ),
        }
