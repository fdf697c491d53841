"""A call and its gradient, compiled and in eager: values judged by float64, and everything else that a
program can see: dtypes, strides, shared memory, which gradients there are, what was overwritten.

Many calls become one program, so that one compile serves them all; those that differ in it are compiled
again alone, and with ``aot_eager``, which shows the differences that are AOTAutograd's.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from tests.compiler.lower.harness import fresh

Cotangent = Literal["contiguous", "expanded", "transposed"]

_WIDE = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}  # fmt: skip
_RTOL = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float16: 5e-3, torch.bfloat16: 4e-2}


@dataclass(frozen=True)
class Case:
    """One call ``function(*args, **kwargs)``. ``twice`` multiplies the first result by the first tensor, so
    that an input is used twice; ``graded`` asks for gradients with a random ``cotangent`` of that layout."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    twice: bool = False
    graded: bool = True
    cotangent: Cotangent = "contiguous"

    def __call__(self, args: Any, kwargs: Any) -> Any:
        result = self.function(*args, **kwargs)
        if not self.twice:
            return result
        first, given = next(tensors(result)), next(tensors((args, kwargs)))
        return first * given, result


@dataclass
class Seen:
    """What one call left: its results' leaves, the inputs as they are afterwards, gradients of those that
    have one (None: it has none), and which tensors share memory (pairs of places, inputs first)."""

    results: list[Any]
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]
    shared: frozenset[tuple[int, int]]
    needs: tuple[bool, ...]


def tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def copied(case: Case, wide: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments in memory of their own, as leaves that need a gradient if the case is graded."""

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, torch.dtype):
            return _WIDE.get(leaf, leaf) if wide else leaf
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = leaf.to(_WIDE[leaf.dtype]) if wide and leaf.dtype in _WIDE else fresh(leaf.detach())
        return made.requires_grad_(case.graded and differentiable(leaf))

    found: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(copy, (case.args, case.kwargs))
    return found


def cotangent(result: torch.Tensor, layout: Cotangent, seed: int) -> torch.Tensor:
    """A random gradient of ``result``, the same for every dtype and contestant."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if result.is_complex() else torch.float64
    shape = list(result.shape)
    if layout == "expanded":
        return torch.randn((), generator=generator, dtype=wide).to(result.dtype).expand(shape)
    made = torch.randn(shape, generator=generator, dtype=wide)
    if layout == "transposed" and len(shape) > 1:
        made = made.transpose(0, -1).contiguous().transpose(0, -1)
    return made.to(result.dtype)


def observe(case: Case, given: tuple[Any, Any], result: Any, gradients: dict[int, torch.Tensor]) -> Seen:
    inputs = list(tensors(given))
    results = pytree.tree_leaves(result)
    every = [*inputs, *results]
    return Seen(
        [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in results],
        [item.detach() for item in inputs],
        [gradients.get(id(item)) for item in inputs if item.requires_grad],
        frozenset(
            (one, two)
            for two in range(len(inputs), len(every))
            for one in range(two)
            if same_memory(every[one], every[two])
        ),
        tuple(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in results),
    )


def same_memory(one: Any, two: Any) -> bool:
    if not (isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor)) or not one.numel() * two.numel():
        return False
    return one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr()


def run(cases: Sequence[Case], backend: Callable[..., Any] | str | None, wide: bool = False) -> list[Seen]:
    """All cases in one program, in eager if there is no backend, and one backward pass."""
    given = [copied(case, wide) for case in cases]

    def program(given: Any) -> Any:
        return [case(*arguments) for case, arguments in zip(cases, given, strict=True)]

    torch.manual_seed(7)
    if backend is not None:
        torch._dynamo.reset()
        results = torch.compile(program, backend=backend, dynamic=False)(given)
    else:
        results = program(given)
    ends, grads = [], []
    for case, result in zip(cases, results, strict=True):
        for number, leaf in enumerate(tensors(result)):
            if case.graded and leaf.requires_grad:
                ends.append(leaf)
                grads.append(cotangent(leaf, case.cotangent, number))
    starts = [item for item in tensors(given) if item.requires_grad]
    found: dict[int, torch.Tensor] = {}
    if ends:
        made = torch.autograd.grad(ends, starts, grads, allow_unused=True)
        found = {id(item): each for item, each in zip(starts, made, strict=True) if each is not None}
    return [
        observe(case, arguments, result, found)
        for case, arguments, result in zip(cases, given, results, strict=True)
    ]


