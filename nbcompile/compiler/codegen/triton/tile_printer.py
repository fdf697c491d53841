"""Prints the statements of a Triton kernel: names, places, masks, and values as tiles.

Every value is a tile whose dimensions are those of the axes it depends on; a row's value in a
two-dimensional tile has the shape ``[XBLOCK, 1]``, so that tiles of any shape combine by broadcasting.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence, Set

import torch

from nbcompile.compiler.codegen.printed import Lines
from nbcompile.compiler.codegen.triton.aligned_rows import whole_groups
from nbcompile.compiler.codegen.triton.counted_axes import (
    counted_dims,
    divisions,
    is_symbolic,
    run_of,
    unread_lines,
    with_joined,
    with_runs,
)
from nbcompile.compiler.codegen.triton.dims import Chosen, Condition, Dim, Scope
from nbcompile.compiler.codegen.triton.expressions import (
    POINTER_TYPES,
    TRITON_TYPES,
    TritonWriter,
    reserved_names,
)
from nbcompile.compiler.codegen.triton.guards import needed, varies_along
from nbcompile.compiler.codegen.triton.random_blocks import blocks_of_four, word_bound
from nbcompile.compiler.codegen.triton.tile_expression import TileExpression, grouped, named
from nbcompile.compiler.kernel_ir.integer_ranges import INT32_LIMIT, in_unit_interval, is_narrow, offsets_fit
from nbcompile.compiler.kernel_ir.values import Gathered, KernelValues, Store, Value, gathered
from nbcompile.compiler.loop_ir.computed_sizes import DrawCounter
from nbcompile.compiler.loop_ir.index import Atom, Axis, FloorDiv, IndexExpr, Mod, Size, at_least
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.loop_ir.substitution import substitute
from nbcompile.compiler.stages import Argument
from nbcompile.errors import CodegenError

RESERVED = reserved_names() | frozenset("range int bool min max sum abs slab start chunk end".split())


class TilePrinter:
    """State of one Triton function: its arguments, names and lines so far."""

    def __init__(
        self, values: KernelValues, buffers: Mapping[str, Buffer], writer: TritonWriter, dims: Sequence[Dim],
        letters: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.values = values
        self.names = values.names
        self.buffers = buffers
        self.writer = writer
        self.dims = list(dims)
        self.shape = [dim.block for dim in sorted(self.tiled, key=lambda dim: dim.place or 0)]
        self.letters = dict(letters)
        self.out = Lines(depth=1, step="    ")
        self.used_names: set[str] = set(letters.values()) | RESERVED
        self.used_names |= {dim.block for dim in dims} | {dim.name for dim in dims}
        self.pointers: dict[str, str] = {}
        self.written: dict[str, None] = {}
        self.sizes: dict[str, Size] = {}
        self.valued: set[str] = set()  # sizes that a value is computed from, not a place alone
        self.draws: dict[str, str] = {}  # draw counters' names here, which are the same in an equal layer
        self.reduced_text: dict[str, str] = {}
        self.starts: dict[str, str] = {}  # where the present block of rows starts: a multiple of four
        self.read: set[Atom] = set()  # axes whose names stand somewhere
        self.joined: tuple[Axis, Axis, Axis] | None = None  # two axes, and the one that stands for both
        self.moved: dict[Axis, IndexExpr] = {}  # axes that are counted from elsewhere at present
        # the dimension that an axis is counted from, and the names that its axes had then
        self.counted: dict[Axis, tuple[Dim, list[str]]] = {}
        self.axis_lines: set[str] = set()  # that declare axes
        self.wide = not offsets_fit(values.group, buffers)

    @property
    def tiled(self) -> list[Dim]:
        return [dim for dim in self.dims if dim.place is not None]

    # -- names ---------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        base = "".join(char if char.isalnum() else "_" for char in hint).strip("_") or "t"
        if base[0].isdigit():
            base = f"t{base}"
        if keyword.iskeyword(base) or base in RESERVED:
            base += "_"
        name, number = base, 2
        while name in self.used_names:
            name, number = f"{base}_{number}", number + 1
        self.used_names.add(name)
        return name

    def pointer(self, buffer: str, *, write: bool = False) -> str:
        if write:
            self.written[buffer] = None
        if buffer not in self.pointers:
            self.pointers[buffer] = self.fresh(f"{buffer}_ptr")
        return self.pointers[buffer]

    def arguments(self, ours: Iterable[str]) -> list[tuple[str, Argument]]:
        """(buffer, or the size's own name, with its argument) for everything used so far."""
        mine = set(ours) | set(self.written)
        found = []
        for buffer, name in self.pointers.items():
            dtype = self.buffers[buffer].dtype
            if dtype not in POINTER_TYPES:
                raise CodegenError(f"no Triton type for {dtype}")
            temporary = self.buffers[buffer].role == "temporary" and buffer in mine
            written = buffer in mine  # what is shared with other functions may be written in any way
            found.append((buffer, Argument(name, POINTER_TYPES[dtype], ours=temporary, written=written)))
        narrow = self._extents()
        for name, size in self.sizes.items():
            wide = self.wide or (name in self.valued and name not in narrow)
            kind = "i64" if wide or (name in self.draws and 8 * size.hint > INT32_LIMIT) else "i32"
            # nothing is assumed of what differs between equal layers
            hint = 1 if name in self.draws else size.hint
            found.append((name, Argument(self.draws.get(name, name), kind, hint=hint)))
        return found

    def _extents(self) -> set[str]:
        """Sizes that what the kernel touches has: all below 2**31, or it would be ``wide``."""
        touched = [self.buffers[name] for name in self.pointers]
        extents = [axis.extent for axis in self.values.nest.axes]
        extents += [extent for buffer in touched for extent in (*buffer.shape, *buffer.strides)]
        return {atom.text for extent in extents for atom in extent.atoms()}

    # -- dimensions ------------------------------------------------------------------------------------

    def dims_of(self, axes: Iterable[Axis]) -> frozenset[int]:
        """Places (in the tile's shape) of the dimensions that these axes lie in."""
        wanted = set(axes)
        return frozenset(
            dim.place for dim in self.dims if dim.place is not None and not wanted.isdisjoint(dim.axes)
        )

    def across(self, text: str, place: int | None) -> str:
        """A one-dimensional tile as it lies in the whole tile's shape."""
        if place is None or len(self.shape) == 1:
            return text
        return f"{text}[:, None]" if place == 0 else f"{text}[None, :]"

    def shape_text(self) -> str:
        return f"[{', '.join(self.shape)}]"

    def lanes(self, dim: Dim, *, offset: str = "") -> str:
        """``offset + arange(block)`` along ``dim``."""
        wide = ".to(tl.int64)" if self.wide else ""  # any axis may have the stride that needs it
        text = self.across(f"tl.arange(0, {dim.block}){wide}", dim.place)
        return f"{offset} + {text}" if offset else text

    def letter(self, axis: Atom) -> str:
        """The name of an axis, to be read."""
        self.read.add(axis)
        return self.letters[axis.text]

    def declare_axes(self, dim: Dim, needed: Set[Atom] | None = None) -> None:
        """The axes of ``dim``, or those ``needed``, from its one variable: ``i = x // 8``, ``j = x % 8``."""
        if len(dim.axes) < 2:
            return
        letters = [self.letters[axis.text] for axis in dim.axes]
        if is_symbolic(dim):
            lines = list(divisions(dim, letters, lambda extent: str(self.place(extent)), self.fresh))
        else:
            lines = [
                f"{letters[number]} = {self._counted_as_one(dim, number, number).bare}"
                for number, axis in enumerate(dim.axes) if needed is None or axis in needed
            ]  # fmt: skip
        for line in lines:
            self.axis_lines.add(line)
            self.out.add(line)
        self.counted |= dict.fromkeys(dim.axes, (dim, letters))

    def unread(self) -> set[str]:
        """Lines that name an axis which no other line reads."""
        return unread_lines(self.out.text, self.axis_lines)

    def _counted_as_one(self, dim: Dim, first: int, last: int) -> TileExpression:
        """The axes of ``dim`` from the first to the last as one number."""
        text, inner = TileExpression(dim.name, name=True), dim.inner(last)
        if first:
            text = grouped(f"{text} % {self.place(dim.inner(first - 1))}")
        return text if inner.constant == 1 else grouped(f"{text} // {self.place(inner)}")

    def _named_run(self, dim: Dim, first: int, last: int) -> Axis | None:
        """What stands for some of a dimension's axes, of which the compiler would not see that neighbours in
        the tile are neighbours in memory; None where their names mean others at present."""
        run = slice(first, last + 1)
        if [self.letters[axis.text] for axis in dim.axes[run]] != self.counted[dim.axes[0]][1][run]:
            return None
        one = run_of(dim, first, last)
        self.letters[one.text] = str(self._counted_as_one(dim, first, last))
        return one

    # -- indices -----------------------------------------------------------------------------------------

    def place(
        self, place: IndexExpr, scope: Scope | None = None, under: Sequence[Condition] = (), *,
        wide: bool = False,
    ) -> TileExpression:  # fmt: skip
        """An index as an expression; ``wide``: in 64 bits, whatever its parts are held in."""
        if self.joined:
            place = with_joined(place, *self.joined)
        place = substitute(place, self.moved) if self.moved else place
        if place.constant is not None:
            return TileExpression(str(place.constant), grouped=place.constant < 0)
        place = with_runs(place, counted_dims(place, self.counted), self._named_run)
        parts: list[str] = []
        for mono, coeff in place.terms:
            factors = [str(self._atom(atom, scope or {}, under, wide)) for atom in mono]
            if wide and factors:
                factors[0] += ".to(tl.int64)"
            if not factors or abs(coeff) != 1:
                factors.append(str(abs(coeff)))
            sign = "-" if coeff < 0 else "+"
            parts.append((f" {sign} " if parts else ("-" if coeff < 0 else "")) + "*".join(factors))
        mono, coeff = place.terms[0]
        plain = len(place.terms) == 1 and coeff == 1 and len(mono) == 1 and isinstance(mono[0], Axis | Size)
        return TileExpression("".join(parts), grouped=not plain, name=plain and not wide)

    def _atom(self, atom: Atom, scope: Scope, under: Sequence[Condition], wide: bool) -> TileExpression:
        """What an index is made of."""
        if isinstance(atom, Size):
            self.sizes[atom.text] = atom
            if not isinstance(atom, DrawCounter):
                return named(atom.text)
            if atom.text not in self.draws:
                self.draws[atom.text] = self.fresh("draw")
            return named(self.draws[atom.text])
        if isinstance(atom, FloorDiv | Mod):
            sign = "//" if isinstance(atom, FloorDiv) else "%"
            top, below = (
                self.place(each, scope, under, wide=wide) for each in (atom.numerator, atom.denominator)
            )
            return grouped(f"({top.bare}) {sign} {below}")
        if isinstance(atom, Gathered):
            return self.gathered(atom, scope, under)
        return named(self.letter(atom))

    def _counted(self, value: Value, scope: Scope, under: Sequence[Condition]) -> TileExpression:
        """An index as a value, in 64 bits where 32 may not hold all that it is made of."""
        if value.place.constant is not None:
            return self.writer.constant(value.place.constant, value.dtype)
        wide = not (self.wide or is_narrow(value.place))
        place = self.place(value.place, scope, under, wide=wide)
        self.valued |= {atom.text for atom in value.place.atoms() if isinstance(atom, Size)}
        if value.dtype == torch.int64 and not (self.wide or wide):
            return TileExpression(f"({place.bare}).to(tl.int64)")
        return place

    def gathered(self, atom: Gathered, scope: Scope, under: Sequence[Condition]) -> TileExpression:
        """A place that is read from a tensor."""
        found = self.text(atom.value, scope, under)
        return found if found.name else grouped(str(found))

    # -- values ------------------------------------------------------------------------------------------

    def text(self, value: Value, scope: Scope, under: Sequence[Condition] = ()) -> TileExpression:
        """``value`` as a Triton expression, using the names in scope. ``under``: conditions of the guards
        around it, which mask its loads."""
        if value.number in scope:
            return scope[value.number]
        if value.kind == "const":
            return self.writer.constant(value.literal, value.dtype)
        if value.kind == "load":
            return self.load(value, scope, under)
        if value.kind == "index":
            return self._counted(value, scope, under)
        if value.kind == "reduced":
            return named(self.reduced_text[value.buffer])
        if value.kind == "guard":
            return self.guard(value, scope, under)
        if value.op in ("philox_uniform", "lt"):
            four = self._four(value, scope)
            if four is not None:
                return four
        args = [self.text(arg, scope, under) for arg in value.args]
        of = value.args[1].dtype if value.op == "where" else value.args[0].dtype
        name = value.op
        if name == "log1p" and value.dtype == torch.float32 and in_unit_interval(value.args[0]):
            name = "log1p_unit"
        return self.writer.op(name, args, value.dtype, of)

    def _four(self, value: Value, scope: Scope) -> TileExpression | None:
        """Random numbers of neighbours, four to a Philox block, or whether they are below a constant, which
        is decided on their words; None where they do not lie so."""
        bound = None if value.op == "philox_uniform" else word_bound(value.args[1])
        number = value if value.op == "philox_uniform" else value.args[0]
        if value is not number and (number.op != "philox_uniform" or number.number in scope or bound is None):
            return None
        order = self.in_order()
        found = blocks_of_four(number, order, self.lane_start(order[-1]) if order else "", self.starts)
        if found is None:
            return None
        quarter = self.across(f"tl.arange(0, {found.dim.block} // 4)", found.dim.place)
        start = f"{found.start} // 4 + " if found.start else ""
        block = f"({self.place(found.base, scope).bare}) + {start}{quarter}"
        seed = self.text(number.args[0], scope)
        if bound is None:
            return self.writer.philox_uniform4(seed, block, down=found.down)
        return self.writer.philox_below4(seed, block, bound, down=found.down)

    def guard(self, value: Value, scope: Scope, under: Sequence[Condition]) -> TileExpression:
        test, axes = self.test(value, scope, under)
        if not test:
            return self.text(value.args[0], scope, under)
        one = self.chosen(value, scope, under)
        if one is not None:
            return self.load(one.load, scope, under, one)
        dims = self.dims_of(axes)
        inside = self.text(value.args[0], scope, [*under, Condition(f"({test})", dims)])
        opposite = f"~({test})" if dims else f"((({test}) == 0))"  # of numbers it is one of Python's
        outside = self.text(value.args[1], scope, [*under, Condition(opposite, dims)])
        return TileExpression(f"tl.where({test}, {inside}, {outside})")

    def test(self, guard: Value, scope: Scope, under: Sequence[Condition]) -> tuple[str, set[Axis]]:
        """What of a guard's bounds is not known to hold, and the axes it depends on."""
        tests: list[str] = []
        for item, low, high in guard.bounds:
            above, below = at_least(item, low), at_least(high - 1, item)
            for holds, sign, bound in ((above, ">=", low), (below, "<", high)):
                if not holds:
                    left, right = self.place(item, scope, under), self.place(bound, scope, under)
                    tests.append(f"({left.bare} {sign} {right.bare})")
        return " & ".join(tests), varies_along(guard)

    def chosen(self, value: Value, scope: Scope, under: Sequence[Condition]) -> Chosen | None:
        """Both sides of a guard as one load, if they read one buffer at places a constant apart: then the
        place is chosen, not the value, and memory is asked once."""
        if value.number in scope:
            return None
        if value.kind == "load":
            if gathered(value.place):
                return None
            start = IndexExpr({mono: coeff for mono, coeff in value.place.terms if mono})
            return Chosen(value, start, str((value.place - start).constant), frozenset())
        if value.kind != "guard":
            return None
        inside, outside = (self.chosen(arg, scope, under) for arg in value.args)
        if inside is None or outside is None or inside.load.buffer != outside.load.buffer:
            return None
        if inside.start != outside.start:
            return None
        test, axes = self.test(value, scope, under)
        if not test:
            return inside
        dims = inside.dims | outside.dims | self.dims_of(axes)
        return Chosen(inside.load, inside.start, f"tl.where({test}, {inside.rest}, {outside.rest})", dims)

    def load(
        self, value: Value, scope: Scope, under: Sequence[Condition] = (), chosen: Chosen | None = None
    ) -> TileExpression:
        if chosen is None:
            where, mask = self.element(value.buffer, value.place, scope, under, write=False)
            self.out.touch(value.buffer, value.place)
        else:
            self.out.touch(value.buffer, None)
            where, mask = self.element(
                value.buffer, chosen.start, scope, under, write=False, beyond=chosen.dims
            )
            where = f"{where} + {chosen.rest}"
        return self.in_register(value, f"tl.load({where}{mask}{self.policy(value)})")

    def in_register(self, load: Value, text: str) -> TileExpression:
        """What was loaded, in the type that it is worked with."""
        dtype = self.buffers[load.buffer].dtype
        if dtype in (torch.bfloat16, torch.float16):
            return TileExpression(f"{text}.to(tl.float32)")
        return TileExpression(f"{text}.to(tl.int1)" if dtype == torch.bool else text)

    def policy(self, value: Value) -> str:
        """What the cache is told of a load."""
        return ""

    def element(
        self, buffer: str, place: IndexExpr, scope: Scope, under: Sequence[Condition], *, write: bool,
        extra: Sequence[str] = (), beyond: frozenset[int] = frozenset(),
    ) -> tuple[str, str]:  # fmt: skip
        """(pointer text, mask argument) of ``buffer[place]``; ``beyond``: dimensions that something the
        caller adds to the pointer varies along."""
        axes = {atom for atom in place.atoms() if isinstance(atom, Axis)}
        masks: list[str] = []
        for atom in sorted(place.atoms(), key=lambda item: item.text):
            if isinstance(atom, Gathered):
                axes |= atom.value.axes
                if atom.sure:
                    continue
                text = self.gathered(atom, scope, under)
                masks += [f"({text} >= 0)", f"({text} < {self.place(atom.size, scope, under).bare})"]
        dims = self.dims_of(axes) | beyond
        everywhere = dims.union(*(item.dims for item in under)) if under else dims
        if write:
            everywhere |= frozenset(d.place for d in self.tiled if d.place is not None and d.mask in extra)
        present = [dim for dim in self.tiled if dim.place in everywhere and dim.mask]
        exact = write or bool(beyond)
        masks = [self.lanes_in(dim, buffer, place, exact=exact) for dim in present] + masks
        masks += [item.mask for item in under]
        masks += [item for item in extra if item not in masks]
        if any(extent.constant == 0 for extent in self.buffers[buffer].shape):
            masks = ["False"]  # nothing is there, and a reduction over nothing still has lanes
        where = self.place(place, scope, under).bare
        if everywhere != dims:
            wide = [dim.block if dim.place in everywhere else "1" for dim in self.in_order()]
            where = f"{where} + tl.zeros([{', '.join(wide)}], tl.int32)"
        elif write and not dims and len(self.shape) == 2:  # one value, held as a tile
            where = f"{where} + tl.zeros([1, 1], tl.int32)"
        name = self.pointer(buffer, write=write)
        joined = " & ".join(dict.fromkeys(masks))
        return f"{name} + {where}", f", mask={joined}" if joined else ""

    def lanes_in(self, dim: Dim, buffer: str, place: IndexExpr, *, exact: bool) -> str:
        """A dimension's mask; unless ``exact``, with lanes beyond its end if that makes whole groups."""
        end = whole_groups(dim.axes[0], self.buffers[buffer], place) if dim.cut and not exact else None
        return f"({dim.name} < {end})" if end else dim.mask

    def in_order(self) -> list[Dim]:
        return sorted(self.tiled, key=lambda dim: dim.place or 0)

    def lane_start(self, dim: Dim) -> str:
        """Text of the first index of ``dim``'s present block (empty: 0)."""
        return ""

    # -- statements ----------------------------------------------------------------------------------------

    def define(self, roots: Sequence[Value], scope: Scope, *, always: bool = False) -> Scope:
        """Statements that name what ``roots`` need: loads, values used twice, results of loops, and with
        ``always`` the roots themselves. Returns the scope with these names."""
        scope = dict(scope)
        order, certain = needed(self.dims_of, self.buffers, roots, scope)
        uses: dict[int, int] = {}
        for value in order:
            for child in value.inputs():
                uses[child.number] = uses.get(child.number, 0) + 1
        for root in roots:
            uses[root.number] = uses.get(root.number, 0) + (2 if always else 1)
        for value in order:
            if value.number not in certain or value.kind in ("const", "index", "reduced"):
                continue
            told = value.number in self.names and value.kind in ("op", "guard") and value not in roots
            if value.kind != "load" and uses[value.number] < 2 and not told:
                continue
            name = self.fresh(self.names.get(value.number) or (value.buffer if value.kind == "load" else "t"))
            self.out.add(f"{name} = {self.text(value, scope).bare}", [value.origin])
            scope[value.number] = named(name)
        return scope

    def hoist(self, roots: Sequence[Value], inside: frozenset[Axis], scope: Scope) -> Scope:
        """Names for what ``roots`` need that does not vary along ``inside``: for use before a loop."""
        order, certain = needed(self.dims_of, self.buffers, roots, scope)
        wanted = {root.number for root in roots}
        frontier: dict[int, Value] = {}
        for value in order:
            if value.axes & inside or value.number in wanted:
                for child in (*value.inputs(), value):
                    fixed = not (child.axes & inside) and child.number in certain
                    if fixed and child.kind in ("op", "load", "guard"):
                        frontier.setdefault(child.number, child)
        return self.define(list(frontier.values()), scope, always=True) if frontier else scope

    def store(self, item: Store, scope: Scope, extra: Sequence[str] = ()) -> None:
        where, mask = self.element(item.buffer, item.place, scope, (), write=True, extra=extra)
        text = self.text(item.value, scope).bare
        self.out.touch(item.buffer, item.place, write=True)
        self.out.add(f"tl.store({where}, {text}{mask})", [item.loop.id])

    def full(self, literal: str, dtype: torch.dtype, shape: Sequence[str] | None = None) -> str:
        """A constant tile, of the function's own shape unless another is given (``[]``: one number)."""
        shape = self.shape if shape is None else shape
        text = f"[{', '.join(shape)}]" if shape else "()"
        return f"tl.full({text}, {literal}, {TRITON_TYPES[dtype]})"
