"""A Llama as ops over the kernels' memory, with a separate KV pool and buffers for each lab."""

from __future__ import annotations

import ctypes
from array import array
from typing import Any

from labengine.engine.native.layout import Finish, Op, OpKind, Step, program_of
from labengine.engine.wasm.weights import LayerWeights, LlamaSizes, PageWeights

HIDDEN, NORMED, HEADS, ATTENDED, GATED, ROTATION, LAST, LOGITS, ARGMAX = range(9)
"""Numbers of the buffers. From LAST on they have a row per sampling request, the others a row per token."""


def kv_bytes(sizes: LlamaSizes, num_tokens: int) -> int:
    """Return the number of bytes of that many tokens' KV, float32."""
    return num_tokens * sizes.num_layers * 2 * sizes.kv_width * 4


class PageProgram:
    """Runs steps of at most max_tokens tokens and max_requests requests over a pool."""

    def __init__(
        self, weights: PageWeights, num_blocks: int, block_size: int, max_tokens: int, max_requests: int
    ) -> None:
        """Raises ConfigError if the page has no memory left for it."""
        self._memory, self._sizes = weights.memory, weights.sizes
        self._num_blocks, self._block_size = num_blocks, block_size
        self._max_tokens, self._max_requests = max_tokens, max_requests
        self._max_inputs = 3 * max_tokens + max_requests * (num_blocks + 3) + 1
        self._taken: list[int] = []
        self._scratch_bytes = 0
        try:
            self._kv = self._take(kv_bytes(weights.sizes, num_blocks * block_size))
            self._step, self._step_at = Step(), self._take(ctypes.sizeof(Step))
            self._take_buffers(max_tokens, max_requests)
            self._inputs = self._take(4 * self._max_inputs)
            ops = self._ops(weights)
            self._num_ops, self._ops_at = len(ops), self._take(ctypes.sizeof(Op) * len(ops))
            self._memory.write(self._ops_at, bytes(program_of(ops)))
        except BaseException:
            self.release()
            raise

    def run(self, counts: tuple[int, int, int], stride: int, inputs: tuple[array[int], ...]) -> None:
        """Compute a step.

        counts: tokens, requests, sampling rows. inputs: token ids, positions, slots, query starts, contexts, block
        tables (rows of `stride` entries), sampled rows. Raises ValueError for a step beyond the buffers, or for a block
        beyond the pool.
        """
        self._check(counts, inputs)
        step, at, places = self._step, self._inputs, []
        for values in inputs:
            places.append(at)
            at += 4 * len(values)
        step.num_tokens, step.num_requests, step.num_sampling = counts
        step.token_ids, step.positions, step.slots[0], step.query_starts, step.contexts = places[:5]
        step.tables[0], step.sample_rows = places[5:]
        step.table_strides[0] = stride
        self._memory.write(self._inputs, b"".join(map(bytes, inputs)))
        self._memory.write(self._step_at, bytes(step))
        self._make_room()
        self._memory.exports.run_step(self._ops_at, self._num_ops, self._step_at)

    def _check(self, counts: tuple[int, int, int], inputs: tuple[array[int], ...]) -> None:
        """Refuse a step that would overwrite other memory; a user's scheduler may plan anything."""
        if counts[0] > self._max_tokens or counts[1] > self._max_requests:
            raise ValueError(
                f"a step with {counts[0]} tokens of {counts[1]} requests exceeds max_num_batched_tokens="
                f"{self._max_tokens} or max_num_seqs={self._max_requests}"
            )
        slots, tables = inputs[2], inputs[5]
        num_slots = self._num_blocks * self._block_size
        if min(slots) < 0 or max(slots) >= num_slots or min(tables) < 0 or max(tables) >= self._num_blocks:
            raise ValueError(f"a step uses an unknown block: the pool has blocks 0 to {self._num_blocks - 1}")
        if sum(map(len, inputs)) > self._max_inputs:
            raise ValueError("a step has block tables longer than the pool")

    def argmax(self, num_rows: int) -> tuple[list[int], list[int]]:
        """Return the last step's argmax tokens, and for each row 1 if its logits are finite."""
        found = array("i", self._memory.read(self._step.buffers[ARGMAX], 8 * num_rows)).tolist()
        return found[:num_rows], found[num_rows:]

    def logits(self, row: int) -> array[float]:
        """Return a row of the last step's logits, one per token of the vocabulary."""
        size = 4 * self._sizes.vocab_size
        return array("f", self._memory.read(self._step.buffers[LOGITS] + size * row, size))

    def draw(self, row: int, temperature: float, top_k: int, top_p: float, target: float) -> int:
        """Return the token drawn by a uniform number from a row of the last step's logits. Raises MemoryError."""
        size = self._sizes.vocab_size
        logits = self._step.buffers[LOGITS] + 4 * size * row
        token = self._memory.exports.draw_token(logits, size, temperature, top_k, top_p, target)
        if token < 0:
            raise MemoryError("this page has no memory left to sort the vocabulary")
        return token

    def block_places(self, block_id: int) -> list[tuple[int, int]]:
        """Return the places of a block's keys and values, layer by layer: (address, bytes).

        Raises IndexError for an unknown block.
        """
        if not 0 <= block_id < self._num_blocks:
            raise IndexError(f"no block {block_id}: the pool has blocks 0 to {self._num_blocks - 1}")
        size = self._block_size * self._sizes.kv_width * 4
        sides = range(2 * self._sizes.num_layers)
        return [(self._side(side) + block_id * size, size) for side in sides]

    def release(self) -> None:
        """Free the memory. A second call has no effect."""
        while self._taken:
            self._memory.give(self._taken.pop())

    def _take(self, num_bytes: int) -> int:
        self._taken.append(self._memory.take(num_bytes))
        return self._taken[-1]

    def _side(self, side: int) -> int:
        """Return the address of a layer's keys (side = 2 * layer) or values."""
        return self._kv + side * kv_bytes(self._sizes, self._num_blocks * self._block_size) // (
            2 * self._sizes.num_layers
        )

    def _take_buffers(self, max_tokens: int, max_requests: int) -> None:
        sizes = self._sizes
        attended = sizes.num_heads * sizes.head_dim
        heads = attended + 2 * sizes.kv_width
        widths = (sizes.hidden_size, sizes.hidden_size, heads, attended, sizes.intermediate_size, sizes.head_dim)
        for number, width in enumerate(widths):
            self._step.buffers[number] = self._take(4 * width * max_tokens)
        for number, width in ((LAST, sizes.hidden_size), (LOGITS, sizes.vocab_size), (ARGMAX, 2)):
            self._step.buffers[number] = self._take(4 * width * max_requests)

    def _make_room(self) -> None:
        """Grow the scratch memory to the step's size, which is known once the step is written."""
        exports = self._memory.exports
        needed = exports.scratch_needed(self._ops_at, self._num_ops, self._step_at)
        if needed > self._scratch_bytes:
            if self._scratch_bytes:
                self._taken.remove(self._step.scratch)
                self._memory.give(self._step.scratch)
                self._scratch_bytes = 0
            self._step.scratch, self._scratch_bytes = self._take(needed), needed
            self._memory.write(self._step_at, bytes(self._step))

    # -- the model -----------------------------------------------------------------------------------------------------

    def _ops(self, weights: PageWeights) -> list[Op]:
        sizes = weights.sizes
        hidden, vocab = sizes.hidden_size, sizes.vocab_size
        ops = [
            Op(kind=OpKind.EMBED, in_=-1, other=-1, out=HIDDEN, n=vocab, k=hidden, weight=weights.embedding, scale=1.0),
            Op(kind=OpKind.ROTATION, in_=-1, other=-1, out=ROTATION, k=sizes.head_dim // 2, weight=weights.frequencies),
        ]
        for number, layer in enumerate(weights.layers):
            ops += self._layer(number, layer)
        return [
            *ops,
            self._norm(weights.norm, LAST, is_sampling=1),
            _linear(weights.embedding, (vocab, hidden), LAST, LOGITS, Finish.TO_FLOAT, is_sampling=1),
            Op(kind=OpKind.ARGMAX, in_=LOGITS, other=-1, out=ARGMAX, n=vocab),
        ]

    def _layer(self, number: int, layer: LayerWeights) -> list[Op]:
        sizes = self._sizes
        hidden, attended = sizes.hidden_size, sizes.num_heads * sizes.head_dim
        attention: dict[str, Any] = {
            "in_": HEADS,
            "keys": self._side(2 * number),
            "values": self._side(2 * number + 1),
            "num_heads": sizes.num_heads,
            "num_kv_heads": sizes.num_kv_heads,
            "head_dim": sizes.head_dim,
            "block_size": self._block_size,
        }
        return [
            self._norm(layer.attention_norm, NORMED),
            _linear(layer.qkv, (attended + 2 * sizes.kv_width, hidden), NORMED, HEADS),
            Op(kind=OpKind.ROTATE, other=ROTATION, out=-1, **attention),
            Op(kind=OpKind.ATTEND, other=-1, out=ATTENDED, scale=sizes.head_dim**-0.5, **attention),
            _linear(layer.out, (hidden, attended), ATTENDED, HIDDEN, Finish.ADD),
            self._norm(layer.mlp_norm, NORMED),
            _linear(layer.gate_up, (2 * sizes.intermediate_size, hidden), NORMED, GATED, Finish.SILU_MUL),
            _linear(layer.down, (hidden, sizes.intermediate_size), GATED, HIDDEN, Finish.ADD),
        ]

    def _norm(self, weight: int, out: int, *, is_sampling: int = 0) -> Op:
        sizes = self._sizes
        return Op(
            kind=OpKind.NORM, in_=HIDDEN, other=-1, out=out, k=sizes.hidden_size, weight=weight,
            eps=sizes.rms_norm_eps, is_sampling=is_sampling,
        )  # fmt: skip


def _linear(
    weight: int,
    shape: tuple[int, int],
    source: int,
    out: int,
    finish: Finish = Finish.PLAIN,
    *,
    is_sampling: int = 0,
) -> Op:
    n, k = shape
    other = out if finish is Finish.ADD else -1
    return Op(
        kind=OpKind.LINEAR, finish=finish, in_=source, other=other, out=out, n=n, k=k, weight=weight,
        is_sampling=is_sampling,
    )  # fmt: skip