# -- differences --------------------------------------------------------------------------------


def differences(got: Seen, eager: Seen, wide: Seen | None) -> list[str]:
    """What a program could tell apart, in words; empty if nothing."""
    found: list[str] = []
    every = tensors((eager.inputs, eager.results))
    rtol = max((_RTOL.get(item.dtype, 1e-4) for item in every if differentiable(item)), default=0.0)
    if len(got.results) != len(eager.results):
        return [f"{len(got.results)} results, eager has {len(eager.results)}"]
    for n, (mine, theirs) in enumerate(zip(got.results, eager.results, strict=True)):
        found += _result(f"result {n}", mine, theirs, wide.results[n] if wide else None, rtol)
    for n, (mine, theirs) in enumerate(zip(got.inputs, eager.inputs, strict=True)):
        found += _result(f"input {n} afterwards", mine, theirs, wide.inputs[n] if wide else None, rtol)
    if got.needs != eager.needs:
        found.append(f"requires_grad of the results {got.needs}, in eager {eager.needs}")
    if got.shared != eager.shared:
        ours, its = sorted(got.shared - eager.shared), sorted(eager.shared - got.shared)
        found.append(f"shared memory: only compiled {ours}, only eager {its} ({len(got.inputs)} inputs)")
    for n, (mine, theirs) in enumerate(zip(got.gradients, eager.gradients, strict=True)):
        if mine is None or theirs is None:
            if mine is not theirs:
                has, lacks = ("eager", "ours") if mine is None else ("ours", "eager")
                found.append(f"gradient {n} is None: {has} has one, {lacks} none")
            continue
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            found.append(f"gradient {n}: {mine.dtype}{[*mine.shape]}, eager {theirs.dtype}{[*theirs.shape]}")
            continue
        found += _values(f"gradient {n}", mine, theirs, wide.gradients[n] if wide else None, rtol)
    return found


def _result(name: str, mine: Any, theirs: Any, wide: Any, rtol: float) -> list[str]:
    if not isinstance(theirs, torch.Tensor):
        same = type(mine) is type(theirs) and (mine == theirs or mine != mine)
        return [] if same else [f"{name}: {mine!r}, eager {theirs!r}"]
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return [f"{name}: {mine.dtype}{[*mine.shape]}, eager {theirs.dtype}{[*theirs.shape]}"]
    found = []
    # What ATen conjugates or negates only when it is read (some of torch.fft's results) we hand out as read.
    same_bits = mine.is_conj() == theirs.is_conj() and mine.is_neg() == theirs.is_neg()
    if mine.layout == torch.strided and same_bits and steps(mine) != steps(theirs):
        found.append(f"{name}: strides {mine.stride()}, eager {theirs.stride()} of {tuple(mine.shape)}")
    return found + _values(name, mine, theirs, wide, rtol)


def steps(x: torch.Tensor) -> list[int]:
    """The strides that mean something."""
    return [step for step, extent in zip(x.stride(), x.shape, strict=True) if extent > 1 and x.numel()]


