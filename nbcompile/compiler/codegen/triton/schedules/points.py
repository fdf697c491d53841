"""Prints the schedules that reduce nothing: runs of points, squares, lines and bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nbcompile.compiler.codegen.triton.block_printers import PointsPrinter
from nbcompile.compiler.codegen.triton.dims import Condition, Dim, Scope
from nbcompile.compiler.codegen.triton.nests import TritonNest
from nbcompile.compiler.codegen.triton.tile_expression import named
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import Value, walk_values
from nbcompile.compiler.loop_ir.index import index
from nbcompile.compiler.schedule.points import Bands, ByRows, Joined, Parts, Points, Square, joined
from nbcompile.compiler.stages import Config


class PointsNest(TritonNest):
    """A run of points."""

    plan: Points | Square | Bands | ByRows

    def write(self) -> None:
        p, grid, configs = self.head()
        self.store_all(p, self.values.stores, {})
        self.add(self.symbol, p, grid, configs)

    def head(self) -> tuple[TilePrinter, list[str], Sequence[Config]]:
        """The function's printer, with the points of a program declared, its grid and its configs."""
        if not self.plan.x:
            return self.printer([]), ["1"], (Config({}, 1),)
        x = Dim(self.plan.x, self.variable(self.plan.x, "point"), "XBLOCK", 0)
        p = self.points_printer([x])
        grid = [f"cdiv({self.size(p, x.extent)}, XBLOCK)"]
        p.out.add(f"start = {self.program(p, 0)} * XBLOCK")
        self.declare(p, x, "start", self.plan.configs)
        return p, grid, self.plan.configs

    def points_printer(self, dims: list[Dim]) -> TilePrinter:
        """A printer of tiles whose last dimension starts at ``start``."""
        return PointsPrinter(self.values, self.buffers, self.writer, dims, self.letters)


def _tell_start(p: TilePrinter, start: str, configs: Sequence[Config]) -> None:
    if all(item.constants["YBLOCK"] % 4 == 0 for item in configs):
        p.starts["YBLOCK"] = start


class BandsNest(PointsNest):
    """Pieces of neighbouring rows."""

    plan: Bands | Square

    def head(self) -> tuple[TilePrinter, list[str], Sequence[Config]]:
        plan, configs = self.plan, self.plan.configs
        y = Dim(plan.y, self.variable(plan.y, "row"), "YBLOCK", 0)
        x = Dim(plan.x, self.variable(plan.x, "point"), "XBLOCK", 1)
        z = Dim(plan.outer, self.variable(plan.outer, "outside"), "", None)
        p = self.points_printer([*([z] if z.axes else []), y, x])
        across = f"cdiv({self.size(p, x.extent)}, XBLOCK)"
        band = f"{self.program(p, 0)} // tl.{across}"
        grid = f"cdiv({self.size(p, y.extent)}, YBLOCK) * {across}"
        if z.axes:
            down = f"tl.cdiv({self.size(p, y.extent)}, YBLOCK)"
            p.out.add(f"{z.name} = {band} // {down}")
            p.declare_axes(z)
            z.first = f"({z.name} == 0)"
            band, grid = f"{band} % {down}", f"{self.size(p, z.extent)} * {grid}"
        y.first, x.first = f"({band} == 0)", f"({self.program(p, 0)} % tl.{across} == 0)"
        self.declare(p, y, f"{band} * YBLOCK", configs)
        _tell_start(p, f"({band} * YBLOCK)", configs)
        p.out.add(f"start = {self.program(p, 0)} % tl.{across} * XBLOCK")
        self.declare(p, x, "start", configs)
        return p, [grid], configs


class SquareNest(BandsNest):
    """A square of two axes."""

    plan: Square

    def head(self) -> tuple[TilePrinter, list[str], Sequence[Config]]:
        plan, configs = self.plan, self.plan.configs
        if plan.outer:
            return super().head()
        y = Dim(plan.y, self.variable(plan.y, "other"), "YBLOCK", 0)
        x = Dim(plan.x, self.variable(plan.x, "point"), "XBLOCK", 1)
        p = self.points_printer([y, x])
        y.first, x.first = f"({self.program(p, 0)} == 0)", f"({self.program(p, 1)} == 0)"
        self.declare(p, y, f"{self.program(p, 0)} * YBLOCK", configs)
        _tell_start(p, f"({self.program(p, 0)} * YBLOCK)", configs)
        p.out.add(f"start = {self.program(p, 1)} * XBLOCK")
        self.declare(p, x, "start", configs)
        return (
            p,
            [f"cdiv({self.size(p, y.extent)}, YBLOCK)", f"cdiv({self.size(p, x.extent)}, XBLOCK)"],
            configs,
        )


