"""Draw a program from a seed: each step is run as it is drawn, so that every program is one that eager
takes."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from tests.fuzz import layouts
from tests.fuzz.execute import Runner, run_step, values
from tests.fuzz.meeting import meeting
from tests.fuzz.nothing import from_nothing
from tests.fuzz.program import Input, Program, Step

LEAST_STEPS = 12
MOST_ELEMENTS = 30_000
LARGEST = {torch.float16: 300.0, torch.bfloat16: 1e4}  # else 1e5: values beyond are not drawn from
SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 33, 65, 130]
SIZE_WEIGHTS = [3, 6, 8, 8, 8, 6, 5, 6, 3, 3, 4, 3, 2, 2, 1.5, 1]


class Skip(Exception):  # noqa: N818 - no error: another is drawn
    """This operation has nothing to work on here."""


@dataclass(frozen=True)
class Made:
    """A step that was drawn: its expression, how many results it has, and the value that it overwrites."""

    code: str
    results: int = 1
    writes: str = ""
    exact: bool | None = None


@dataclass(frozen=True)
class Operation:
    """One kind of step. ``make`` draws one (a text, or a :class:`Made`); :class:`Skip` where it cannot."""

    name: str
    family: str
    make: Callable[[Draw], str | Made]
    weight: float = 1.0
    exact: bool = False


OPERATIONS: dict[str, Operation] = {}
FAMILY_WEIGHTS: dict[str, float] = {}


def operation(
    family: str, name: str = "", weight: float = 1.0, exact: bool = False
) -> Callable[[Callable[[Draw], str | Made]], Callable[[Draw], str | Made]]:
    """Register a drawing function under its name."""

    def add(make: Callable[[Draw], str | Made]) -> Callable[[Draw], str | Made]:
        called = name or make.__name__.rstrip("_")
        assert called not in OPERATIONS, called
        OPERATIONS[called] = Operation(called, family, make, weight, exact)
        return make

    return add


class Value:
    """A value of the program being drawn: prints as its name, and knows its tensors, one for each call."""

    def __init__(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        self.name = name
        self.tensors = list(tensors)

    def __str__(self) -> str:
        return self.name

    @property
    def now(self) -> torch.Tensor:
        """Of the first call."""
        return self.tensors[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.now.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.now.shape)

    @property
    def dim(self) -> int:
        return self.now.dim()

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(item.shape) for item in self.tensors]

    @property
    def floating(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def integral(self) -> bool:
        return not self.dtype.is_floating_point and not self.dtype.is_complex and self.dtype != torch.bool

    def all(self, test: Callable[[torch.Tensor], Any]) -> bool:
        """Whether something holds of the tensors of every call."""
        with torch.no_grad():
            return all(bool(test(item)) for item in self.tensors)

    def within(self, low: float, high: float) -> bool:
        """Whether all elements lie between these, in every call."""
        return self.all(lambda x: x.numel() == 0 or bool(((x >= low) & (x <= high)).all()))


class Draw:
    """One program in the making. The methods are what operations draw with."""

    def __init__(self, seed: int, attempt: int = 0, device: str = "cpu") -> None:
        self.random = random.Random(seed * 1000 + attempt)
        self.seed = seed
        self.device = device
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.known: list[Value] = []
        self.scopes: list[dict[str, Any]] = []
        self.names = 0
        self._circumstances()

    # -- choices -------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def choice(self, items: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        return self.random.choices(list(items), weights)[0]

    def number(self) -> float:
        """A moderate constant."""
        return self.choice([0.5, 2.0, -1.0, 0.1, 1.5, -0.25, 3.0])

    def whole(self) -> int:
        return self.choice([1, 2, 3, -1, -2, 0])

    def boolean(self) -> bool:
        return self.chance(0.5)

    def axis(self, x: Value) -> int:
        """An axis of ``x``, counted from either end."""
        if not x.dim or any(len(shape) != x.dim for shape in x.shapes):
            raise Skip
        found = self.random.randrange(x.dim)
        return found - x.dim if self.chance(0.3) else found

    def axes(self, x: Value, least: int = 1) -> tuple[int, ...]:
        """Some distinct axes, in any order."""
        if x.dim < least:
            raise Skip
        return tuple(self.random.sample(range(x.dim), self.integer(least, x.dim)))

    # -- values --------------------------------------------------------------------------------

    def pick(self, test: Callable[[Value], Any] = lambda x: True) -> Value:
        """A value that a test holds of, a late one more likely."""
        fits = [item for item in self.known if test(item)]
        if not fits:
            raise Skip
        if self.chance(0.5):
            return fits[-1 - min(int(self.random.expovariate(0.7)), len(fits) - 1)]
        return self.random.choice(fits)

    def tensor(self, least: int = 0, most: int = 9) -> Value:
        """Any value of so many dimensions."""
        return self.pick(lambda x: least <= x.dim <= most)

    def floating(self, least: int = 0, most: int = 9, test: Callable[[Value], Any] = lambda x: True) -> Value:
        return self.pick(lambda x: x.floating and least <= x.dim <= most and test(x))

    def like(self, x: Value, test: Callable[[Value], Any] = lambda x: True) -> Value:
        """A value of the same shape and dtype."""
        return self.pick(lambda y: y.dtype == x.dtype and y.shapes == x.shapes and test(y))

    def partner(self, x: Value, into: bool = False) -> Value:
        """A value that broadcasts with ``x``: to the shape of ``x``, with ``into``."""

        def fits(y: Value) -> bool:
            try:
                shapes = [torch.broadcast_shapes(a, b) for a, b in zip(x.shapes, y.shapes)]
            except RuntimeError:
                return False
            if into:
                return shapes == [torch.Size(shape) for shape in x.shapes]
            return all(shape.numel() <= MOST_ELEMENTS for shape in shapes)

        return self.pick(fits)

    def new_input(self, sizes: Sequence[Sequence[int]], dtype: torch.dtype, fill: str = "normal") -> Value:
        """A further argument: ``sizes`` has a shape for each call."""
        shape = _tuple([self.term(list(column)) for column in zip(*sizes)])
        return self.add_input(shape, str(dtype).removeprefix("torch."), fill, "b", "")

    def term(self, column: list[int]) -> str:
        """A size in each call, in terms of the size names."""
        if len(set(column)) == 1:
            return str(column[0])
        for name in self.sizes[0]:
            for factor in (1, 2, 3):
                if [sizes[name] * factor for sizes in self.sizes] == column:
                    return name if factor == 1 else f"{name} * {factor}"
            for other in self.sizes[0]:
                if [sizes[name] * sizes[other] for sizes in self.sizes] == column:
                    return f"{name} * {other}"
        raise Skip

    def size(self, x: Value, axis: int) -> str:
        """Python for a size of ``x``, within the program."""
        if not x.dim or any(len(shape) != x.dim for shape in x.shapes):
            raise Skip
        axis %= x.dim
        differs = len({shape[axis] for shape in x.shapes}) > 1
        return f"{x}.shape[{axis}]" if differs or self.chance(0.15) else str(x.shape[axis])

    # -- building ------------------------------------------------------------------------------

    def _circumstances(self) -> None:
        choose = self.choice
        count = choose([1, 2, 3, 4], [1, 4, 4, 1])
        self.dims = {name: choose(SIZES, SIZE_WEIGHTS) for name in "ABCD"[:count]}
        if self.chance(0.03):
            self.dims[choose(list(self.dims))] = 0
        self.sizes: list[dict[str, int]] = [dict(self.dims)]
        self.dynamic: bool | None = choose([None, False, True], [6, 1, 2])
        if self.dynamic or self.chance(0.15):
            changing = [name for name in self.dims if self.chance(0.6)]
            for _ in range(choose([1, 2])):
                again = {
                    name: choose(SIZES, SIZE_WEIGHTS) if name in changing else size
                    for name, size in self.dims.items()
                }
                self.sizes.append(again)
        elif self.chance(0.1):
            self.sizes.append(dict(self.dims))
        self.mode = choose(["train", "twice", "grad", "no_grad", "inference"], [10, 2, 6, 1.5, 1])
        self.autocast = choose(["", "bfloat16", "float16"], [14, 1, 0.3])
        self.inside = self.boolean()
        self.main = choose(
            ["float32", "float64", "bfloat16", "float16", "int64", "int32", "complex64", "bool", "uint8"],
            [24, 4, 3, 3, 3, 1, 1.5, 0.5, 0.5],
        )
        self.grads = self.mode in ("train", "twice") or self.chance(0.2)
        self.special = self.chance(0.04)

    def add_input(self, shape: str, dtype: str, fill: str, view: str, base: str) -> Value:
        """Make an argument and its tensors. Skip if Python refuses it in any call."""
        floating = dtype.startswith(("float", "bfloat", "complex"))
        grad = floating and self.grads and self.mode != "inference" and self.chance(0.75)
        item = Input(self._name(), shape, dtype, fill, view, base, grad)
        self.inputs.append(item)
        try:
            made = [
                Runner(self._program(()), self.device).arguments(call)[-1] for call in range(len(self.sizes))
            ]
        except Exception as error:
            self.inputs.pop()
            raise Skip from error
        if any(tensor.numel() > MOST_ELEMENTS for tensor in made):
            self.inputs.pop()
            raise Skip
        if self.scopes:  # arguments that share no memory with those that are there
            value = Value(item.name, made)
            for scope, tensor in zip(self.scopes, made):
                scope[item.name] = tensor
            self.known.append(value)
            return value
        return Value(item.name, made)

    def _name(self) -> str:
        self.names += 1
        return f"v{self.names - 1}"

    def _program(self, results: Sequence[str]) -> Program:
        return Program(
            self.seed,
            tuple(self.inputs),
            tuple(self.steps),
            tuple(results),
            tuple(self.sizes),
            self.mode,
            self.autocast,
            self.inside,
            self.dynamic,
            captures=self.seed % 2 == 1,
        )

    def begin(self) -> None:
        """The first arguments, and their tensors."""
        for _ in range(self.choice([1, 2, 3, 4], [2, 4, 3, 1])):
            for _ in range(5):
                try:
                    self.add_input(*layouts.draw(self))
                except Skip:
                    continue
                break
        runner = Runner(self._program(()), self.device)
        calls = [runner.arguments(call) for call in range(len(self.sizes))]
        for position, item in enumerate(self.inputs):
            self.known.append(Value(item.name, [arguments[position] for arguments in calls]))
        self.runner = runner
        for arguments in calls:
            names = (item.name for item in self.inputs)
            self.scopes.append({"torch": torch, "F": F, **dict(zip(names, arguments))})

    def step(self) -> bool:
        """Draw a step and run it; whether one was added."""
        chosen = choose_operation(self)
        before = self.names, len(self.inputs), len(self.known)
        try:
            made = chosen.make(self)
        except Skip:
            self._back(before)
            return False
        made = Made(made) if isinstance(made, str) else made
        results = tuple(self._name() for _ in range(made.results))
        exact = chosen.exact if made.exact is None else made.exact
        step = Step(chosen.name, made.code, results, exact, made.writes)
        found: list[list[Any]] = [[] for _ in results]
        done = 0
        try:
            for scope in self.scopes:
                with self.runner.surroundings(always=True):
                    run_step(step, scope)
                done += 1
                for place, name in enumerate(results):
                    found[place].append(scope[name])
            if not all(map(self._usable, found)) or (made.writes and not self._moderate()):
                raise Skip
        except Exception:
            if made.writes and done:
                raise Restart from None  # it has been done in a part of the calls, or is not to be
            self._back(before)
            return False
        self.steps.append(step)
        for name, tensors in zip(results, found):
            self.known.append(Value(name, tensors))
        if made.writes:
            self._refresh()
        return True

    def _back(self, before: tuple[int, int, int]) -> None:
        self.names, inputs, known = before
        del self.inputs[inputs:], self.known[known:]

    def _usable(self, tensors: list[Any]) -> bool:
        return all(
            isinstance(item, torch.Tensor)
            and item.numel() <= MOST_ELEMENTS
            and item.dim() <= 6
            and (self.special or moderate(item))
            for item in tensors
        )

    def _moderate(self) -> bool:
        return self.special or all(moderate(item) for value in self.known for item in value.tensors)

    def _refresh(self) -> None:
        """After something that may change shapes: the names still mean the same tensors."""
        for value in self.known:
            value.tensors = [scope[value.name] for scope in self.scopes]

    def results(self) -> tuple[str, ...]:
        """What is returned: what nothing else reads, and now and then more."""
        read = {name for step in self.steps for name in step.operands}
        made = [name for step in self.steps for name in step.results]
        unread = [name for name in made if name not in read]
        found = unread if len(unread) <= 10 else self.random.sample(unread, 10)
        for name in [value.name for value in self.known]:
            if name not in found and self.chance(0.08):
                found.append(name)
        if self.chance(0.02) and found:
            found.append(found[0])
        self.random.shuffle(found)
        return tuple(found)


class Restart(Exception):  # noqa: N818
    """What was drawn cannot be gone on with."""


def moderate(x: torch.Tensor) -> bool:
    """Finite, and not so large that the next steps overflow."""
    if not (x.is_floating_point() or x.is_complex()):
        return (
            x.dtype in (torch.bool, torch.uint8, torch.int8)
            or not x.numel()
            or int(x.detach().abs().max()) < 10**6
        )
    with torch.no_grad():
        return not x.numel() or float(x.detach().abs().max()) <= LARGEST.get(x.dtype, 1e5)  # False for NaN


def choose_operation(d: Draw) -> Operation:
    families = sorted({item.family for item in OPERATIONS.values()})
    family = d.choice(families, [FAMILY_WEIGHTS.get(name, 1.0) for name in families])
    members = [item for item in OPERATIONS.values() if item.family == family]
    return d.choice(members, [item.weight for item in members])  # type: ignore[no-any-return]


def _tuple(terms: Sequence[str]) -> str:
    return f"({terms[0]},)" if len(terms) == 1 else f"({', '.join(terms)})"


def draw(seed: int, device: str = "cpu", least: int = LEAST_STEPS) -> Program:
    """The program of a seed, of at least ``least`` steps (the same one each time)."""
    from tests.fuzz import operations

    operations.load()
    for attempt in range(50):
        program = _attempt(Draw(seed, attempt, device), least)
        if program is not None:
            return from_nothing(program, device) or program
    raise RuntimeError(f"no program came of seed {seed}")


UNEVEN = frozenset("elu selu celu hardswish hardsigmoid hardtanh relu6 softshrink".split())
"""Whose gradients at NaN are others in ATen's vector code than at the end of a row, so that no compiler can
agree with both."""


def _even(program: Program) -> Program:
    """Without NaN among the arguments if eager does not treat it alike everywhere."""
    if not program.trains or UNEVEN.isdisjoint(step.op for step in program.steps):
        return program
    inputs = tuple(
        replace(item, fill="normal") if item.fill == "special" else item for item in program.inputs
    )
    return replace(program, inputs=inputs)


def _attempt(d: Draw, least: int) -> Program | None:
    wanted = d.integer(least, least + 8)
    state = torch.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            d.begin()
            for _ in range(20 * wanted):
                if d.step() and len(d.steps) >= wanted:
                    break
            else:
                return None
            made = _checked(_even(d._program(d.results())), d.device, least)
            return made and meeting(made, d.device)
    except (Skip, Restart):
        return None
    finally:
        torch.set_rng_state(state)


def _checked(program: Program, device: str, least: int) -> Program | None:
    """Without what nothing reads, if eager takes it as a whole. Where eager refuses only the gradients, and
    AOTAutograd therefore all, nine in ten go without."""
    program = without_unread_inputs(program)
    if len(program.steps) < least or not program.results or not program.inputs:
        return None
    runner = Runner(program, device)
    outcomes = [runner.run(call) for call in range(len(program.sizes))]
    if any(outcome.error is not None and outcome.stage == "call" for outcome in outcomes):
        return None
    if program.mode == "grad" and any(item.grad for item in program.inputs):
        runner = Runner(replace(program, mode="train"), device)
        outcomes = [runner.run(call) for call in range(len(program.sizes))]
    if not any(outcome.error is not None for outcome in outcomes):
        return program
    if program.seed % 10:
        program = replace(program, inputs=tuple(replace(item, grad=False) for item in program.inputs))
    return replace(program, mode="grad")


def without_unread_inputs(program: Program) -> Program:
    """The program without arguments that nothing reads, unless another is a view of the same memory."""
    read = {name for step in program.steps for name in step.operands} | set(program.results)
    bases = {item.base for item in program.inputs}
    kept = tuple(item for item in program.inputs if item.name in read or item.name in bases)
    meet = {*program.meets} <= {item.name for item in kept}
    return replace(program, inputs=kept, meets=program.meets if meet else ())


__all__ = ["Draw", "Made", "Mapping", "Restart", "Skip", "Value", "draw", "operation", "values"]