def _values(
    name: str, mine: torch.Tensor, theirs: torch.Tensor, wide: torch.Tensor | None, rtol: float
) -> list[str]:
    """Each element must be near eager's or near float64's, as near as the roughest dtype of the case allows:
    eager rounds each step in half types, we only what is stored."""
    if mine.layout != theirs.layout:
        return [f"{name}: {mine.layout}, eager {theirs.layout}"]
    if mine.layout != torch.strided:
        mine, theirs = mine.to_dense(), theirs.to_dense()
        wide = wide.to_dense() if wide is not None else None
    if not differentiable(theirs):
        return [] if torch.equal(mine, theirs) else [f"{name}: {_places(mine, theirs, mine != theirs)}"]
    bad = ~_near(mine, theirs, theirs, rtol, 0.0)
    if bad.any() and wide is not None and wide.shape == theirs.shape:
        rounded = wide.to(theirs.dtype)
        # what eager is wrong by, we may be as well
        finite = (rounded - theirs).abs().nan_to_num(0.0, 0.0, 0.0)
        bad &= ~_near(mine, rounded, theirs, rtol, 4 * finite.max().item())
    return [f"{name}: {_places(mine, theirs, bad, wide)}"] if bad.any() else []


def _near(
    mine: torch.Tensor, other: torch.Tensor, scale: torch.Tensor, rtol: float, more: float
) -> torch.Tensor:
    size = scale.abs().double()
    largest = torch.where(size.isfinite(), size, 0.0).max().item() if size.numel() else 0.0
    atol = rtol * 0.1 * max(largest, 1.0) + more
    if mine.is_complex():
        one, two = torch.view_as_real(mine.resolve_conj()), torch.view_as_real(other.resolve_conj())
        return torch.isclose(one.double(), two.double(), rtol, atol, equal_nan=True).all(-1)
    return torch.isclose(mine.double(), other.double(), rtol, atol, equal_nan=True)


def _places(mine: torch.Tensor, theirs: torch.Tensor, bad: torch.Tensor, wide: Any = None) -> str:
    place = tuple(bad.nonzero()[0].tolist())
    true = f", float64 {wide[place].item()}" if wide is not None and wide.shape == theirs.shape else ""
    return (
        f"{int(bad.sum())} of {bad.numel()} elements; at {place} {mine[place].item()}, "
        f"eager {theirs[place].item()}{true}"
    )


# -- the contest --------------------------------------------------------------------------------


_LEFT = re.compile(
    r"ran eagerly: .*("
    r"memory of .* is not what it holds"  # a conjugate is a flag
    r"|would lose what is written to"  # AOTAutograd's treatment of numbers as tensors
    r"|a result whose elements share memory"
    r"|may leave its memory: reads .*\[0\]"  # as_strided shows what an empty tensor does not have
    r"|storage of SparseTensorImpl)"
)
"""What is left to eager, and says so."""


@dataclass
class Finding:
    """A case that differs from eager. ``torchs``: ``aot_eager`` or fake tensors differ in the same way."""

    case: str
    what: list[str]
    torchs: bool = False
    company: bool = False  # only beside the others, not alone

    def __str__(self) -> str:
        note = " (torch itself)" if self.torchs else " (only beside other cases)" if self.company else ""
        return f"{self.case}{note}: " + "; ".join(self.what)

    @property
    def is_left(self) -> bool:
        """Whether all that it says is that a graph was left to eager, for a reason that is known."""
        return all(map(_LEFT.search, self.what))


def ours(recorder: Recorder) -> Callable[..., Any]:
    """Our backend with a record that can be asked what ran eagerly."""
    from nbcompile.backends.nbcompile import nbcompile_backend

    def backend(module: Any, inputs: Any) -> Any:
        return nbcompile_backend(module, inputs, options={"recorder": recorder, "cache": False})

    return backend


def compiled(cases: Sequence[Case]) -> list[Seen] | str:
    """What our compiler's program left, or why there is none: it raised, or did not run."""
    recorder = Recorder(Options(cache=False))
    try:
        seen = run(cases, ours(recorder))
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if recorder.ran_eagerly:
        return "ran eagerly: " + "; ".join(recorder.ran_eagerly.values())[:300]
    return seen


