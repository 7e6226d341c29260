"""Matrix products of the native kernels against float64, and against the torch modules whose work their finishes do."""

from __future__ import annotations

import ctypes
import itertools
import math
import subprocess
from ctypes import byref, c_int64, c_void_p
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from labengine.engine.mapped_memory import MappedMemory
from labengine.engine.native.compile import FLAGS, SOURCES, find_compilers
from labengine.engine.native.instruction_set import INSTRUCTION_SETS, InstructionSet, instruction_set_name
from labengine.engine.native.layout import Finish, Op, OpKind, Step, program_of
from labengine.engine.native.library import SUFFIXES, aligned_empty, packed, packed_pieces, team, unpacked
from labengine.engine.weights import PIECE_ROWS

FLOAT, BF16 = torch.float32, torch.bfloat16
GATED = (Finish.SILU_MUL, Finish.GELU_MUL)
DTYPES = pytest.mark.parametrize("dtype", [FLOAT, BF16], ids=["float32", "bf16"])
FINISHES = pytest.mark.parametrize("finish", list(Finish))
SHAPES = [(1, 1), (2, 3), (16, 8), (30, 31), (32, 576), (66, 33), (130, 64), (960, 577)]
GUARD = 24


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class UsedMemory(MappedMemory):
    """Memory that is not zeros."""

    def take(self, num_elements: int, dtype: torch.dtype) -> Tensor:
        return super().take(num_elements, dtype).fill_(torch.nan)


class Product:
    """One linear op over tensors. All memory around what it may read is NaN; what it may not write is checked."""

    def __init__(
        self, rows: Tensor, weight: Tensor, finish: Finish = Finish.PLAIN, other: Tensor | None = None
    ) -> None:
        (self.n, self.k), self.dtype = weight.shape, weight.dtype
        self.width = self.n // 2 if finish in GATED else self.n
        self.rows, self.finish = rows, finish
        self._in = fenced(rows)
        self._other = fenced(other) if other is not None else None
        out_dtype = FLOAT if finish == Finish.TO_FLOAT else self.dtype
        self._out = torch.full((rows.shape[0] * self.width + 2 * GUARD,), torch.nan, dtype=out_dtype)
        self._weight = packed(weight, UsedMemory(), is_gated=finish in GATED)

    def by_team(self, num_threads: int = 1, num_sampling: int | None = None) -> Tensor:
        """[rows, width], by the kernels of this machine."""
        op = self._op(self._weight)
        op.is_sampling = num_sampling is not None
        members, ops, step = team(num_threads), program_of([op]), self._step(num_sampling or 0)
        scratch = aligned_empty(members.scratch_bytes(ops, step), torch.uint8)
        step.scratch = scratch.data_ptr()
        members.run(self.dtype, ops, step)
        return self._result()

    def by_library(self, library: ctypes.CDLL) -> Tensor:
        """The same by linear_alone.c, packing included."""
        suffix = SUFFIXES[self.dtype]
        weight = repacked(library, unpacked(self._weight, self.n, self.k, is_gated=self.finish in GATED), self.finish)
        start = weight.data_ptr() + -weight.data_ptr() % 64
        step, scratch = self._step(0), aligned_empty(library.widened(c_int64(self.k)), torch.uint8)
        step.scratch = scratch.data_ptr()
        getattr(library, f"run_alone_{suffix}")(byref(self._op_at(start)), byref(step))
        return self._result()

    def in_place(self) -> Tensor:
        """The sum overwrites the addend."""
        assert self._other is not None
        self._out = self._other
        return self.by_team()

    def _op(self, weight: Tensor) -> Op:
        return self._op_at(weight.data_ptr())

    def _op_at(self, weight: int) -> Op:
        return Op(kind=OpKind.LINEAR, finish=self.finish, in_=0, other=1, out=2, n=self.n, k=self.k, weight=weight)

    def _step(self, num_sampling: int) -> Step:
        step = Step(num_tokens=self.rows.shape[0], num_sampling=num_sampling)
        for number, memory in enumerate((self._in, self._other, self._out)):
            if memory is not None:
                step.buffers[number] = memory[GUARD:].data_ptr()
        return step

    def _result(self) -> Tensor:
        for guard in (self._out[:GUARD], self._out[-GUARD:]):
            assert guard.isnan().all(), "written where nothing was to be"
        return self._out[GUARD:-GUARD].view(-1, self.width)


def fenced(tensor: Tensor) -> Tensor:
    fence = torch.full((GUARD,), torch.nan, dtype=tensor.dtype)
    return torch.cat([fence, tensor.flatten(), fence])


