"""What the printers of all schedules share: the functions of one group, put together from their lines.

The printer of a schedule is a class of the folder ``schedules``, made from this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from nbcompile.compiler.codegen.printed import FunctionCall, Parameter, PrintedKernel
from nbcompile.compiler.codegen.triton.dims import Dim, Scope
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import Store
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.loop_ir.versions import Walk
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.stages import Config, Launch


@dataclass
class Function:
    """One printed Triton function, its header to be written when all it uses is known."""

    name: str
    printer: TilePrinter
    grid: tuple[str, ...]
    configs: tuple[Config, ...]
    owned: frozenset[Axis]  # the axes whose points are shared out among the programs
    together: bool = False


class TritonNest:
    """Builds the functions of one group, cut up as ``plan`` says. A subclass writes them."""

    plan: Schedule

    def __init__(self, work: Work, plan: Schedule, writer: TritonWriter) -> None:
        self.group, self.values, self.plan, self.writer = work.group, work.values, plan, writer
        self.buffers = dict(work.buffers)
        self.symbol = f"{self.group.id.rsplit('.', 1)[-1]}_{self.group.name}"
        self.functions: list[Function] = []
        self.workspaces: list[Buffer] = []
        self.zeroed: set[str] = set()
        self.letters = {
            axis.text: "ijklmnopquvw"[n % 12] + ("" if n < 12 else str(n))
            for n, axis in enumerate(self.values.nest.axes)
        }

    def write(self) -> None:
        """Add the functions of the group."""
        raise NotImplementedError

    # -- assembling ------------------------------------------------------------------------------------

    def print(self, comment: Sequence[str]) -> PrintedKernel:
        """The functions with ``comment`` lines above them."""
        self.write()
        return self.assemble(comment)

    def assemble(self, comment: Sequence[str]) -> PrintedKernel:
        text: list[str] = [f"# {line}" for line in comment]
        lines: list[tuple[int, tuple[str, ...]]] = []
        calls: list[FunctionCall] = []
        launches: list[Launch] = []
        writes: dict[str, None] = {}
        scratch = {item.name for item in self.workspaces}
        for number, function in enumerate(self.functions):
            p = function.printer
            found = p.arguments(scratch)
            constants = list(function.configs[0].constants)
            names = [argument.name for _, argument in found]
            signature = ", ".join([*names, *(f"{name}: tl.constexpr" for name in constants)])
            if number:
                text += ["", ""]
            text += ["@triton.jit", f"def {function.name}({signature}):"]
            early = self.writer.early and not function.together
            if early:
                text.append(f"    {self.writer.wait()}")
            unread = p.unread()
            for line, origins in zip(p.out.text, p.out.origins, strict=True):
                if line.strip() in unread:
                    continue
                text.append(line)
                if origins:
                    lines.append((len(text), origins))
            parameters = tuple(
                Parameter(item.name, "buffer" if item.type.startswith("*") else "size", item.type, name)
                for name, item in found
            )
            calls.append(FunctionCall(function.name, parameters))
            launches.append(
                Launch(
                    function.name, self.group.id, tuple(argument for _, argument in found), function.grid,
                    function.configs, function.together, early,
                )
            )  # fmt: skip
            writes |= dict.fromkeys(name for name in p.written if name not in scratch)
        return PrintedKernel(
            "\n".join(text),
            tuple(lines),
            tuple(calls),
            tuple(writes),
            tuple(self.workspaces),
            frozenset(self.zeroed),
            tuple(launches),
            Walk(frozenset(), [Walk(item.owned, item.printer.out.walk.body) for item in self.functions]),
        )

    def printer(self, dims: Sequence[Dim]) -> TilePrinter:
        return TilePrinter(self.values, self.buffers, self.writer, dims, self.letters)

    def variable(self, axes: Sequence[Axis], default: str) -> str:
        return self.letters[axes[0].text] if len(axes) == 1 else default

    def add(
        self, name: str, printer: TilePrinter, grid: Sequence[str], configs: Sequence[Config],
        owned: Iterable[Axis] | None = None,
    ) -> Function:  # fmt: skip
        """A function that is complete. ``owned``: the axes whose points its programs share out among them;
        all that its tiles go along unless it is said."""
        if owned is None:
            owned = (axis for dim in printer.dims for axis in dim.axes)
        function = Function(name, printer, tuple(grid), tuple(configs), frozenset(owned))
        self.functions.append(function)
        return function

    def divides(self, dim: Dim, configs: Sequence[Config]) -> bool:
        """Whether every candidate block divides the dimension: then no lane needs a mask."""
        extent = dim.extent.constant
        # an empty dimension still has lanes
        return bool(extent) and all(extent % item.constants[dim.block] == 0 for item in configs)  # type: ignore[operator]

    def declare(
        self, p: TilePrinter, dim: Dim, offset: str, configs: Sequence[Config], *, axes: bool = True
    ) -> None:
        """The dimension's variable, its mask, and its axes."""
        p.out.add(f"{dim.name} = {p.lanes(dim, offset=offset)}")
        if not self.divides(dim, configs):
            dim.mask = p.fresh(f"{dim.name}_in")
            dim.cut = len(dim.axes) == 1
            p.out.add(f"{dim.mask} = {dim.name} < {self.size(p, dim.extent)}")
        if axes:
            p.declare_axes(dim)

    def program(self, p: TilePrinter, axis: int) -> str:
        return f"tl.program_id({axis}).to(tl.int64)" if p.wide else f"tl.program_id({axis})"

    def size(self, p: TilePrinter, extent: IndexExpr) -> str:
        return p.place(extent).bare

    def store_all(self, p: TilePrinter, stores: Sequence[Store], scope: Scope) -> None:
        """Values first: what is overwritten has been read by then."""
        scope = p.define([item.value for item in stores], scope)
        for item in sorted(stores, key=lambda item: item.last):
            if any(other.last for other in stores) and item.value.number not in scope:
                scope = p.define([item.value], scope, always=item.value.kind not in ("const", "index"))
        for item in sorted(stores, key=lambda item: item.last):
            p.store(item, scope, self.once(p, item))

    def once(self, p: TilePrinter, item: Store) -> list[str]:
        """Conditions so that one lane stores what other lanes hold too, and one program what others do: a
        place that does not vary along some axis. All of them would write to the same few lines of memory."""
        present = {atom for atom in item.place.atoms() if isinstance(atom, Axis)}
        present |= item.value.axes if item.value.kind != "reduced" else set()
        conditions = []
        for dim in p.tiled:
            if len(dim.axes) > 1 and not present.isdisjoint(dim.axes):
                for axis in dim.axes:
                    if axis not in present:
                        conditions.append(f"({p.letter(axis)} == 0)")
        return conditions + [dim.first for dim in p.dims if dim.first and present.isdisjoint(dim.axes)]

    def workspace(
        self, name: str, dtype: torch.dtype, size: IndexExpr | int, *, zeroed: bool = False
    ) -> Buffer:
        """Memory that the kernel needs while it runs, made when it is first asked for by this name;
        ``zeroed``: it starts as zeros."""
        found = next((buffer for buffer in self.workspaces if buffer.name == name), None)
        if found is None:
            found = self.buffers[name] = Buffer(name, (index(size),), (ONE,), dtype)
            self.workspaces.append(found)
        if zeroed:
            self.zeroed.add(name)
        return found
