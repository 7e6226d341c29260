from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
import torch

from engine.late_gpu import CUDA, LateGpu
from engine.plan_builder import Dealer, HandMadeRequest, plan_of
from labengine.config import GroupSpec
from labengine.engine.staged_memory import ALIGNMENT, StagedMemory
from labengine.engine.step_tensors import (
    GroupTensors,
    StepStaging,
    StepTensors,
    expand_runs,
    slots_of_runs,
    step_tensors,
)

CPU = torch.device("cpu")
GROUPS = (GroupSpec(4),)


def test_runs_are_expanded_in_order() -> None:
    assert list(expand_runs([7, 2, 9], (2, 3, 0))) == [7, 8, 2, 3, 4]
    assert list(expand_runs([7, 2], (1, 1))) == [7, 2]
    assert list(expand_runs([], ())) == []


def test_slots_of_runs() -> None:
    assert slots_of_runs([(5, 2, 2), (1, 0, 4), (3, 0, 1)], block_size=4).tolist() == [22, 23, 4, 5, 6, 7, 12]


@pytest.fixture
def step() -> StepTensors:
    """A chunk in the middle of a prompt, a decode, and a prompt's first chunk that does not sample."""
    middle = HandMadeRequest(0, list(range(10, 20)), tables=((6, 2, 4),), groups=GROUPS, num_computed=3)
    decode = HandMadeRequest(1, [7, 8, 9], tables=((5,),), groups=GROUPS, num_computed=2)
    first = HandMadeRequest(2, [1, 2, 3, 4, 5, 6], tables=((0, 1),), groups=GROUPS)
    return step_tensors(plan_of(middle.take(6), decode.take(1), first.take(2, samples=False)), GROUPS, CPU)


def test_a_plan_as_tensors(step: StepTensors) -> None:
    assert step.token_ids.tolist() == [13, 14, 15, 16, 17, 18, 9, 1, 2]
    assert step.positions.tolist() == [3, 4, 5, 6, 7, 8, 2, 0, 1]
    assert step.query_lens == (6, 1, 2)
    assert step.context_lens == (9, 3, 2)
    assert step.sample_rows.tolist() == [5, 6]


def test_a_group_as_tensors(step: StepTensors) -> None:
    (group,) = step.groups
    assert group.slots.tolist() == [27, 8, 9, 10, 11, 16, 22, 0, 1]
    assert read_entries(group, [(0, 3), (0, 1), (0, 1)]) == [[6, 2, 4], [5], [0]]


def read_entries(group: GroupTensors, read: list[tuple[int, int]]) -> list[list[int]]:
    """The entries first..last of each row; the others may hold anything."""
    return [row[first:last] for row, (first, last) in zip(group.block_tables.tolist(), read, strict=True)]


