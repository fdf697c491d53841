"""What differs between two runs of one program, and whether rounding explains it.

Numbers may be off by what eager's own rounding may be off by: the program runs several times with errors of
that size put into each step, and a compiled value has to lie among what comes out. Where it does not, a run
in float64 says whether eager was nearer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzz.execute import Outcome

SLACK = 4.0  # how far beyond the spread of noisy runs, in spreads
NOTHING = 1e3  # what is less by so much is nothing, where the noise says what is chosen
MANY = 20  # integers that rounding moves in the noisy runs, for each one that it moved in ours alone
ULPS = 8.0  # and in units of the last place of the largest value of the tensor


@dataclass(frozen=True)
class Difference:
    """``kind`` is what sort of difference, ``place`` where: ``"result 2"``."""

    kind: str
    place: str
    note: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        return (self.kind, self.place)

    def __str__(self) -> str:
        return f"{self.kind} of {self.place}{': ' + self.note if self.note else ''}"


Many = Callable[[], Sequence[Outcome]]
"""Runs with noise, made when they are first needed."""


def differences(
    expected: Outcome, got: Outcome, noisy: Many, wide: Callable[[], Outcome | None], largest: float = 0.0,
    coarsest: float = 0.0,
) -> list[Difference]:  # fmt: skip
    """All that differs, but for numbers that rounding explains, be it that of a number as large as
    ``largest`` of which nothing is left in the result. ``coarsest``: the unit of the last place of the
    shortest type that gradients may have been added up in."""
    if expected.error is not None:
        return []  # whatever it does then: eager refuses it, there or at backward
    found: list[Difference] = []
    if got.error is not None:
        found.append(Difference(f"raises {describe(got.error)}", got.stage, str(got.error)[:300]))
        if got.stage != "backward":
            return found
    if len(expected.results) != len(got.results):
        return [Difference("count", "results", f"{len(got.results)}, eager has {len(expected.results)}")]
    judge, back = Judge(noisy, wide, largest), Judge(noisy, wide, largest, coarsest)
    for number, (a, b) in enumerate(zip(expected.results, got.results)):
        found += described(a, b, f"result {number}")
        found += judge.values(a, b, f"result {number}", lambda run, n=number: run.results[n])
    for number, (a, b) in enumerate(zip(expected.inputs, got.inputs)):
        found += described(a, b, f"input {number}", "input ")
        found += judge.values(a, b, f"input {number}", lambda run, n=number: run.inputs[n], "input ")
    found += aliasing(expected, got)
    if got.error is not None:
        return found
    for time, (one, two) in enumerate(zip(expected.gradients, got.gradients)):
        for number, (a, b) in enumerate(zip(one, two)):
            place = f"gradient {number}{' again' if time else ''}"
            if (a is None) != (b is None):
                found.append(
                    Difference("gradient-none", place, f"eager has {'none' if a is None else 'one'}")
                )
            elif a is not None:
                found += described(a, b, place, "gradient ", strides=False)
                found += back.values(
                    a, b, place, lambda run, t=time, n=number: run.gradients[t][n], "gradient "
                )
    if len(expected.gradients) != len(got.gradients):
        found.append(
            Difference("gradient-none", "all", f"{len(got.gradients)}, eager {len(expected.gradients)}")
        )
    if not torch.equal(expected.generator, got.generator) and not any(
        run.generator is not None and not torch.equal(expected.generator, run.generator) for run in noisy()
    ):  # rrelu draws for each number that is not above 0: rounding may decide how many
        found.append(Difference("generator", "state"))
    return found


def describe(error: BaseException) -> str:
    """The innermost exception's class, which is what stays alike while a program is reduced."""
    while True:
        inner = getattr(error, "inner_exception", None) or error.__cause__  # Dynamo's, of a backend's
        if inner is None:
            return type(error).__name__
        error = inner