def settled(case: Case) -> tuple[Case, Seen, Seen | None] | None:
    """The case as eager takes it, without gradients if it has none, and what eager and float64 leave. None if
    eager raises, or does not give the same twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for graded in (True, False) if case.graded else (False,):
            case = replace(case, graded=graded)
            try:
                (eager,) = run([case], None)
                torch.manual_seed(8)
                (again,) = _seeded_otherwise(case)
            except Exception:
                continue
            if differences(again, eager, None):
                return None
            try:
                (wide,) = run([case], None, wide=True)
            except Exception:
                return case, eager, None
            if [_shape(item) for item in wide.results] != [_shape(item) for item in eager.results]:
                return case, eager, None
            return case, eager, wide
    return None


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else None


def _seeded_otherwise(case: Case) -> list[Seen]:
    """The case in eager again after other random numbers: what differs now is random, or uninitialised."""
    seed = torch.manual_seed
    torch.manual_seed = lambda _: seed(11)
    try:
        torch.full((4096,), 1.0)  # freed at once: what is uninitialised may hold it
        return run([case], None)
    finally:
        torch.manual_seed = seed


def contest(cases: Sequence[Case]) -> tuple[list[Finding], int]:
    """(what differs, how many cases eager takes)."""
    known = [found for found in map(settled, cases) if found is not None]
    return _together(known), len(known)


def _together(known: list[tuple[Case, Seen, Seen | None]]) -> list[Finding]:
    if not known:
        return []
    seen = compiled([case for case, _, _ in known])
    if isinstance(seen, str):
        if len(known) == 1:
            return [_alone(*known[0])]
        half = len(known) // 2
        found = _together(known[:half]) + _together(known[half:])
        together = f"{known[0][0].name} to {known[-1][0].name}"
        return found or [Finding(together, [seen], company=True)]
    found = []
    for got, (case, eager, wide) in zip(seen, known, strict=True):
        what = differences(got, eager, wide)
        if what and len(known) == 1:
            found.append(_judged(case, what, eager, wide))
        elif what:
            alone = compiled([case])
            again = [alone] if isinstance(alone, str) else differences(alone[0], eager, wide)
            made = _judged(case, again or what, eager, wide)
            found.append(replace(made, company=not again))
    return found


def _alone(case: Case, eager: Seen, wide: Seen | None) -> Finding:
    seen = compiled([case])
    what = [seen] if isinstance(seen, str) else differences(seen[0], eager, wide)
    return _judged(case, what or ["only the first time"], eager, wide)


def _judged(case: Case, what: list[str], eager: Seen, wide: Seen | None) -> Finding:
    """Whether torch's own AOTAutograd differs from eager in the same respects."""
    try:
        (third,) = run([case], "aot_eager")
    except Exception as error:
        torchs = what[0].startswith((f"{type(error).__name__}:", "ran eagerly: AOTAutograd"))
        return Finding(case.name, what, torchs)
    its = {kind(item) for item in differences(third, eager, wide)} | misplaced(case, eager)
    return Finding(case.name, what, torchs={kind(item) for item in what} <= its)


def misplaced(case: Case, eager: Seen) -> set[str]:
    """The kinds of difference that a compiler cannot but have: torch's fake tensors, which are all that it
    sees, have other strides than the operator's results."""
    args, kwargs = copied(case)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
    try:
        with mode:
            results = pytree.tree_leaves(case(*fakes))
    except Exception:
        return set()
    pairs = enumerate(zip(results, eager.results, strict=True))
    return {
        f"result {n}:strides"
        for n, (fake, real) in pairs
        if isinstance(real, torch.Tensor) and real.layout == torch.strided and steps(fake) != steps(real)
    }


def kind(difference: str) -> str:
    """What a difference is about, without its numbers."""
    name, _, rest = difference.partition(":")
    return f"{name}:{'strides' if rest.startswith(' strides') else ''}"
