"""Single wrong changes to what computes, each with the tests that have to see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """The one place in labengine/engine/`file` that reads `right` reads `wrong`; `tests` in tests/engine see it."""

    name: str
    file: str
    right: str
    wrong: str
    tests: str

    def applied(self, text: str) -> str:
        """The file's text with the change."""
        assert text.count(self.right) == 1, f"{self.name}: {self.right!r} stands {text.count(self.right)} times"
        return text.replace(self.right, self.wrong)


def changes(file: str, tests: str, *each: tuple[str, str, str]) -> tuple[Mutant, ...]:
    """Mutants of one file: name, right and wrong of each."""
    return tuple(Mutant(name, file, right, wrong, tests) for name, right, wrong in each)


TRITON = "triton_attention_cases.py -k '2_to_the_31 or maximum_is'"
FAR = "test_far_memory.py"
JOIN = "native/test_attention.py::test_the_maximum_is_that_of_all_parts"

ROTATION = (
    Mutant(
        "torch's rotation stops at 4,095",
        "rope.py",
        "positions.float()",
        "positions.clamp(max=4095).float()",
        "test_rope.py",
    ),
    Mutant(
        "the native rotation stops at 4,095",
        "native/csrc/rowwise.h",
        "(float)step->positions[row] * frequencies[i]",
        "(float)(step->positions[row] & 4095) * frequencies[i]",
        "native/test_rowwise.py",
    ),
    Mutant(
        "positions wrap at 4,096",
        "step_tensors.py",
        "positions = expand_runs(starts, query_lens)",
        "positions = expand_runs([start % 4096 for start in starts], query_lens)",
        "test_forward_tiny.py::test_texts_longer_than_4096_tokens",
    ),
)

OFFSETS = (
    Mutant(
        "the native kernels locate in 32 bits",
        "native/csrc/attention_plan.h",
        "int64_t place = (table[entry] * (int64_t)op->block_size + offset) * stride;",
        "int64_t place = (int32_t)((table[entry] * op->block_size + offset) * stride);",
        FAR,
    ),
    Mutant(
        "the native store counts in 32 bits",
        "native/csrc/rowwise.h",
        "memcpy((REAL *)op->keys + slot * size, keys",
        "memcpy((REAL *)op->keys + (int32_t)(slot * size), keys",
        FAR,
    ),
    Mutant(
        "torch gathers in 32 bits",
        "attention/torch_gather.py",
        ".index_select(0, self.slots.view(-1))",
        ".view(-1)[(self.slots.view(-1, 1) * (size := num_kv_heads * head_dim) + torch.arange(size)).int().long()]",
        FAR,
    ),
    Mutant(
        "the torch store counts in 32 bits",
        "attention/flash_attn.py",
        "        by_slot.index_copy_(0, targets, torch.where(is_written, fresh[rows], by_slot[targets]))",
        "        size = by_slot[0].numel()\n"
        "        at = (targets.view(-1, 1) * size + torch.arange(size)).int().long()\n"
        "        written = torch.where(is_written, fresh[rows], by_slot[targets])\n"
        "        pool.view(-1)[at] = written.view(len(targets), size)",
        FAR,
    ),
    Mutant(
        "Triton's store counts in 32 bits",
        "attention/triton_kernels.py",
        "slot = tl.load(slots + token).to(tl.int64)",
        "slot = tl.load(slots + token)",
        TRITON,
    ),
    Mutant(
        "Triton's one block of a step is counted in 32 bits",
        "attention/triton_kernels.py",
        "mask=start < end, other=0).to(tl.int64)",
        "mask=start < end, other=0)",
        TRITON,
    ),
    Mutant(
        "Triton's blocks of a step are counted in 32 bits",
        "attention/triton_kernels.py",
        "mask=(at >= first) & (at < end), other=0).to(tl.int64)",
        "mask=(at >= first) & (at < end), other=0)",
        TRITON,
    ),
)

JOINS = (
    Mutant(
        "the native join takes the first part's maximum",
        "native/csrc/attention_decode.h",
        "float maximum = *all.maximum > *part.maximum ? *all.maximum : *part.maximum;",
        "float maximum = *all.maximum;",
        JOIN,
    ),
    Mutant(
        "the native join takes the other part's maximum",
        "native/csrc/attention_decode.h",
        "float maximum = *all.maximum > *part.maximum ? *all.maximum : *part.maximum;",
        "float maximum = *part.maximum;",
        JOIN,
    ),
    Mutant(
        "Triton's join takes the latest spans' maximum",
        "attention/triton_kernels.py",
        "larger = tl.maximum(largest, tl.max(largest_there, 0))",
        "larger = tl.max(largest_there, 0)",
        TRITON,
    ),
    Mutant(
        "Triton's join takes the first spans' maximum",
        "attention/triton_kernels.py",
        "larger = tl.maximum(largest, tl.max(largest_there, 0))",
        "larger = tl.where(start_span == 0, tl.max(largest_there, 0), largest)",
        TRITON,
    ),
)

MUTANTS = (*ROTATION, *OFFSETS, *JOINS)
