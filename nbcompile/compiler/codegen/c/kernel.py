"""What every kernel of C is printed with, whatever its nest: names, expressions, locals, loops, and the
checks of gathered indices. The nests are told apart in ``nests``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import torch

from nbcompile.compiler.codegen.c.expressions import (
    CALLED,
    HALVES,
    MEMORY_TYPES,
    ONE_AT_A_TIME,
    REGISTER_TYPES,
    CWriter,
    by_integers,
    c_functions,
    constant,
    index_code,
    may_be_one_bit,
)
from nbcompile.compiler.codegen.expression import Expression, loose, name
from nbcompile.compiler.codegen.printed import Lines
from nbcompile.compiler.kernel_ir.guard_ranges import MOST_SEGMENTS, Range, decide, segments
from nbcompile.compiler.kernel_ir.values import Gathered, KernelValues, Store, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL
from nbcompile.compiler.loop_ir.index import ONE, Atom, Axis, IndexExpr, Size, at_least, product
from nbcompile.compiler.loop_ir.nodes import Buffer, hint_product
from nbcompile.compiler.loop_ir.versions import Part, Touch, Walk
from nbcompile.errors import CodegenError

PARALLEL_WORK = 40_000  # scalar operations below which waking threads costs more than it gives
EVERY_BIT = (
    "every_bit"  # of generated code: a number with all bits set, of which the C compiler knows nothing
)
LONGEST = 200_000  # characters of an expression
RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if int long "
    "register return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "exp log sin cos tan sqrt pow erf floor ceil trunc fmod abs bad threads main inline restrict bool y0 y1 "
    "yn j0 j1 jn gamma div signal index remainder status every_bit".split()
) | c_functions()  # fmt: skip


Scope = Mapping[int, Expression]
"""Values that are known by a name here, or as an element of an array: value number → that."""


class KernelPrinter:
    """What every kernel of C is printed with: names, expressions, locals, loops."""

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
        self.looks_ahead = False  # at indices, before the nest (see ``checks``)
        self.stops = Lines(depth=1)  # ahead of the nest, where it would index what has no elements
        self.looked_at: set[tuple[Value, str]] = set()  # indices, each with its text, that were found good
        self.hides_bits = False
        self.calls_library = calls_library(walk_values(values.roots))  # in the loop that is being written
        self.guards = 0  # around the expression that is being written
        for item in values.stores:  # the memory has first claim on a buffer's name
            self.memory(item.buffer, write=True)
        self.reduced: dict[str, Expression] = {}  # finished results of rows
        self.inlined: dict[int, list[Walk | Touch]] = {}  # what values without a name read

    # -- names ---------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """A name like ``hint`` that nothing else has here."""
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
        """The parameter that a buffer's memory is, noting what is done with it."""
        (self.writes if write else self.reads)[buffer] = None
        if buffer not in self.buffer_names:
            self.buffer_names[buffer] = self.fresh(buffer)
        return self.buffer_names[buffer]

    # -- expressions -----------------------------------------------------------------------------

    def place(self, place: IndexExpr, scope: Scope) -> str:
        """An index as C."""
        return self.index(place, scope).text

    def index(self, place: IndexExpr, scope: Scope, dtype: torch.dtype | None = None) -> Expression:
        """An index as an expression of type ``dtype``, noting the sizes in it."""

        def name_of(atom: Atom) -> str:
            if isinstance(atom, Size):
                self.sizes[atom.text] = None
                return atom.text
            if isinstance(atom, Gathered):
                return self.checked_index(atom, scope)
            return self.axis_names[atom.text]

        return index_code(place, name_of, dtype)

    def code(self, value: Value, scope: Scope) -> Expression:
        """``value`` as a C expression, using the names in scope. What is shared behind a guard stands in its
        text as often as it is used: CodegenError where that is out of all proportion."""
        made = self._code(value, scope)
        if len(made.text) > LONGEST:
            raise CodegenError(f"the C of {value.op or value.kind} would have over {LONGEST:,} characters")
        return made

    def _code(self, value: Value, scope: Scope) -> Expression:
        if value.number in scope:
            self.out.around[-1].body += self.inlined.get(value.number, ())
            return scope[value.number]
        if value.kind == "const":
            return constant(value.literal, value.dtype)
        if value.kind == "load":
            return self.load(value, scope)
        if value.kind == "index":
            return self.index(value.place, scope, value.dtype)
        if value.kind == "reduced":
            return self.reduced[value.buffer]
        if value.kind == "guard":
            test = self.guard_test(value, scope)
            if not test:
                return self.code(value.args[0], scope)
            self.guards += 1
            inside, outside = (self.code(arg, scope).operand for arg in value.args)
            self.guards -= 1
            return loose(f"{test} ? {inside} : {outside}", value.dtype)
        erf = erf_before_one(value)
        if erf is not None and erf.number not in scope:
            called = self.writer.helper("erf_plus_one", value.dtype)
            return Expression(f"{called}({self.code(erf.args[0], scope).text})", value.dtype)
        if made := by_integers(value):
            name, kind, number = made
            text = f"{kind}{self.writer.helper(name, number.dtype)}({self.code(number, scope).text})"
            return loose(text, value.dtype) if kind else Expression(text, value.dtype)
        args = [self.code(arg, scope) for arg in value.args]
        if value.op == "exp" and self.calls_library:
            return Expression(f"{self.writer.libm('exp', value.dtype)}({args[0].text})", value.dtype)
        if self.calls_library and (picked := self.writer.picked(value.op, args, value.dtype)):
            return picked
        return self.writer.op(value.op, args, value.dtype)

    def guard_test(self, value: Value, scope: Scope) -> str:
        """The condition under which a guard's first argument is taken; empty if it always is."""
        tests: list[str] = []
        for item, low, high in value.bounds:
            if not at_least(item, low):
                tests.append(f"{self.place(item, scope)} >= {self.place(low, scope)}")
            if not at_least(high - 1, item):
                tests.append(f"{self.place(item, scope)} < {self.place(high, scope)}")
        return " && ".join(tests)

    def load(self, value: Value, scope: Scope) -> Expression:
        """What a load reads, in its type in a register."""
        memory = self.memory(value.buffer, write=False)
        self.out.touch(value.buffer, value.place)
        element = f"{memory}[{self.place(value.place, scope)}]"
        return self.loaded(element, self.buffers[value.buffer].dtype, value.dtype)

    def loaded(self, element: str, memory: torch.dtype, dtype: torch.dtype) -> Expression:
        """An element of memory of type ``memory`` as a register of type ``dtype`` has it."""
        if memory in HALVES:
            return Expression(f"{self.writer.helper(f'{HALVES[memory]}_to_float')}({element})", dtype)
        return loose(f"{element} != 0", dtype) if memory == torch.bool else Expression(element, dtype)

    def stored(self, value: Expression, dtype: torch.dtype) -> Expression:
        """A register value as what memory of ``dtype`` holds."""
        if dtype not in HALVES:
            return value
        half = HALVES[dtype]
        if (element := _argument(value.text, f"{half}_to_float")) is not None:  # it is only copied
            return Expression(element, dtype)
        text = _argument(value.text, f"round_{half}") or value.operand  # what is rounded once stays so
        return Expression(f"{self.writer.helper(f'float_to_{half}')}({text})", dtype)

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
                children = self.children(value, ranges)
                open_guard = value.kind == "guard" and len(children) > 1
                for child in reversed(children):
                    guarded = open_guard and child in value.args
                    stack.append((child, is_sure and not guarded, False))

        for root in roots:
            visit(root, True)
        return list(order.values()), certain

    def define(self, roots: Sequence[Value], ranges: Range, scope: Scope) -> Scope:
        """Emit locals for what ``roots`` need: values used twice, results of loops, and what is read to be
        chosen or not. Returns the scope with them. Values behind an undecided guard stay inside its
        expression."""
        order, certain = self.needed(roots, ranges, scope)
        uses = self._uses(roots, order, ranges)
        chosen_from = _loads_to_choose_from(order, uses)
        for value in order:
            if value.kind == "guard":
                taken = decide(value.bounds, ranges)
                if taken is not None:
                    noted = len(self.out.around[-1].body)
                    chosen = self.code(value.args[0] if taken else value.args[1], scope)
                    scope = {**scope, value.number: chosen}
                    # it has no name: what it reads is read wherever its text will stand
                    self.inlined[value.number] = self.out.around[-1].body[noted:]
                    del self.out.around[-1].body[noted:]
                    continue
            if value.number not in certain or value.kind in ("const", "index", "reduced"):
                continue
            # the result of a loop gets a name, unless all that is done with it is to store it
            named = value.number in self.names and value.kind == "op" and value not in roots
            if uses[value.number] > 1 or named or value.number in chosen_from:
                scope = self.declared(value, scope)
        return scope

    def _uses(self, roots: Sequence[Value], order: Sequence[Value], ranges: Range) -> dict[int, int]:
        """How often each value is read below ``roots``, ``order`` having users last."""
        uses: dict[int, int] = {}
        for root in roots:
            uses[root.number] = uses.get(root.number, 0) + 1
        for value in reversed(order):  # a guard that is decided is what it gives, as often as it is used
            decided = value.kind == "guard" and decide(value.bounds, ranges) is not None
            for child in self.children(value, ranges):
                once = not decided or child not in value.args
                uses[child.number] = uses.get(child.number, 0) + (1 if once else uses[value.number])
        return uses

    def declared(self, value: Value, scope: Scope, *, gathers: bool = False) -> Scope:
        """The scope with a constant that holds ``value``, after what it ``gathers`` from outside is noted."""
        hint = self.names.get(value.number) or (f"{value.buffer}_" if value.kind == "load" else "t")
        local = self.fresh(hint)
        text = self.code(value, scope).text
        if gathers:
            self.report_gathers([value], scope)
        self.constant(local, value.dtype, text, value.origin)
        return {**scope, value.number: name(local, value.dtype)}

    def constant(self, local: str, dtype: torch.dtype, text: str, origin: str) -> None:
        """Declare a constant."""
        self.out.add(f"const {REGISTER_TYPES[dtype]} {local} = {text};", [origin])

    def made(self, values: Sequence[Value], scope: Scope) -> Scope:
        """The scope with constants for those of ``values`` that are computed and have no name yet: what is
        about to be overwritten may be needed for them."""
        for value in values:
            if value.number not in scope and value.kind in ("op", "load", "guard"):
                scope = self.declared(value, scope)
        return scope

    # -- loops -----------------------------------------------------------------------------------

    def for_(
        self, axis: Axis, piece: tuple[int, int] | None = None, part: Part | None = None,
        between: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Open the loop over an axis, over a ``piece`` of it, or ``between`` two names."""
        local = self.axis_names[axis.text]
        low, high = between or (("0", self.extent(axis)) if piece is None else map(str, piece))
        self.out.open(f"for (long {local} = {low}; {local} < {high}; {local}++)", axes=(axis,), part=part)

    def extent(self, axis: Axis) -> str:
        """The extent of an axis as C."""
        return self.place(axis.extent, {})

    def segments(
        self, axis: Axis, roots: Sequence[Value], fixed: Range, most: int = MOST_SEGMENTS
    ) -> list[tuple[int, int] | None]:
        """Ranges of ``axis``, at ``most`` so many, within each of which every guard on it alone is decided
        where others are in the ranges ``fixed``."""
        order, _ = self.needed(roots, fixed, {})
        guards = [
            value.bounds for value in order if value.kind == "guard" and decide(value.bounds, fixed) is None
        ]
        return segments(axis, guards, fixed, most)

    # -- work ------------------------------------------------------------------------------------

    def work(self) -> int:
        """Scalar operations of the whole kernel, transcendental ones counted as eight."""
        cost = sum(
            8 if value.op in TRANSCENDENTAL else 1
            for value in walk_values(self.values.roots)
            if value.kind != "const"
        )
        return product(axis.extent for axis in self.values.nest.axes).hint() * max(cost, 1)

    def parallel_pragma(self, clauses: str, loops: int, *, begun: bool = False) -> str:
        """What makes threads of the next ``loops``, or shares these out among threads that have ``begun``;
        empty where there is too little work for them."""
        if self.work() < PARALLEL_WORK:
            return ""
        collapse = f" collapse({loops})" if loops > 1 else ""
        return f"#pragma omp {'' if begun else 'parallel '}for{collapse}{clauses}"

    def store(self, item: Store, scope: Scope) -> None:
        """Write a value to memory."""
        memory = self.memory(item.buffer, write=True)
        dtype = self.buffers[item.buffer].dtype
        text = self.stored(self.code(item.value, scope), dtype).text
        self.out.touch(item.buffer, item.place, write=True)
        self.out.add(f"{memory}[{self.place(item.place, scope)}] = {text};", [item.loop.id])

    def store_all(self, stores: Sequence[Store], scope: Scope) -> None:
        """Write values to memory, what is overwritten last. Of two that are, the second may be made of what
        the first overwrites: it is made before."""
        ordered = sorted(stores, key=lambda item: item.last)
        for number, item in enumerate(ordered):
            for other in ordered[number + 1 :] if item.last else ():
                named = other.value.number in scope and other.value.number not in self.inlined
                if not named and any(read.buffer == item.buffer for read in walk_values([other.value])):
                    scope = self.declared(other.value, scope)
                    self.inlined.pop(other.value.number, None)
            self.store(item, scope)

    def checked_index(self, atom: Gathered, scope: Scope) -> str:
        """A gathered index, kept inside its buffer whatever the data says.

        gcc (12 and before, at least) takes the vector of bits that a comparison makes for a vector of
        offsets where an index is a comparison's result as a number, and reads anywhere. An AND with bits that
        it cannot know stands between the two."""
        text = self.code(atom.value, scope).text
        if may_be_one_bit(atom.value):
            self.hides_bits = True
            text = f"({text}) & {EVERY_BIT}"
        size = self.place(atom.size, scope)
        if not at_least(atom.size, ONE):
            self._stop_if_none(atom, size)
        kept = f"{self.writer.helper('in_range')}({text}, {size})"
        if not self.guards or (atom.value, atom.text) in self.looked_at:
            return kept  # reported by a statement of its own
        self.checks_bounds = True
        return f"({out_of_range(text, size)}, {kept})"

    def _stop_if_none(self, atom: Gathered, size: str) -> None:
        """Leave the function, which has no place to keep an index in, where a dimension has no elements."""
        unsure = [axis.extent for axis in atom.value.axes if not at_least(axis.extent, ONE)]
        tests = [f"{size} < 1", *(f"{self.place(extent, {})} > 0" for extent in unsure)]
        line = f"if ({' && '.join(tests)}) {{ *status = 1; return; }}"
        if not any(line == other.strip() for other in self.stops.text):
            self.stops.add(line, [atom.value.origin])
        self.checks_bounds = True

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
                for atom in self.unlooked(place):
                    if atom.text not in seen:
                        seen.add(atom.text)
                        self.checks_bounds = True
                        text = self.code(atom.value, scope).text
                        self.out.add(f"{out_of_range(text, self.place(atom.size, scope))};", [value.origin])

    def unlooked(self, place: IndexExpr) -> list[Gathered]:
        """The indices in a place that the nest has to look at itself."""
        atoms = sorted(place.atoms(), key=lambda atom: atom.text)
        found = [atom for atom in atoms if isinstance(atom, Gathered)]
        return [atom for atom in found if (atom.value, atom.text) not in self.looked_at]


def out_of_range(text: str, size: str) -> str:
    """What notes that an index is not in ``[0, size)``."""
    return f"bad |= (unsigned long)({text}) >= (unsigned long)({size})"


def calls_library(values: Iterable[Value]) -> bool:
    """Whether a loop that makes these calls the library: it then has no registers left for what could be
    written out in it."""
    made = list(values)
    written_out = {erf.number for erf in map(erf_before_one, made) if erf is not None}
    return any(value.op in CALLED and value.number not in written_out for value in made)


def erf_before_one(value: Value) -> Value | None:
    """The ``erf(x)`` of ``erf(x) + 1``, a part of gelu: beside 1, more than its first digits is lost."""
    if value.op != "add" or value.dtype != torch.float32:
        return None
    erf, one = value.args
    return erf if erf.op == "erf" and one.kind == "const" and one.literal == 1 else None


_BOOL_FORKS = ("add", "mul", "maximum", "minimum")
"""What is printed as ``&&`` or ``||`` on truth values."""


def _loads_to_choose_from(order: Sequence[Value], uses: Mapping[int, int]) -> set[int]:
    """What C would read on one path only, behind a ``?``, ``&&`` or ``||``: no compiler may read it on the
    other, where it could lie nowhere, so gcc makes loads under a mask of it, with faults of their own (see
    ``runtime/c/if_conversion.py``), or no vectors at all. ``order`` has users last."""
    chosen: set[int] = set()
    for value in reversed(order):
        behind = value.number in chosen and uses[value.number] == 1
        forks = value.op in ("where", "and", "or") or (value.dtype == torch.bool and value.op in _BOOL_FORKS)
        paths = value.args[1:] if forks else ()
        chosen |= {child.number for child in (value.args if behind else paths)}
    loads = (value for value in order if value.kind == "load" and not gathered(value.place))
    return {value.number for value in loads if value.number in chosen}


def memory_type(buffer: Buffer) -> str:
    """The C type of a buffer's elements. CodegenError if there is none."""
    if buffer.dtype not in MEMORY_TYPES:
        raise CodegenError(f"no C type for {buffer.dtype}")
    return MEMORY_TYPES[buffer.dtype]


def _argument(text: str, function: str) -> str | None:
    """What a call of ``function``, and nothing else, is given; None if ``text`` is not that."""
    if not (text.startswith(f"{function}(") and text.endswith(")")):
        return None
    inner = text[len(function) + 1 : -1]
    depths = accumulate((char == "(") - (char == ")") for char in inner)
    return inner if all(depth >= 0 for depth in depths) else None


def contiguous(values: KernelValues, buffers: Mapping[str, Buffer], axis: Axis) -> int:
    """Bytes walked with stride one along ``axis``, less those walked with a larger stride."""
    loads = [value for value in walk_values(values.roots) if value.kind == "load"]
    places = [(value.place, value.buffer, value.axes) for value in loads]
    places += [(item.place, item.buffer, frozenset(item.place.axes())) for item in values.stores] * 2
    score = 0
    for place, buffer, axes in places:
        step = place.coefficient(axis)
        # a vector read along one axis counts for little beside the tensors of the whole nest
        points = hint_product(a.extent for a in axes)
        weight = buffers[buffer].dtype.itemsize * points
        if step is None or not (step == 0 or step == ONE):
            score -= weight
        elif step == ONE:
            score += weight
    return score


def in_vectors(roots: Sequence[Value]) -> bool:
    """Whether the C compiler may take several points at a time where ``roots`` are made at each."""
    return all(value.op not in ONE_AT_A_TIME for value in walk_values(roots))