def repacked(library: ctypes.CDLL, weight: Tensor, finish: Finish) -> Tensor:
    """Packed by a library with vectors of its own width; aligned by whom it may concern."""
    suffix, (n, k) = SUFFIXES[weight.dtype], weight.shape
    size = getattr(library, f"packed_size_{suffix}")(c_int64(n), c_int64(k))
    memory = torch.full((size + 64 // weight.itemsize,), torch.nan, dtype=weight.dtype)
    start = memory.data_ptr() + -memory.data_ptr() % 64
    pack = getattr(library, f"pack_{suffix}")
    pack(c_void_p(weight.data_ptr()), c_void_p(start), c_int64(n), c_int64(k), finish in GATED)
    return memory


def random_product(dtype: torch.dtype, num_rows: int, n: int, k: int, finish: Finish = Finish.PLAIN) -> Product:
    n += n % 2 if finish in GATED else 0
    width = n // 2 if finish in GATED else n
    weight = (torch.randn(n, k) / math.sqrt(k)).to(dtype)
    return Product(torch.randn(num_rows, k).to(dtype), weight, finish, torch.randn(num_rows, width).to(dtype))


def expected(product: Product, *, is_rounded: bool = True) -> Tensor:
    """In float64, rounded to the dtype wherever a chain of torch modules would."""

    def rounded(x: Tensor) -> Tensor:
        return x.to(product.dtype).double() if is_rounded else x

    weight = unpacked(product._weight, product.n, product.k, is_gated=product.finish in GATED)
    sums = product.rows.double() @ weight.double().T
    if product.finish == Finish.ADD:
        assert product._other is not None
        return rounded(product._other[GUARD:-GUARD].view(-1, product.width).double() + rounded(sums))
    if product.finish in GATED:
        gate, up = rounded(sums).chunk(2, dim=-1)
        act = silu(gate) if product.finish == Finish.SILU_MUL else gelu(gate, approximate="tanh")
        return rounded(rounded(act) * up)
    return sums if product.finish == Finish.TO_FLOAT else rounded(sums)


def assert_near(ours: Tensor, wanted: Tensor, dtype: torch.dtype) -> None:
    """float32 to its own precision. bf16: its neighbour now and then, where the float32 sums fall beside a border."""
    if ours.dtype == FLOAT:
        torch.testing.assert_close(ours.double(), wanted, rtol=1e-5, atol=1e-5)
        return
    torch.testing.assert_close(ours.double(), wanted, rtol=2**-6, atol=2**-7)
    assert (ours.double() == wanted).float().mean() > 0.98


# -- products ----------------------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_products(dtype: torch.dtype, n: int, k: int) -> None:
    for num_rows in (*range(1, 14), 25, 40):
        product = random_product(dtype, num_rows, n, k)
        assert_near(product.by_team(), expected(product), dtype)


@DTYPES
@FINISHES
def test_finishes(dtype: torch.dtype, finish: Finish) -> None:
    for num_rows, (n, k) in itertools.product((1, 4, 14), SHAPES):
        product = random_product(dtype, num_rows, n, k, finish)
        assert_near(product.by_team(), expected(product), dtype)


@DTYPES
def test_more_rows_than_a_block(dtype: torch.dtype) -> None:
    product = random_product(dtype, 1000, 70, 640)
    assert_near(product.by_team(num_threads=2), expected(product), dtype)


@DTYPES
def test_rows_wider_than_a_block(dtype: torch.dtype) -> None:
    """Not even a tile's rows fit; sums are long."""
    product = random_product(dtype, 15, 33, 40_000)
    assert_near(product.by_team(), expected(product), dtype)


@DTYPES
def test_a_sum_takes_the_place_of_its_summand(dtype: torch.dtype) -> None:
    product = random_product(dtype, 13, 70, 64, Finish.ADD)
    wanted = expected(product)
    assert_near(product.in_place(), wanted, dtype)


def test_floats_are_not_rounded() -> None:
    product = random_product(BF16, 5, 40, 100, Finish.TO_FLOAT)
    ours = product.by_team()
    assert ours.dtype == FLOAT and not torch.equal(ours, ours.bfloat16().float())


@DTYPES
def test_sampling_rows_alone(dtype: torch.dtype) -> None:
    product = random_product(dtype, 9, 40, 24)
    ours = product.by_team(num_sampling=4)
    assert_near(ours[:4], expected(product)[:4], dtype)
    assert ours[4:].isnan().all(), "the others were not asked for"
    assert product.by_team(num_sampling=0)[4:].isnan().all()


# -- what must not matter ----------------------------------------------------------------------------------------------


@DTYPES
@FINISHES
def test_a_row_is_the_same_in_any_company(dtype: torch.dtype, finish: Finish) -> None:
    """To the bit: what a request gets does not depend on the step's other requests."""
    together = random_product(dtype, 40, 66, 101, finish)
    weight = unpacked(together._weight, together.n, together.k, is_gated=finish in GATED)
    assert together._other is not None
    other = together._other[GUARD:-GUARD].view(40, -1)
    results = together.by_team()
    for row in range(0, 40, 3):
        alone = Product(together.rows[row : row + 1], weight, finish, other[row : row + 1])
        assert torch.equal(alone.by_team()[0], results[row])


@DTYPES
@pytest.mark.parametrize("num_rows", [1, 16, 200])
def test_threads_change_no_bit(dtype: torch.dtype, num_rows: int) -> None:
    product = random_product(dtype, num_rows, 330, 50)
    one = product.by_team(1).clone()
    for num_threads in (2, 3, 8):
        assert torch.equal(product.by_team(num_threads), one)


@DTYPES
@FINISHES
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_poisoned_row_stays_alone_and_is_seen(dtype: torch.dtype, finish: Finish, bad: float) -> None:
    product = random_product(dtype, 14, 34, 9, finish)
    clean = product.by_team().clone()
    product._in[GUARD + 5 * 9 + 3] = bad
    ours = product.by_team()
    assert torch.equal(ours[:5], clean[:5]) and torch.equal(ours[6:], clean[6:])
    assert not ours[5].isfinite().all()
    assert not math.isnan(bad) or ours[5].isnan().all()


@pytest.mark.parametrize("finish", GATED)
def test_gates_far_from_zero(finish: Finish) -> None:
    """Wide open the gate multiplies by itself, shut by 0; in between nothing breaks."""
    gates = torch.tensor([-1e30, -1000.0, -100, -88, -87, -20, -1e-30, 0, 1e-30, 20, 87, 88, 100, 1000, 1e30])
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    product = Product(torch.stack([gates, torch.ones_like(gates)], dim=1), weight, finish)
    torch.testing.assert_close(product.by_team()[:, 0].double(), expected(product)[:, 0], rtol=1e-6, atol=1e-30)


# -- packing -----------------------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (30, 7), (32, 16), (98, 33), (576, 64)])
def test_unpacking_gives_every_bit_back(dtype: torch.dtype, is_gated: bool, n: int, k: int) -> None:
    bits = torch.randint(-(2**15), 2**15, (n, k * dtype.itemsize // 2), dtype=torch.int16)
    weight = bits.view(dtype)  # NaNs with all kinds of payloads among them
    again = unpacked(packed(weight, is_gated=is_gated), n, k, is_gated=is_gated)
    assert torch.equal(again.view(torch.int16), bits)


@DTYPES
@pytest.mark.parametrize(("n", "k"), [(34, 9), (64, 9), (34, 16), (64, 16)])
def test_nothing_is_packed_but_the_weight_and_zeros(n: int, k: int, dtype: torch.dtype) -> None:
    weight = torch.arange(1, n * k + 1).view(n, k).remainder(251).add(1).to(dtype)
    result = packed(weight, UsedMemory())
    assert result.data_ptr() % 64 == 0
    assert torch.equal(result[result != 0].sort().values, weight.flatten().sort().values)


@DTYPES
@pytest.mark.parametrize("n", [65, 128, 200])
def test_packing_in_pieces_changes_no_bit(n: int, dtype: torch.dtype) -> None:
    weight = torch.randn(n, 19).to(dtype)
    pieces = weight.split(PIECE_ROWS)
    assert len(pieces) > 1
    assert torch.equal(packed_pieces(pieces, weight.shape, dtype, UsedMemory()), packed(weight))


# -- other processors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("isa", "num_lanes"), [*zip(INSTRUCTION_SETS, (4, 8, 16, 16, 4, 4), strict=True)])
def test_processors_that_know_less(isa: str, num_lanes: int, tmp_path: Path) -> None:
    """Without instructions for bf16, with narrower vectors and fewer registers.

    float32 has the same bits with every set that adds a product without rounding it.
    """
    library = compiled_for(INSTRUCTION_SETS[isa], tmp_path)
    assert library.lanes() == num_lanes
    for dtype in (FLOAT, BF16):
        for finish in Finish:
            for num_rows, (n, k) in zip((1, 2, 3, 4, 6, 12, 13, 40), SHAPES, strict=True):
                product = random_product(dtype, num_rows, n, k, finish)
                together = product.by_library(library).clone()
                assert_near(together, expected(product), dtype)
                if dtype == FLOAT and finish == Finish.PLAIN and are_fused(isa, instruction_set_name()):
                    assert torch.equal(product.by_team(), together)
    for num_rows in (1, 5, 1000):
        product = random_product(BF16, 1000, 70, 641)
        rows, weight = product.rows[:num_rows], unpacked(product._weight, 70, 641)
        assert torch.equal(Product(rows, weight).by_library(library), product.by_library(library)[:num_rows])


def are_fused(*sets: str) -> bool:
    return "x86-64-v2" not in sets


def compiled_for(isa: InstructionSet, folder: Path) -> ctypes.CDLL:
    if lacking := isa.lacking():
        pytest.skip(f"this processor lacks {', '.join(lacking)}")
    built = folder / "alone.so"
    flags = [*FLAGS, *isa.flags, "-Wall", "-Wno-psabi", "-Wno-unused-function", "-Werror", f"-I{SOURCES}"]
    source = Path(__file__).with_name("linear_alone.c")
    subprocess.run([*find_compilers()[0], *flags, str(source), "-o", str(built), "-lm"], check=True)
    library = ctypes.CDLL(str(built))
    library.widened.restype = c_int64
    for suffix in SUFFIXES.values():
        getattr(library, f"packed_size_{suffix}").restype = c_int64
    return library
