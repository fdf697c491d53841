"""Random numbers of neighbours: whether a tile's come four to a Philox block."""

from __future__ import annotations

from dataclasses import replace

import torch

from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.random_blocks import Blocks, blocks_of_four, word_bound
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.index import ZERO, Axis, IndexExpr, index
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.text import canonical
from tests.compiler.codegen.triton_running import H100, aten_of_fake, generated, run_interpreted

ROW, J = Axis("i", 8), Axis("j", 12)


def value(kind: str, place: IndexExpr = ZERO, **more) -> Value:
    return Value(0, kind, torch.float32, place=place, axes=frozenset(place.axes()), **more)


def drawn(place: IndexExpr) -> Value:
    """A random number of the element at ``place``."""
    args = value("load"), value("index", place)
    return Value(1, "op", torch.float32, args=args, op="philox_uniform", axes=frozenset(place.axes()))


def found(place: IndexExpr, *dims: Dim, start: str = "", starts=()) -> Blocks | None:
    return blocks_of_four(drawn(place), dims, start, dict(starts))


def test_rows_of_a_multiple_of_four_are_blocks() -> None:
    tile = Dim((J,), "j", "XBLOCK", 0)
    blocks = found(index(ROW) * 12 + J, tile, start="start")
    assert blocks is not None and blocks.base == index(ROW) * 3
    assert (blocks.dim, blocks.start, blocks.down) == (tile, "start", False)


def test_numbers_that_are_not_side_by_side_are_drawn_singly() -> None:
    assert found(index(ROW) * 12 + index(J) * 2, Dim((J,), "j", "XBLOCK", 0)) is None
    assert found(index(ROW) * 13 + J, Dim((J,), "j", "XBLOCK", 0)) is None  # a row starts within a block


def test_numbers_may_be_counted_down_the_tile() -> None:
    down, across = Dim((J,), "j", "YBLOCK", 0), Dim((ROW,), "i", "XBLOCK", 1)
    place = index(ROW) * 12 + J
    assert found(place, down, across) is None  # nobody knows where the first dimension starts
    blocks = found(place, down, across, starts={"YBLOCK": "begin"})
    assert blocks is not None and blocks.down and blocks.start == "begin"


def test_what_is_below_a_constant_is_decided_on_the_word() -> None:
    assert word_bound(value("const", literal=0.5)) == 1 << 31
    assert word_bound(value("const", literal=0.0)) is None and word_bound(value("const", literal=1.0)) is None
    assert word_bound(value("const", literal=float("nan"))) is None and word_bound(value("load")) is None


def test_equal_layers_have_equal_kernels_and_draw_numbers_of_their_own() -> None:
    def layers(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        drawn = []
        for _ in range(3):
            x = torch.mm(x, weight)
            x = torch.where(torch.rand_like(x) < 0.5, x * 2, 0)
            drawn.append(x)
        return drawn

    x, weight = torch.ones(6, 8), torch.eye(8)
    aten = aten_of_fake(layers, lambda: (torch.ones(6, 8), torch.eye(8)))
    _, source = generated(aten, replace(H100, random="philox"))
    launches = source.launches
    keys = {tuple(canonical(source.source, launch)) for launch in launches}
    assert len(launches) == 3 and len(keys) == 1
    assert len({triton_build.assumptions(launch) for launch in launches}) == 1
    first, second, third = run_interpreted(source, aten, [x, weight])
    kept = [first != 0, (second != 0)[first != 0], (third != 0)[second != 0]]
    assert all(0 < each.float().mean() < 1 for each in kept)
    assert (second[first == 0] == 0).all() and (second[second != 0] == 4).all()


def test_a_number_for_a_whole_sample_is_drawn_once_by_a_program() -> None:
    def drop_path(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        kept = torch.rand(5, 1, 1).lt(0.5).to(x.dtype)
        return [kept, x + y * kept]

    make = lambda: (torch.randn(5, 30, 41), torch.randn(5, 30, 41))
    aten = aten_of_fake(drop_path, make)
    _, source = generated(aten, replace(H100, random="philox"))
    (kernel,) = source.kernels
    assert kernel.schedule == "pointwise, by rows" and "i = tl.program_id(0) //" in kernel.text
    x, y = make()
    for candidate in range(len(source.launches[0].configs)):
        kept, result = run_interpreted(source, aten, [x, y], candidate)
        assert set(kept.flatten().tolist()) <= {0.0, 1.0}
        assert torch.equal(result, x + y * kept)