def test_slots_lie_where_the_table_says() -> None:
    request = Dealer(64, 5).request(list(range(90)))
    table, tensors = request.table, []
    for chunk in (1, 4, 5, 30, 50):
        tensors.append(step_tensors(plan_of(request.take(chunk)), [GroupSpec(5)], CPU).groups[0].slots)
    assert torch.cat(tensors).tolist() == [table[p // 5] * 5 + p % 5 for p in range(90)]


def test_a_table_too_short_is_named() -> None:
    short = HandMadeRequest(7, [1, 2, 3, 4, 5], tables=((3, 1),), groups=GROUPS).take(5)
    plan = plan_of(replace(short, block_tables=((3,),)))
    with pytest.raises(ValueError, match=r"request 7 needs 2 blocks.* 1"):
        step_tensors(plan, GROUPS, CPU)


def test_runs_that_miss_tokens_are_refused() -> None:
    entry = HandMadeRequest(0, [1, 2, 3, 4, 5], tables=((3, 1),), groups=GROUPS).take(5)
    plan = plan_of(replace(entry, slot_runs=(((3, 0, 4),),)))
    with pytest.raises(ValueError, match="slot_runs of group 0 "):
        step_tensors(plan, GROUPS, CPU)


WINDOW = GroupSpec(4, "sliding_window", 6)


def test_a_window_group_needs_only_the_entries_that_are_read() -> None:
    """A token at position 13 with a window of 6 reads positions 8 to 13; one at 14 reads 9 to 14: entry 2 and on."""
    request = HandMadeRequest(0, [0] * 30, tables=((9, 8, 7, 6, 5, 4, 3, 2),), groups=(WINDOW,), num_computed=13)
    chunk = request.take(2)
    assert chunk.block_tables == ((-1, 10**9, 7, 6, -1, 10**9),), "the hand-made table has garbage around"
    (group,) = step_tensors(plan_of(chunk), [WINDOW], CPU).groups
    assert group.window == 6
    assert read_entries(group, [(2, 4)]) == [[7, 6]]
    assert group.slots.tolist() == [6 * 4 + 1, 6 * 4 + 2]


def test_a_null_entry_inside_of_the_window_is_never_read_through() -> None:
    """Position 16 reads 11, which lies in the null entry; position 17 reads from 12 on."""
    request = HandMadeRequest(3, [0] * 30, tables=((9, 8, -1, 6, 5, 4, 3, 2),), groups=(WINDOW,), num_computed=16)
    too_early, fine = plan_of(request.take(1)), plan_of(request.take(1))
    with pytest.raises(ValueError, match=r"request 3 .*entry 2 .*group 0.* -1"):
        step_tensors(too_early, [WINDOW], CPU)
    assert read_entries(step_tensors(fine, [WINDOW], CPU).groups[0], [(3, 5)]) == [[6, 5]]


@pytest.mark.parametrize("is_copied", [False, True])
def test_one_staging_serves_step_after_step(is_copied: bool) -> None:
    """Rows that change hands, tables that grow, shrink or change in between: each step is what a new one would be."""
    random, staging = Random(0), StepStaging([GroupSpec(4), WINDOW], CPU, is_copied=is_copied)
    dealer = Dealer(4000, [GroupSpec(4), WINDOW])
    requests = [dealer.request(random.choices(range(100), k=random.randint(1, 120))) for _ in range(40)]
    while running := [r for r in requests if r.num_computed < len(r.token_ids)]:
        batch = random.sample(running, min(len(running), random.randint(1, 24)))
        plan = plan_of(*(request.take(random.choice((1, 1, 1, 7, 30))) for request in batch))
        step, fresh = staging.step_tensors(plan), step_tensors(plan, [GroupSpec(4), WINDOW], CPU)
        for name in ("token_ids", "positions", "query_starts", "contexts", "sample_rows"):
            assert getattr(step, name).tolist() == getattr(fresh, name).tolist(), name
        assert (step.query_lens, step.context_lens) == (fresh.query_lens, fresh.context_lens)
        for group, (ours, wanted) in enumerate(zip(step.groups, fresh.groups, strict=True)):
            assert ours.slots.tolist() == wanted.slots.tolist()
            tables = [list(request.block_tables[group]) for request in plan.scheduled]
            assert read_entries(ours, [(0, len(table)) for table in tables]) == tables


def test_a_step_is_one_copy_of_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups would be nine copies. After 40 prompts 3 decodes are sent, and not what the prompts have used."""
    groups = [GroupSpec(4), WINDOW]
    staging, dealer = StepStaging(groups, CPU, is_copied=True), Dealer(4000, groups)
    requests = [dealer.request([row] * 50) for row in range(40)]
    copied: list[int] = []
    copy = torch.Tensor.copy_

    def counted(self: torch.Tensor, source: torch.Tensor, *, non_blocking: bool) -> torch.Tensor:
        assert non_blocking
        copied.append(len(source))
        return copy(self, source)

    monkeypatch.setattr(torch.Tensor, "copy_", counted)
    staging.step_tensors(plan_of(*(request.take(40) for request in requests)))
    step = staging.step_tensors(plan_of(*(request.take(1) for request in requests[:3])))
    rows, num_groups, width = 3, *staging._memory.tables.shape[1:]
    assert len(copied) == 2 and copied[0] > 4 * 1600
    assert copied[1] == 7 * ALIGNMENT + rows * num_groups * width
    arrays = (step.token_ids, step.positions, step.contexts, *(group.slots for group in step.groups))
    start = staging._memory._on_device.data_ptr()
    assert all((array.data_ptr() - start) % (4 * ALIGNMENT) == 0 for array in arrays)


def test_an_interrupt_while_a_buffer_grows_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    staging = StepStaging(GROUPS, CPU)
    request, long = (Dealer(400, 4).request(list(range(n))) for n in (5, 900))

    def interrupted(tensor: torch.Tensor) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(torch.Tensor, "numpy", interrupted)
        staging.step_tensors(plan_of(long.take(900)))
    assert staging.step_tensors(plan_of(request.take(5))).token_ids.tolist() == [0, 1, 2, 3, 4]


def test_an_interrupt_after_tables_grew_leaves_no_row_believed_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new array holds zeros, and the next step has a row's former table: block 0 would be read."""
    staging = StepStaging(GROUPS, CPU)
    request = HandMadeRequest(0, [5] * 9, tables=((7, 8, 9),), groups=GROUPS)
    staging.step_tensors(plan_of(request.take(9)))
    allocate = StagedMemory._allocate

    def interrupted(memory: StagedMemory, *shape: int) -> None:
        allocate(memory, *shape)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StagedMemory, "_allocate", interrupted)
        staging.step_tensors(plan_of(Dealer(400, 4).request([5] * 900).take(900)))
    request.num_computed = 0
    assert read_entries(staging.step_tensors(plan_of(request.take(9))).groups[0], [(0, 3)]) == [[7, 8, 9]]


def test_an_interrupted_row_is_written_anew() -> None:
    """Ctrl-C inside of the write: the row holds the new table, and must not be taken for the old one."""

    class Interrupting(tuple[int, ...]):
        def __iter__(self) -> Iterator[int]:
            raise KeyboardInterrupt

    staging = StepStaging(GROUPS, CPU)
    first = HandMadeRequest(0, [5] * 9, tables=((1, 2, 3),), groups=GROUPS)
    staging.step_tensors(plan_of(first.take(9)))
    other = HandMadeRequest(1, [5] * 9, tables=((7, 8, 9),), groups=GROUPS).take(9)
    tables = staging._tables[0]
    with pytest.raises(KeyboardInterrupt):
        staging._memory.tables[0, 0, :3] = (7, 8, 9)
        tables._write(staging._memory, 0, Interrupting((7, 8, 9)))
    first.num_computed = 0
    assert read_entries(staging.step_tensors(plan_of(first.take(9))).groups[0], [(0, 3)]) == [[1, 2, 3]]
    assert read_entries(staging.step_tensors(plan_of(other)).groups[0], [(0, 3)]) == [[7, 8, 9]]


def test_a_step_of_the_same_shape_has_the_same_tensors_unless_someone_reshaped_them() -> None:
    """An override that changes a tensor's shape in place spoils its own step only."""
    staging = StepStaging(GROUPS, CPU)
    dealer = Dealer(100, GROUPS)
    request = dealer.request([5] * 9)
    staging.step_tensors(plan_of(request.take(6)))
    first = staging.step_tensors(plan_of(request.take(1)))
    second = staging.step_tensors(plan_of(request.take(1)))
    assert second.positions is first.positions and second.groups[0].block_tables is first.groups[0].block_tables
    second.positions.unsqueeze_(0)
    second.groups[0].block_tables.squeeze_()
    third = staging.step_tensors(plan_of(request.take(1)))
    assert third.positions.tolist() == [8] and third.groups[0].block_tables.dim() == 2


def numbers_of(step: StepTensors) -> list[list[int]]:
    """What a step holds, but for tables."""
    arrays = (step.token_ids, step.positions, step.query_starts, step.contexts, step.sample_rows)
    return [array.tolist() for array in (*arrays, *(group.slots for group in step.groups))]


def test_a_step_is_not_written_while_the_one_before_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is ahead of the device: a copy begins only when it is waited for, and reads what it was queued for."""
    gpu, dealer = LateGpu(monkeypatch), Dealer(4000, GROUPS)
    staging, requests = StepStaging(GROUPS, CUDA), [dealer.request(list(range(900))) for _ in range(5)]
    steps: list[tuple[StepTensors, list[list[int]]]] = []
    for number, num_tokens in ((2, 3), (5, 1), (3, 2), (5, 800), (5, 1)):  # the last but one makes the memory grow
        plan = plan_of(*(request.take(num_tokens) for request in requests[:number]))
        step = staging.step_tensors(plan)
        assert all(numbers_of(before) == expected for before, expected in steps[-1:])
        steps.append((step, numbers_of(step_tensors(plan, GROUPS, CPU))))
    gpu.finish()
    assert numbers_of(step) == steps[-1][1]


def test_an_interrupted_step_has_its_copy_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the copy: the next step must not write to memory that is being read."""
    gpu, staging = LateGpu(monkeypatch), StepStaging(GROUPS, CUDA)
    request = Dealer(40, GROUPS).request([5, 6, 7, 8])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StagedMemory, "table", interrupted)
        staging.step_tensors(plan_of(request.take(1)))
    ((on_device, source),) = gpu.queue
    sent = source.tolist()
    staging.step_tensors(plan_of(request.take(1)))
    assert on_device.tolist() == sent
