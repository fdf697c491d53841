"""Prints one group as a C function: threads across rows, SIMD along a row, passes over a row in cache.

Three shapes of nest, by which axis is contiguous in memory and what is reduced:

- *points*: nothing is reduced; every point once, SIMD along the last axis.
- *rows*: each row is walked once per pass (a pass ends where a whole-row result is needed); what is
  costly to compute again is kept in a row buffer.
- *columns*: the reduced axis is not the contiguous one; a tile of neighbouring columns is walked
  together, with one accumulator per column.

A split reduction (over the rows themselves) accumulates per thread and is combined at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from nbcompile.compiler.codegen.c.accumulators import Accumulator, accumulator
from nbcompile.compiler.codegen.c.expressions import (
    MEMORY_TYPES,
    REGISTER_TYPES,
    CWriter,
    c_functions,
    constant,
    index_text,
)
from nbcompile.compiler.codegen.printed import Lines
from nbcompile.compiler.kernel_ir.guard_ranges import Range, decide, segments
from nbcompile.compiler.kernel_ir.values import Gathered, KernelValues, Reduction, Store, Value, walk_values
from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL
from nbcompile.compiler.loop_ir.index import Atom, Axis, IndexExpr, Size, at_least, product
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.loop_ir.versions import Part, Touch, Walk
from nbcompile.errors import CodegenError

PARALLEL_WORK = 40_000  # scalar operations below which waking threads costs more than it gives
EVERY_BIT = (
    "every_bit"  # of generated code: a number with all bits set, of which the C compiler knows nothing
)
UNROLLED = 16  # trips of an inner loop up to which gcc -O3 may write it out
# Where rows are so short that they are written out, gcc (12, at least) takes what they read under a condition
# with one masked load for several of them, in the order of memory, whatever the order that they store it in.
_WITHOUT_MASKS = (
    '__attribute__((optimize("no-tree-loop-if-convert"))) // gcc mixes up masked loads of short rows'
)
TILE = 512  # columns walked together
ROW_BUFFER_BYTES = 128 << 10
CACHE_BYTES = 16 << 20  # wide tiles stream; narrow ones miss in every page of every row
RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if int long "
    "register return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "exp log sin cos tan sqrt pow erf floor ceil trunc fmod abs bad threads main inline restrict bool y0 y1 "
    "yn j0 j1 jn gamma div signal index remainder status every_bit".split()
) | c_functions()  # fmt: skip


Scope = dict[int, str]
"""Values that have a C name here: value number → text."""


class KernelPrinter:
    """Shared machinery: names, expressions, loops. The nest shapes are in ``nests``."""

    def __init__(self, values: KernelValues, buffers: Mapping[str, Buffer], writer: CWriter) -> None:
        self.values = values
        self.names: Mapping[int, str] = values.names  # value number → loop output it is
        self.buffers = buffers
        self.writer = writer
        self.out = Lines(depth=1)
        self.axis_names: dict[str, str] = {}
        for axis in values.nest.axes:
            self.axis_names[axis.text] = "ijklmnopqrstuvw"[len(self.axis_names) % 15] + (
                "" if len(self.axis_names) < 15 else str(len(self.axis_names))
            )
        self.used_names: set[str] = set(self.axis_names.values())
        self.buffer_names: dict[str, str] = {}
        self.reads: dict[str, None] = {}
        self.writes: dict[str, None] = {}
        self.sizes: dict[str, None] = {}
        self.checks_bounds = False
        self.hides_bits = False
        self.guards = 0  # around the expression that is being written
        self.chooses = False  # whether to read at all, by a condition that no range decides
        self.most_trips = 0  # of a loop over the last axis
        for item in values.stores:  # the memory has first claim on a buffer's name
            self.memory(item.buffer, write=True)
        self.reduced_text: dict[str, str] = {}
        self.inlined: dict[int, list[Walk | Touch]] = {}  # what values without a name read

    # -- names ---------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        base = "".join(char if char.isalnum() else "_" for char in hint) or "t"
        if base[0].isdigit():
            base = f"t{base}"
        if base in RESERVED or base in self.axis_names.values():
            base += "_"
        name, number = base, 2
        while name in self.used_names:
            name, number = f"{base}_{number}", number + 1
        self.used_names.add(name)
        return name

    def memory(self, buffer: str, *, write: bool) -> str:
        (self.writes if write else self.reads)[buffer] = None
        if buffer not in self.buffer_names:
            self.buffer_names[buffer] = self.fresh(buffer)
        return self.buffer_names[buffer]

    # -- expressions -----------------------------------------------------------------------------

    def place(self, place: IndexExpr, scope: Scope) -> str:
        def name_of(atom: Atom) -> str:
            if isinstance(atom, Size):
                self.sizes[atom.text] = None
                return atom.text
            if isinstance(atom, Gathered):
                return self.checked_index(atom, scope)
            return self.axis_names[atom.text]

        return index_text(place, name_of)

    def text(self, value: Value, scope: Scope) -> str:
        """``value`` as a C expression, using the names in scope."""
        if value.number in scope:
            self.out.around[-1].body += self.inlined.get(value.number, ())
            return scope[value.number]
        if value.kind == "const":
            return constant(value.literal, value.dtype)
        if value.kind == "load":
            return self.load(value, scope)
        if value.kind == "index":
            text = self.place(value.place, scope)
            return text if text.isalnum() else f"({text})"
        if value.kind == "reduced":
            return self.reduced_text[value.buffer]
        if value.kind == "guard":
            test = self.guard_test(value, scope)
            if not test:
                return self.text(value.args[0], scope)
            self.guards += 1
            inside, outside = (self.text(arg, scope) for arg in value.args)
            self.guards -= 1
            self._note_choice(value.args, scope)
            return f"({test} ? {inside} : {outside})"
        args = [self.text(arg, scope) for arg in value.args]
        if value.op == "where":
            self._note_choice(value.args[1:], scope)
        of = value.args[1].dtype if value.op == "where" else value.args[0].dtype
        return self.writer.op(value.op, args, value.dtype, of)

    def guard_test(self, value: Value, scope: Scope) -> str:
        """The condition under which a guard's first argument is taken; empty if it always is."""
        tests: list[str] = []
        for item, low, high in value.bounds:
            if not at_least(item, low):
                tests.append(f"{self.place(item, scope)} >= {self.place(low, scope)}")
            if not at_least(high - 1, item):
                tests.append(f"{self.place(item, scope)} < {self.place(high, scope)}")
        return " && ".join(tests)

    def load(self, value: Value, scope: Scope) -> str:
        name = self.memory(value.buffer, write=False)
        self.out.touch(value.buffer, value.place)
        element = f"{name}[{self.place(value.place, scope)}]"
        dtype = self.buffers[value.buffer].dtype
        if dtype == torch.bfloat16:
            return f"{self.writer.helper('bf16_to_float')}({element})"
        if dtype == torch.float16:
            return f"(float){element}"
        if dtype == torch.bool:
            return f"({element} != 0)"
        return element

    def stored(self, text: str, dtype: torch.dtype) -> str:
        """A register value as what memory of ``dtype`` holds."""
        if dtype == torch.bfloat16:
            return f"{self.writer.helper('float_to_bf16')}({text})"
        if dtype == torch.float16:
            return f"(_Float16){text}"
        return text

    # -- locals ----------------------------------------------------------------------------------

    def children(self, value: Value, ranges: Range) -> tuple[Value, ...]:
        """Inputs of a value where guards that ``ranges`` decide have only the branch taken."""
        if value.kind == "guard":
            taken = decide(value.bounds, ranges)
            if taken is not None:
                return (value.args[0] if taken else value.args[1],)
        return value.inputs()

    def needed(self, roots: Sequence[Value], ranges: Range, scope: Scope) -> tuple[list[Value], set[int]]:
        """(values needed below ``roots`` and not in scope, inputs first; those certainly evaluated)."""
        order: dict[int, Value] = {}
        certain: set[int] = set()

        def visit(root: Value, sure: bool) -> None:
            stack = [(root, sure, False)]
            while stack:
                value, is_sure, ready = stack.pop()
                if value.number in scope:
                    continue
                if ready:
                    order.setdefault(value.number, value)
                    continue
                if value.number in order and (value.number in certain or not is_sure):
                    continue
                if is_sure:
                    certain.add(value.number)
                stack.append((value, is_sure, True))
                open_guard = value.kind == "guard" and decide(value.bounds, ranges) is None
                for child in reversed(self.children(value, ranges)):
                    guarded = open_guard and child in value.args
                    stack.append((child, is_sure and not guarded, False))

        for root in roots:
            visit(root, True)
        return list(order.values()), certain

    def define(
        self, roots: Sequence[Value], ranges: Range, scope: Scope,
        assign: Callable[[Value, str, str], str] | None = None,
        only: Callable[[Value], bool] = lambda value: True,
    ) -> Scope:  # fmt: skip
        """Emit locals for what ``roots`` need: values used twice, and results of loops. Returns the
        scope with them. Values behind an undecided guard stay inside its expression."""
        scope = dict(scope)
        order, certain = self.needed(roots, ranges, scope)
        uses: dict[int, int] = {}
        for root in roots:
            uses[root.number] = uses.get(root.number, 0) + 1
        for value in reversed(order):  # a guard that is decided is what it gives, as often as it is used
            decided = value.kind == "guard" and decide(value.bounds, ranges) is not None
            for child in self.children(value, ranges):
                once = not decided or child not in value.args
                uses[child.number] = uses.get(child.number, 0) + (1 if once else uses[value.number])
        for value in order:
            if value.kind == "guard":
                taken = decide(value.bounds, ranges)
                if taken is not None:
                    noted = len(self.out.around[-1].body)
                    scope[value.number] = self.text(value.args[0] if taken else value.args[1], scope)
                    # it has no name: what it reads is read wherever its text will stand
                    self.inlined[value.number] = self.out.around[-1].body[noted:]
                    del self.out.around[-1].body[noted:]
                    continue
            if value.number not in certain or value.kind in ("const", "index", "reduced") or not only(value):
                continue
            # the result of a loop gets a name, unless all that is done with it is to store it
            named = value.number in self.names and value.kind == "op" and value not in roots
            if uses[value.number] < 2 and not named:
                continue
            hint = self.names.get(value.number) or (f"{value.buffer}_" if value.kind == "load" else "t")
            name = self.fresh(hint)
            text = strip(self.text(value, scope))
            kind = REGISTER_TYPES[value.dtype]
            if assign is not None:
                scope[value.number] = assign(value, name, text)
            else:
                self.out.add(f"const {kind} {name} = {text};", self.origins(value))
                scope[value.number] = name
        return scope

    def origins(self, value: Value) -> list[str]:
        return [value.origin]

    # -- loops -----------------------------------------------------------------------------------

    def _note_choice(self, arms: Iterable[Value], scope: Scope) -> None:
        self.chooses = self.chooses or any(
            value.kind == "load" and value.number not in scope for value in walk_values(arms)
        )

    def attributes(self) -> list[str]:
        """What has to be said before the function, when its loops have been printed."""
        written_out = len(self.values.nest.axes) > 1 and 0 < self.most_trips <= UNROLLED
        return [_WITHOUT_MASKS] if self.chooses and written_out else []

    def for_(
        self, axis: Axis, low: str = "0", high: str = "", step: int = 1, part: Part | None = None
    ) -> None:
        name = self.axis_names[axis.text]
        high = high or self.extent(axis)
        if axis in self.values.nest.axes[-1:]:
            trips = int(high) - int(low) if (low + high).isdigit() else UNROLLED + 1
            self.most_trips = max(self.most_trips, trips)
        advance = f"{name}++" if step == 1 else f"{name} += {step}"
        self.out.open(f"for (long {name} = {low}; {name} < {high}; {advance})", axes=(axis,), part=part)

    def extent(self, axis: Axis) -> str:
        return self.place(axis.extent, {})

    def segments(self, axis: Axis, roots: Sequence[Value], fixed: Range) -> list[tuple[int, int] | None]:
        """Ranges of ``axis`` within each of which every guard on it alone is decided."""
        order, _ = self.needed(roots, fixed, {})
        return segments(axis, [value.bounds for value in order if value.kind == "guard"])

    # -- work ------------------------------------------------------------------------------------

    def work(self) -> int:
        """Scalar operations of the whole kernel, transcendental ones counted as eight."""
        cost = sum(
            8 if value.op in TRANSCENDENTAL else 1
            for value in walk_values(self.values.roots)
            if value.kind != "const"
        )
        return product(axis.extent for axis in self.values.nest.axes).hint() * max(cost, 1)

    def parallel_pragma(self, clauses: str, loops: int) -> str:
        if self.work() < PARALLEL_WORK:
            return ""
        collapse = f" collapse({loops})" if loops > 1 else ""
        return f"#pragma omp parallel for{collapse}{clauses}"

    def store(self, item: Store, scope: Scope) -> None:
        name = self.memory(item.buffer, write=True)
        dtype = self.buffers[item.buffer].dtype
        text = strip(self.stored(self.text(item.value, scope), dtype))
        self.out.touch(item.buffer, item.place, write=True)
        self.out.add(f"{name}[{self.place(item.place, scope)}] = {text};", [item.loop.id])

    def checked_index(self, atom: Gathered, scope: Scope) -> str:
        """A gathered index, kept inside its buffer whatever the data says.

        gcc (12 and before, at least) takes the vector of bits that a comparison makes for a vector of
        offsets where an index is a comparison's result as a number, and reads anywhere. An AND with bits that
        it cannot know stands between the two."""
        text = strip(self.text(atom.value, scope))
        if may_be_one_bit(atom.value):
            self.hides_bits = True
            text = f"({text}) & {EVERY_BIT}"
        size = self.place(atom.size, scope)
        kept = f"{self.writer.helper('in_range')}({text}, {size})"
        if not self.guards:
            return kept  # reported by a statement of its own
        self.checks_bounds = True
        return f"({out_of_range(text, size)}, {kept})"

    def report_needed(self, roots: Sequence[Value], ranges: Range, before: Scope, scope: Scope) -> None:
        """Report what is surely gathered for ``roots`` beyond the scope ``before``; what stands behind a
        guard that ``ranges`` leave open is reported where it stands."""
        order, certain = self.needed(roots, ranges, before)
        self.report_gathers([value for value in order if value.number in certain], scope)

    def report_gathers(self, values: Iterable[Value], scope: Scope) -> None:
        """Note in ``bad`` every gathered index that is out of range (the caller raises IndexError)."""
        seen: set[str] = set()
        for value in values:
            for place in (value.place, *(item for bound in value.bounds for item in bound)):
                for atom in place.atoms():
                    if isinstance(atom, Gathered) and atom.text not in seen:
                        seen.add(atom.text)
                        self.checks_bounds = True
                        text = strip(self.text(atom.value, scope))
                        self.out.add(f"{out_of_range(text, self.place(atom.size, scope))};", [value.origin])


