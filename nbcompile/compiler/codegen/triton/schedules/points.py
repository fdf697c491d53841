"""Prints the schedules that reduce nothing: runs of points, squares, lines and bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter
from nbcompile.compiler.codegen.triton.tile_printer import Dim, TilePrinter
from nbcompile.compiler.stages import Config

if TYPE_CHECKING:
    from nbcompile.compiler.codegen.triton.nests import Nest


def print_points(nest: Nest) -> None:
    """The one function of a group without reductions."""
    plan = nest.plan
    configs = plan.configs
    p: TilePrinter
    if plan.schedule == "square":
        p, grid = _square(nest)
    elif plan.schedule == "bands":
        p, grid = _bands(nest)
    elif plan.schedule == "lines":
        p, grid = _lines(nest)
    elif plan.x:
        x = Dim(plan.x, nest.variable(plan.x, "point"), "XBLOCK", 0)
        p = _printer(nest, [x])
        grid = [f"cdiv({nest.size(p, x.extent)}, XBLOCK)"]
        p.out.add(f"start = {nest.program(p, 0)} * XBLOCK")
        nest.declare(p, x, "start", configs)
    else:
        p, grid, configs = nest.printer([]), ["1"], (Config({}, 1),)
    nest.store_all(p, nest.values.stores, {})
    nest.add(nest.symbol, p, grid, configs)


def _printer(nest: Nest, dims: list[Dim]) -> TilePrinter:
    return PointsPrinter(nest.values, nest.buffers, nest.writer, dims, nest.letters)


def _tell_start(p: TilePrinter, start: str, configs: Sequence[Config]) -> None:
    if all(item.constants["YBLOCK"] % 4 == 0 for item in configs):
        p.starts["YBLOCK"] = start


def _square(nest: Nest) -> tuple[TilePrinter, list[str]]:
    plan, configs = nest.plan, nest.plan.configs
    y = Dim(plan.y, nest.variable(plan.y, "other"), "YBLOCK", 0)
    x = Dim(plan.x, nest.variable(plan.x, "point"), "XBLOCK", 1)
    p = _printer(nest, [y, x])
    y.first, x.first = f"({nest.program(p, 0)} == 0)", f"({nest.program(p, 1)} == 0)"
    nest.declare(p, y, f"{nest.program(p, 0)} * YBLOCK", configs)
    _tell_start(p, f"({nest.program(p, 0)} * YBLOCK)", configs)
    p.out.add(f"start = {nest.program(p, 1)} * XBLOCK")
    nest.declare(p, x, "start", configs)
    return p, [f"cdiv({nest.size(p, y.extent)}, YBLOCK)", f"cdiv({nest.size(p, x.extent)}, XBLOCK)"]


def _bands(nest: Nest) -> tuple[TilePrinter, list[str]]:
    plan, configs = nest.plan, nest.plan.configs
    y = Dim(plan.y, nest.variable(plan.y, "row"), "YBLOCK", 0)
    x = Dim(plan.x, nest.variable(plan.x, "point"), "XBLOCK", 1)
    z = Dim(plan.outer, nest.variable(plan.outer, "outside"), "", None)
    p = _printer(nest, [*([z] if z.axes else []), y, x])
    across = f"cdiv({nest.size(p, x.extent)}, XBLOCK)"
    band = f"{nest.program(p, 0)} // tl.{across}"
    grid = f"cdiv({nest.size(p, y.extent)}, YBLOCK) * {across}"
    if z.axes:
        down = f"tl.cdiv({nest.size(p, y.extent)}, YBLOCK)"
        p.out.add(f"{z.name} = {band} // {down}")
        p.declare_axes(z)
        z.first = f"({z.name} == 0)"
        band, grid = f"{band} % {down}", f"{nest.size(p, z.extent)} * {grid}"
    y.first, x.first = f"({band} == 0)", f"({nest.program(p, 0)} % tl.{across} == 0)"
    nest.declare(p, y, f"{band} * YBLOCK", configs)
    _tell_start(p, f"({band} * YBLOCK)", configs)
    p.out.add(f"start = {nest.program(p, 0)} % tl.{across} * XBLOCK")
    nest.declare(p, x, "start", configs)
    return p, [grid]


def _lines(nest: Nest) -> tuple[TilePrinter, list[str]]:
    plan, configs = nest.plan, nest.plan.configs
    x = Dim(plan.x, nest.variable(plan.x, "row"), "XBLOCK", None)
    r = Dim(plan.r, nest.variable(plan.r, "within"), "RBLOCK", 0)
    p = _printer(nest, [x, r])
    # neighbours in memory at the same time: where rows start off sectors, two blocks write parts of one
    across = f"cdiv({nest.size(p, r.extent)}, RBLOCK)"
    p.out.add(f"{x.name} = {nest.program(p, 0)} // tl.{across}")
    p.declare_axes(x)
    x.first, r.first = f"({x.name} == 0)", f"({nest.program(p, 0)} % tl.{across} == 0)"
    p.out.add(f"start = {nest.program(p, 0)} % tl.{across} * RBLOCK")
    nest.declare(p, r, "start", configs)
    return p, [f"{nest.size(p, x.extent)} * {across}"]
