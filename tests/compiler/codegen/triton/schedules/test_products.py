"""Matrix products: how a program finds its tile, loads its operands, and what follows the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.triton.schedules.products import TILE_OF
from nbcompile.compiler.fuse import matmul_fusion as fusion
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.fuse.matmul_fusion import Precision
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.products import _with
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.stages import Config
from nbcompile.options import Options
from tests.compiler.codegen.triton.schedules.printing import chosen, functions, lines
from tests.compiler.codegen.triton_running import aten_of_fake
from tests.compiler.schedule.cut import BF16, CHIP, empty

TUNED = Options(mode="max-autotune", target="cuda:90", cache=False)
TILE = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8}
RELU = lambda x, w: (x @ w).relu()
LINEAR = lambda x, w, b: F.linear(x, w, b).relu()


def halves(*shape: int) -> Callable[[], torch.Tensor]:
    return empty(*shape, dtype=BF16)


def product(
    fn: Callable[..., Any], *inputs: Any, precision: Precision = "ieee", **more: int
) -> PrintedKernel:
    """The product of a function with what follows it, in tiles of 32; persistent if it has more constants."""
    graph = aten_of_fake(fn, lambda: tuple(make() for make in inputs))
    program = loops_to_groups(aten_to_loops(graph, TUNED), TUNED)
    (found,) = fusion.candidates(program, TUNED, precision)[0]
    template = "persistent" if more else "tiles"
    group = _with(found.group, template, (Config(TILE | more, 4, 3),))
    return chosen(Work.of(group, program.program.buffers(), CHIP))


def persistent(fn: Callable[..., Any], *inputs: Any) -> PrintedKernel:
    return product(fn, *inputs, FLATTEN=1, WARP_SPECIALIZE=0, PROGRAMS=2)


def test_a_program_multiplies_block_by_block_and_goes_on_with_the_sum() -> None:
    made = product(LINEAR, halves(64, 96), halves(128, 96), halves(128))
    assert made.launches[0].grid == ("cdiv(64, BLOCK_M) * cdiv(128, BLOCK_N)",)
    assert functions(made)[0] == [
        "rows, columns = tl.cdiv(64, BLOCK_M), tl.cdiv(128, BLOCK_N)",
        "tile_m, tile_n = tile_of(tl.program_id(0), rows, columns, GROUP_M)",
        "row, column = tile_m * BLOCK_M, tile_n * BLOCK_N",
        "m = row + tl.arange(0, BLOCK_M)[:, None]",
        "n = column + tl.arange(0, BLOCK_N)[None, :]",
        "acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)",
        "for start in range(0, 96, BLOCK_K):",
        "ka = start + tl.arange(0, BLOCK_K)[None, :]",
        "a = tl.load(x_ptr + ka + m*96)",
        "kb = start + tl.arange(0, BLOCK_K)[:, None]",
        "b = tl.load(w_ptr + kb + n*96)",
        "acc = tl.dot(a, b, acc)",
        "b_2 = tl.load(b_ptr + n).to(tl.float32)",
        "addmm = (acc + b_2).to(tl.bfloat16).to(tl.float32)",  # rounded as the product alone would be
        "tl.store(relu_ptr + m*128 + n, maximum_nan(addmm, tl.full((), 0.0, tl.float32)))",
    ]


def test_what_lies_outside_of_an_operand_is_zero_and_outside_of_the_result_is_not_stored() -> None:
    made = product(RELU, halves(64, 90), halves(90, 130))
    assert lines(made, "a =") == ["a = tl.load(x_ptr + ka + m*90, mask=ka_in, other=0.0)"]
    assert lines(made, "b =") == ["b = tl.load(w_ptr + kb*130 + n, mask=kb_in & n_in, other=0.0)"]
    assert lines(made, "kb_in =") == ["kb_in = kb < 90"]
    assert lines(made, "tl.store")[0].endswith("mask=n_in)")


def test_the_products_of_a_batch_lie_along_the_grids_second_axis() -> None:
    made = product(lambda x, w: torch.bmm(x, w) * 3, halves(3, 64, 96), halves(3, 96, 128))
    assert made.launches[0].grid == ("cdiv(64, BLOCK_M) * cdiv(128, BLOCK_N)", "3")
    assert functions(made)[0][0] == "i = tl.program_id(1)"
    assert lines(made, "a =") == ["a = tl.load(x_ptr + i*6144 + ka + m*96)"]


@pytest.mark.parametrize("precision", ["ieee", "tf32"])
def test_float32_is_multiplied_as_it_is_told(precision: Precision) -> None:
    made = product(RELU, empty(64, 96), empty(96, 128), precision=precision)
    assert lines(made, "acc = tl.dot") == [f'acc = tl.dot(a, b, acc, input_precision="{precision}")']


def test_neighbouring_programs_go_down_a_group_of_rows_then_to_the_next_column() -> None:
    names: dict[str, Any] = {"tl": type("tl", (), {"minimum": min, "constexpr": int})}
    exec(TILE_OF.removeprefix("@triton.jit\n"), names)
    found = [names["tile_of"](number, 5, 2, 3) for number in range(10)]
    assert found[:7] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0)]
    assert sorted(found) == [(row, column) for row in range(5) for column in range(2)]  # each once


def test_a_persistent_program_makes_tile_after_tile_of_operands_that_come_by_descriptor() -> None:
    made = persistent(LINEAR, halves(70, 96), halves(120, 96), halves(120))
    assert made.launches[0].grid == ("min(cdiv(70, BLOCK_M) * cdiv(120, BLOCK_N), 132 * PROGRAMS)",)
    body = functions(made)[0]
    assert body[:2] == [
        "x_tiles = tl.make_tensor_descriptor(x_ptr, [70, 96], [96, 1], [BLOCK_M, BLOCK_K])",
        "w_tiles = tl.make_tensor_descriptor(w_ptr, [120, 96], [96, 1], [BLOCK_N, BLOCK_K])",
    ]
    (walk,) = lines(made, "for tile")
    assert walk.startswith("for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0),")
    assert lines(made, "a =") == ["a = x_tiles.load([row, start])"]
    assert lines(made, "b =") == ["b = w_tiles.load([column, start]).T"]
    assert body[-1].endswith("mask=m_in & n_in)")  # a descriptor knows the ends of its operand itself
    (call,) = made.calls
    kinds = {item.name: item.kind for item in call.parameters}
    assert kinds == {"x_ptr": "aligned", "w_ptr": "aligned", "b_ptr": "buffer", "relu_ptr": "buffer"}


def test_a_descriptor_follows_memory_and_starts_where_the_operand_does() -> None:
    made = persistent(lambda x, w: (x.t() @ w[8:]).relu(), halves(96, 64), halves(104, 128))
    assert functions(made)[0][:2] == [
        "x_tiles = tl.make_tensor_descriptor(x_ptr, [96, 64], [64, 1], [BLOCK_K, BLOCK_M])",
        "w_tiles = tl.make_tensor_descriptor(w_ptr + 1024, [96, 128], [128, 1], [BLOCK_K, BLOCK_N])",
    ]
    assert lines(made, "a =") == ["a = x_tiles.load([start, row]).T"]
    assert lines(made, "b =") == ["b = w_tiles.load([start, column])"]


def test_of_over_two_billion_results_places_are_counted_in_64_bits() -> None:
    made = product(LINEAR, halves(65_536, 96), halves(65_536, 96), halves(65_536))
    assert lines(made, "m =") == ["m = row.to(tl.int64) + tl.arange(0, BLOCK_M).to(tl.int64)[:, None]"]