def described(a: Any, b: Any, place: str, prefix: str = "", strides: bool = True) -> list[Difference]:
    """Differences of all but the values."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        same = type(a) is type(b) and (isinstance(a, torch.Tensor) or a == b or a != a)
        return [] if same else [Difference(prefix + "values", place, f"{b!r}, eager {a!r}")]
    for what, one, two in (
        ("dtype", a.dtype, b.dtype),
        ("shape", tuple(a.shape), tuple(b.shape)),
        ("device", a.device, b.device),
        ("requires_grad", a.requires_grad, b.requires_grad),
        ("inference", a.is_inference(), b.is_inference()),
        (
            "conjugate",
            a.is_conj() and not prefix,
            b.is_conj() and not prefix,
        ),  # of a result; a gradient may be
    ):
        if one != two:
            return [Difference(prefix + what, place, f"{two}, eager {one}")]
    if strides and seen_strides(a) != seen_strides(b):
        return [
            Difference(prefix + "strides", place, f"{b.stride()}, eager {a.stride()}, shape {tuple(a.shape)}")
        ]
    return []


def seen_strides(x: torch.Tensor) -> list[int]:
    """Strides of the axes that are walked at all."""
    if x.numel() < 2:
        return []
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1]


def aliasing(expected: Outcome, got: Outcome) -> list[Difference]:
    """Which of the arguments and results share memory, in either run."""
    one, two = memory(expected), memory(got)
    found = []
    for place, mine in one.items():
        for other, theirs in one.items():
            if other <= place or place not in two or other not in two:
                continue
            together, ours = mine[0] == theirs[0], two[place][0] == two[other][0]
            if together != ours:
                kind = "alias-lost" if together else "alias-made"
                found.append(Difference(kind, f"{place} and {other}"))
            elif together and place.startswith("input") and mine[1] != two[place][1]:
                found.append(Difference("offset", place, f"{two[place][1]}, eager {mine[1]}"))
    return found


def memory(outcome: Outcome) -> dict[str, tuple[int, int]]:
    """Storage and offset of each tensor that has any."""
    named = [(f"input {n}", item) for n, item in enumerate(outcome.inputs)]
    named += [(f"result {n}", item) for n, item in enumerate(outcome.results)]
    return {
        name: (item.untyped_storage()._cdata, item.storage_offset())
        for name, item in named
        if isinstance(item, torch.Tensor) and item.numel()
    }


class Judge:
    """Decides whether numbers are as near as they have to be."""

    def __init__(
        self, noisy: Many, wide: Callable[[], Outcome | None], largest: float, coarsest: float = 0.0
    ) -> None:
        self.noisy = noisy
        self.largest = largest
        self.coarsest = coarsest
        self.wide = wide

    def values(
        self, a: Any, b: Any, place: str, find: Callable[[Outcome], Any], prefix: str = ""
    ) -> list[Difference]:
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.shape != b.shape:
            return []
        a, b = plain(a), plain(b)
        if torch.equal(a, b) or bool(same(a, b).all()):
            return []
        others = []
        for run in self.noisy():
            other = self._find(run, find)
            if other is not None and other.shape == a.shape:
                others.append(plain(other))
        wrong = ~same(a, b) & ~within(a, b, others, self.largest, self.coarsest)
        if not bool(wrong.any()):
            return []
        exact = self._exact(find)
        if exact is not None and exact.shape == a.shape:
            wrong &= ~nearer(a, b, plain(exact))
        if not bool(wrong.any()):
            return []
        where = tuple(wrong.nonzero()[0].tolist()) if wrong.dim() else ()
        note = (
            f"{int(wrong.sum())} of {wrong.numel()}, at {where}: {b[where].item()}, eager {a[where].item()}"
        )
        return [Difference(prefix + "values", place, note)]

    def _exact(self, find: Callable[[Outcome], Any]) -> torch.Tensor | None:
        run = self.wide()
        return None if run is None else self._find(run, find)

    @staticmethod
    def _find(run: Outcome, find: Callable[[Outcome], Any]) -> torch.Tensor | None:
        if run.error is not None:
            return None
        try:
            found = find(run)
        except IndexError:
            return None
        return found if isinstance(found, torch.Tensor) else None


def largest(outcome: Outcome) -> float:
    """The largest finite number among the arguments and results; at least one."""
    found = 1.0
    for item in (*outcome.inputs, *outcome.results):
        if (
            isinstance(item, torch.Tensor)
            and (item.is_floating_point() or item.is_complex())
            and item.numel()
        ):
            size = plain(item).abs().double()
            size = size[size.isfinite()]
            found = max(found, float(size.max()) if size.numel() else 0.0)
    return found


def plain(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().cpu()
    x = x.to(torch.complex64) if x.dtype == torch.complex32 else x  # of which ATen compares none
    return x.resolve_conj().resolve_neg().clone()


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Equal, or both NaN."""
    if a.dtype != b.dtype:
        return torch.zeros(a.shape, dtype=torch.bool)
    return (a == b) | ((a != a) & (b != b))