class LinesNest(PointsNest):
    """A part of one row."""

    plan: ByRows

    def head(self) -> tuple[TilePrinter, list[str], Sequence[Config]]:
        plan, configs = self.plan, self.plan.configs
        x = Dim(plan.x, self.variable(plan.x, "row"), "XBLOCK", None)
        r = Dim(plan.r, self.variable(plan.r, "within"), "RBLOCK", 0)
        p = self.points_printer([x, r])
        # neighbours in memory at the same time: where rows start off sectors, two blocks write parts of one
        across = f"cdiv({self.size(p, r.extent)}, RBLOCK)"
        p.out.add(f"{x.name} = {self.program(p, 0)} // tl.{across}")
        p.declare_axes(x)
        x.first, r.first = f"({x.name} == 0)", f"({self.program(p, 0)} % tl.{across} == 0)"
        p.out.add(f"start = {self.program(p, 0)} % tl.{across} * RBLOCK")
        self.declare(p, r, "start", configs)
        return p, [f"{self.size(p, x.extent)} * {across}"], configs


class PartsNest(LinesNest):
    """A piece of a row in one part of what is joined."""

    plan: Parts

    def write(self) -> None:
        p, grid, configs = self.head()
        levels = [*joined(item.value for item in self.values.stores)]
        self.part(p, levels, [])
        self.add(self.symbol, p, grid, configs)

    def part(
        self, p: TilePrinter, levels: Sequence[Sequence[Value]], chosen: Sequence[Mapping[int, Value]]
    ) -> None:
        """What the program stores if it lies in the first of the parts that are left, and if it does not.
        ``chosen``: what the guards of each level so far are there, by number; what those of one level are is
        chosen by the next."""
        if not levels:
            scope: Scope = {}
            for values in reversed(chosen):
                scope = p.define([*values.values()], scope, always=True)
                scope |= {number: p.text(value, scope) for number, value in values.items()}
            self.store_all(p, self.values.stores, scope)
            return
        guards, rest = levels[0], levels[1:]
        for side, line in enumerate((f"if {self.lies_in(p, guards[0])}:", "else:")):
            p.out.enter(line, axes=())
            sides = {guard.number: guard.args[side] for guard in guards}
            self.part(p, rest if side else (), [*chosen, sides])
            p.out.leave()

    def lies_in(self, p: TilePrinter, guard: Value) -> str:
        """Whether the first point of the program lies in a part, as all of its points do then."""
        (last,) = self.plan.r
        along = [bound for bound in guard.bounds if last in bound[0].axes()]
        others = tuple(bound for bound in guard.bounds if bound not in along)
        tests = [p.test(replace(guard, bounds=others), {}, ())[0]]
        for item, low, high in along:
            shift = item - index(last)
            tests += [f"(start >= {low - shift})"] * (low != shift)
            tests += [f"(start < {high - shift})"] * (high - shift != last.extent)
        return " & ".join(filter(None, tests)) or "True"


class JoinedNest(LinesNest):
    """A run of points of a row of what is joined."""

    plan: Joined

    def write(self) -> None:
        p, grid, configs = self.head()
        levels = [*joined(item.value for item in self.values.stores)]
        scope: Scope = {}
        chains: list[list[Value]] = []  # of each value that is joined, its guards from the first part on
        for guard in levels[0]:
            scope[guard.number] = named(p.fresh("part"))
            p.out.add(f"{scope[guard.number]} = {p.full('0', guard.dtype)}", [guard.origin])
            chains.append([guard])
            while len(chains[-1]) < len(levels):
                chains[-1].append(chains[-1][-1].args[1])
        edges = (0, *self.plan.edges)
        for number, guards in enumerate(zip(*chains, strict=True)):
            test, axes = p.test(guards[0], {}, ())
            inside = Condition(f"({test})" if " & " in test else test, p.dims_of(axes))
            parts = {chain[0]: guard.args[0] for chain, guard in zip(chains, guards, strict=True)}
            self.part(p, scope, inside, edges[number : number + 2], parts)
        item, _, high = chains[0][-1].bounds[0]
        beyond = Condition(f"({p.place(item, {}).bare} >= {high})", p.dims_of(item.axes()))
        self.part(p, scope, beyond, edges[-1:], {chain[0]: chain[-1].args[1] for chain in chains})
        self.store_all(p, self.values.stores, scope)
        self.add(self.symbol, p, grid, configs)

    def part(
        self,
        p: TilePrinter,
        scope: Scope,
        inside: Condition,
        edges: Sequence[int],
        values: Mapping[Value, Value],
    ) -> None:
        """What the program takes from one part, if it has points of it; ``values``: by what is joined."""
        tests = [f"(start + RBLOCK > {edges[0]})"] * (edges[0] > 0)
        tests += [f"(start < {edge})" for edge in edges[1:]]
        p.out.enter(f"if {' & '.join(tests)}:", axes=())
        for joined_value, value in values.items():
            name = scope[joined_value.number]
            origins = [joined_value.origin, *(each.origin for each in walk_values([value]))]
            p.out.add(f"{name} = tl.where({inside.mask}, {p.text(value, {}, [inside])}, {name})", origins)
        p.out.leave()
