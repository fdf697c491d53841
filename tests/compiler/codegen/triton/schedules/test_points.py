"""Points: how the place of a program becomes the places of its lanes, in runs, squares, bands and lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nbcompile.compiler.loop_ir.index import Axis, Size, index
from nbcompile.compiler.stages import Config
from tests.compiler.codegen.c.by_hand import buffer, group, loop, read
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.schedules.printing import chosen, functions, kernel, lines, nest, printed
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip
from tests.compiler.schedule.cut import cut, cut_all, empty, work_by_hand, work_of

SCALED = lambda x, a, b: (x * a + b, a * 2)  # of which the second is the same in all rows
PLANES = (empty(8, 8, 512, 128), empty(8, 8, 1, 128), empty(8, 8, 1, 128))
TURNED = lambda x: x.transpose(1, 2).contiguous() + 1
BY_ROW = lambda x, w: x * w.exp()[:, None].sin()


def test_a_run_of_points() -> None:
    made = kernel(lambda x: x * 2, empty(1000))
    assert made.text.splitlines() == [
        "# a comment",
        "@triton.jit",
        "def k0_mul(x_ptr, mul_ptr, XBLOCK: tl.constexpr):",
        "    start = tl.program_id(0) * XBLOCK",
        "    i = start + tl.arange(0, XBLOCK)",
        "    i_in = i < 1000",
        "    x = tl.load(x_ptr + i, mask=i_in)",
        "    tl.store(mul_ptr + i, x * 2.0, mask=i_in)",
    ]
    (launch,) = made.launches
    assert launch.grid == ("cdiv(1000, XBLOCK)",) and made.writes == ("mul",)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_one_number_is_a_program_without_lanes(shape: tuple[int, ...]) -> None:
    made = kernel(lambda x: x * 2, empty(*shape))
    assert functions(made) == [["x = tl.load(x_ptr + 0)", "tl.store(mul_ptr + 0, x * 2.0)"]]
    (launch,) = made.launches
    assert (launch.grid, launch.configs) == (("1",), (Config({}, 1),))


def test_a_size_that_is_known_later_is_asked_in_the_grid_and_in_the_mask() -> None:
    size = index(Size("n", 4096))
    axis, x = Axis("i", size), buffer("x", size)  # type: ignore[arg-type]
    out = buffer("copy", size)  # type: ignore[arg-type]
    made = chosen(work_by_hand(group(loop(out, (axis,), read(x, axis)), axes=(axis,)), x))
    assert made.launches[0].grid == ("cdiv(n, XBLOCK)",) and "i_in = i < n" in lines(made)


def test_a_square_has_a_place_along_each_of_the_grids_axes() -> None:
    made = kernel(lambda x: x.t().contiguous() + 1, empty(4096, 2000))
    assert made.launches[0].grid == ("cdiv(2000, YBLOCK)", "cdiv(4096, XBLOCK)")
    assert functions(made)[0] == [
        "i = tl.program_id(0) * YBLOCK + tl.arange(0, YBLOCK)[:, None]",
        "i_in = i < 2000",
        "start = tl.program_id(1) * XBLOCK",
        "j = start + tl.arange(0, XBLOCK)[None, :]",  # no mask: all blocks divide 4096
        "clone = tl.load(x_ptr + i + j*2000, mask=i_in)",
        "tl.store(add_ptr + i*4096 + j, clone + 1.0, mask=i_in)",
    ]


def test_squares_of_each_plane_are_by_themselves() -> None:
    made = kernel(TURNED, empty(3, 4096, 2000))
    assert made.launches[0].grid == ("3 * cdiv(2000, YBLOCK) * cdiv(4096, XBLOCK)",)
    assert functions(made)[0] == [
        "i = tl.program_id(0) // tl.cdiv(4096, XBLOCK) // tl.cdiv(2000, YBLOCK)",
        "j = tl.program_id(0) // tl.cdiv(4096, XBLOCK) % tl.cdiv(2000, YBLOCK) * YBLOCK"
        " + tl.arange(0, YBLOCK)[:, None]",
        "j_in = j < 2000",
        "start = tl.program_id(0) % tl.cdiv(4096, XBLOCK) * XBLOCK",
        "k = start + tl.arange(0, XBLOCK)[None, :]",
        "clone = tl.load(x_ptr + i*8192000 + j + k*2000, mask=j_in)",
        "tl.store(add_ptr + i*8192000 + j*4096 + k, clone + 1.0, mask=j_in)",
    ]


def test_bands_side_by_side_are_neighbouring_programs_and_planes_come_last() -> None:
    made = kernel(SCALED, *PLANES)
    assert made.launches[0].grid == ("64 * cdiv(512, YBLOCK) * cdiv(128, XBLOCK)",)
    assert functions(made)[0][:3] == [
        "i = tl.program_id(0) // tl.cdiv(128, XBLOCK) // tl.cdiv(512, YBLOCK)",
        "j = tl.program_id(0) // tl.cdiv(128, XBLOCK) % tl.cdiv(512, YBLOCK) * YBLOCK"
        " + tl.arange(0, YBLOCK)[:, None]",
        "start = tl.program_id(0) % tl.cdiv(128, XBLOCK) * XBLOCK",
    ]


def test_what_does_not_vary_from_row_to_row_is_loaded_once_and_stored_by_the_first_band() -> None:
    made = kernel(SCALED, *PLANES)
    assert lines(made, "a =") == ["a = tl.load(a_ptr + i*128 + k)"]
    (every, first) = lines(made, "tl.store")
    band = "tl.program_id(0) // tl.cdiv(128, XBLOCK) % tl.cdiv(512, YBLOCK)"
    assert "mask" not in every and first == f"tl.store(mul_1_ptr + i*128 + k, a * 2.0, mask=({band} == 0))"


@pytest.mark.parametrize(("length", "fn", "mask"), [
    (4096, lambda x, b: (x.t().contiguous() + b, b * 2), "(tl.program_id(0) == 0)"),
    (2048, lambda x, b: (x.t().contiguous() + b[:, None], b * 2), "(tl.program_id(1) == 0)"),
], ids=["across", "down"])  # fmt: skip
def test_of_squares_the_first_one_along_an_axis_stores_what_does_not_vary_along_it(
    length: int, fn: Callable[..., Any], mask: str
) -> None:
    assert lines(kernel(fn, empty(4096, 2048), empty(length)), "tl.store(mul")[0].endswith(f", mask={mask})")


def test_parts_of_a_row_are_neighbouring_programs_and_its_own_value_is_one_number() -> None:
    made = kernel(BY_ROW, empty(8192, 4096), empty(8192))
    assert made.launches[0].grid == ("8192 * cdiv(4096, RBLOCK)",)
    assert functions(made)[0][:2] == [
        "i = tl.program_id(0) // tl.cdiv(4096, RBLOCK)",
        "start = tl.program_id(0) % tl.cdiv(4096, RBLOCK) * RBLOCK",
    ]
    assert lines(made, "w =") == ["w = tl.load(w_ptr + i)"]  # of i no lanes, so it is made once a program


def test_a_part_that_is_longer_than_the_row_is_cut() -> None:
    program = BY_ROW, empty(8192, 4096), empty(8192)
    schedule = replace(cut(*program), configs=(Config({"RBLOCK": 8192}, 4),))
    made = printed(work_of(*program), schedule)
    assert lines(made, "x =") == ["x = tl.load(x_ptr + i*4096 + j, mask=j_in)"]


def test_random_numbers_are_told_where_bands_of_whole_fours_start() -> None:
    ((work, schedule),) = cut_all(SCALED, *PLANES)
    printer, _, _ = nest(work, schedule).head()
    band = "tl.program_id(0) // tl.cdiv(128, XBLOCK) % tl.cdiv(512, YBLOCK)"
    assert printer.starts == {"YBLOCK": f"({band} * YBLOCK)"}
    twos = (*schedule.configs, Config({"YBLOCK": 2, "XBLOCK": 128}, 1))
    printer, _, _ = nest(work, replace(schedule, configs=twos)).head()
    assert printer.starts == {}


def test_parts_are_told_by_the_first_point_and_what_is_done_with_all_is_done_in_each() -> None:
    def scaled(x, y, z, scale):
        return torch.cat([x.tanh(), y.sigmoid(), z], -1) * scale

    made = kernel(scaled, *(empty(4096, 512) for _ in range(3)), empty(1))
    assert functions(made)[0] == [
        "i = tl.program_id(0) // tl.cdiv(1536, RBLOCK)",
        "start = tl.program_id(0) % tl.cdiv(1536, RBLOCK) * RBLOCK",
        "j = start + tl.arange(0, RBLOCK)",
        "if (start < 512):",
        "x = tl.load(x_ptr + i*512 + j)",
        "tanh = libdevice.tanh(x)",
        "scale = tl.load(scale_ptr + 0)",
        "tl.store(mul_ptr + i*1536 + j, tanh * scale)",
        "else:",
        "if (start >= 512) & (start < 1024):",
        "y = tl.load(y_ptr + i*512 + j - 512)",
        "sigmoid_ = sigmoid(y)",
        "scale_2 = tl.load(scale_ptr + 0)",
        "tl.store(mul_ptr + i*1536 + j, sigmoid_ * scale_2)",
        "else:",
        "z = tl.load(z_ptr + i*512 + j - 1024)",
        "scale_3 = tl.load(scale_ptr + 0)",
        "tl.store(mul_ptr + i*1536 + j, z * scale_3)",
    ]


JOINED = {
    "nested": lambda a, b, c: torch.cat([a.tanh(), torch.cat([b.sigmoid() * 2, c], -1) + 1, b], -1) * 3,
    "two of one kind": lambda a, b, c: torch.cat([a.exp(), b], -1) + torch.cat([b, c.sin()], -1),
    "rows": lambda a, b, c: torch.cat([a.exp(), b.sin(), c], 0) * 2,
    "padded": lambda a, b, c: F.pad(a.tanh() * b, (256, 512)) - 1,
    "gathered": lambda a, b, c: torch.cat([a.exp(), b[(c[:, 0].abs() * 9).long() % 9]], -1),
}


@pytest.mark.parametrize("name", JOINED)
def test_numbers_of_what_is_joined(name: str) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(9, 256) for _ in range(3)]
    graph = aten_of(JOINED[name], *inputs)
    with small_chip(1):
        _, source = generated(graph)
    assert any(item.schedule == "pointwise, part by part" for item in source.kernels)
    (got,) = run_interpreted(source, graph, inputs)
    torch.testing.assert_close(got, JOINED[name](*inputs))


MANY = (7, 1, 12, 3, 9, 5)


def many(*parts: torch.Tensor) -> tuple[torch.Tensor, ...]:
    joined = torch.cat([parts[0] * 2, *parts[1:]], 1)
    return joined.relu(), joined > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_of_many_parts_a_program_passes_over_those_without_a_point(dtype: torch.dtype) -> None:
    """Blocks of 256 points over parts of 50 to 600, of rows of 1,850."""
    inputs = [torch.randint(-4, 5, (3, channels, 5, 10)).to(dtype) for channels in MANY]
    graph = aten_of(many, *inputs)
    with small_chip(POINTS_BLOCK=256):
        _, source = generated(graph)
    text = source.kernels[0].text
    assert "    if (start + RBLOCK > 350) & (start < 400):\n" in text
    assert "    if (start + RBLOCK > 1600):\n" in text
    linked = dict(source.kernels[0].lines)
    computing = [n for n, line in enumerate(text.splitlines(), 1) if "part" in line and " = " in line]
    assert len(computing) == 1 + len(MANY) and all(linked.get(line) for line in computing)
    for candidate in range(len(source.launches[0].configs)):
        got = run_interpreted(source, graph, inputs, candidate=candidate)
        torch.testing.assert_close(got, list(many(*inputs)))