def parts(x: torch.Tensor) -> torch.Tensor:
    """As float64, a complex number as two."""
    return torch.view_as_real(x).double() if x.is_complex() else x.double()


def within(
    a: torch.Tensor, b: torch.Tensor, others: Sequence[torch.Tensor], largest: float = 0.0,
    coarsest: float = 0.0,
) -> torch.Tensor:  # fmt: skip
    """Where ``b`` lies among eager's ``a`` and the noisy runs. Of integers, where the noise itself moves
    them; where it moves many, a few more may be as near to another number and not have been hit. Of others
    too where a number is nothing in some runs and something in others, by what was chosen among equals."""
    runs = torch.stack([a, *others])
    if not (a.is_floating_point() or a.is_complex()):
        moved = (runs != runs[:1]).any(0)
        missed = int((~moved & (a != b)).sum())
        return torch.ones_like(moved) if missed * MANY <= int(moved.sum()) else moved
    seen, at = parts(runs), parts(b)
    finite = torch.where(seen.isfinite(), seen, torch.zeros(()))
    low, high = seen.amin(0), seen.amax(0)  # NaN wherever one run has it
    eps = torch.finfo(a.dtype).eps
    scale = finite.abs().amax() if finite.numel() else torch.zeros(())
    slack = (
        SLACK * (high - low)
        + ULPS * eps * (scale + largest + seen.abs().amax(0))
        + coarsest * scale
        + torch.finfo(a.dtype).tiny
    )
    fine = (at >= low - slack) & (at <= high + slack)
    odd = ~seen.isfinite()
    fine |= odd.any(0) & ~odd.all(0)  # it overflows in some runs: a matter of rounding
    fine |= odd.all(0) & (seen != seen[:1]).any(0) & ~(seen != seen).all(0)
    least, most = seen.abs().amin(0), seen.abs().amax(0)
    chosen = (most > NOTHING * least) & (scale < NOTHING * most)
    elsewhere = ~fine & (scale > NOTHING * least) & (at.abs() <= scale)
    if int(elsewhere.sum()) <= int(chosen.sum()):
        fine |= elsewhere
    return fine.all(-1) if a.is_complex() else fine


def nearer(a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Where ``b`` is not much farther from the float64 result than eager's ``a`` is there, or not farther
    than ``a`` is where it is worst."""
    if not (a.is_floating_point() or a.is_complex()):
        return b == exact.to(b.dtype)
    one, two, best = parts(a), parts(b), parts(exact)
    error = torch.where((one == best) | (one.isnan() & best.isnan()), torch.zeros(()), (one - best).abs())
    ours = torch.where((two == best) | (two.isnan() & best.isnan()), torch.zeros(()), (two - best).abs())
    fine = ours <= 2 * error + ULPS * torch.finfo(a.dtype).eps * best.abs()
    known = error[error.isfinite()]
    fine |= ours <= (known.max() if known.numel() else 0.0)
    fine |= ~one.isfinite() & best.isfinite() & two.isfinite() & (ours <= 0.1 * (1 + best.abs()))
    if a.dtype == torch.float16:  # eager overflows on the way, of which there is much where it happens at all
        largest = best[best.isfinite()].abs().amax() if best.isfinite().any() else 0.0
        beyond = two.isinf() & (best.abs() > torch.finfo(a.dtype).max / 8)
        fine |= ~one.isfinite() & best.isfinite() & (beyond | (ours <= 2 * largest))
    return fine.all(-1) if a.is_complex() else fine