def out_of_range(text: str, size: str) -> str:
    """What notes that an index is not in ``[0, size)``."""
    return f"bad |= (unsigned long)({text}) >= (unsigned long)({size})"


def may_be_one_bit(value: Value) -> bool:
    """Whether a C compiler could make a comparison's result of an integer: all but what is read from memory,
    counted, a choice of such numbers, or a sum of them."""
    if value.dtype == torch.bool:
        return True
    if value.kind == "guard" or value.op == "where":
        chosen = value.args[-2:]
        return all(arg.kind == "const" for arg in chosen) or any(map(may_be_one_bit, chosen))
    if value.kind == "op" and value.op in ("cast", "add", "sub"):
        return any(map(may_be_one_bit, value.args))
    return value.kind == "op"


def strip(text: str) -> str:
    """``text`` without one pair of outer parentheses, if they belong together."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]


def make_accumulator(printer: KernelPrinter, item: Reduction, count: int) -> Accumulator:
    """Accumulator of a reduction, its C name taken."""
    return accumulator(item, printer.fresh(item.output), count, printer.buffers[item.output].dtype)


def memory_type(buffer: Buffer) -> str:
    if buffer.dtype not in MEMORY_TYPES:
        raise CodegenError(f"no C type for {buffer.dtype}")
    return MEMORY_TYPES[buffer.dtype]
