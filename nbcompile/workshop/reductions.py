"""Judges of notebook 07, and what it counts and asks with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import nbcompile
from nbcompile.compiler.compile_graph import generate
from nbcompile.compiler.passes import Setting
from nbcompile.compiler.pipeline import GPU
from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.options import Options
from nbcompile.record.compilation import Kernel
from nbcompile.record.recorder import Recorder
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, function, keyed, number, record_of, returned, shown, traffic

State = tuple[Any, Any]
"""Of the online softmax: the largest so far, and the sum of exponentials relative to it."""
Part = tuple[int, Any, Any]
"""Of Welford's variance: how many, their mean, the sum of squared distances from it."""

INF = math.inf
TRAFFIC = (512, 4096)
"""Rows and columns of the matrix whose traffic the exercise asks for."""


class Counted:
    """A tensor in slow memory: the bytes read from it and written to it are counted."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.read, self.written = tensor, 0, 0

    def __getitem__(self, place: Any) -> torch.Tensor:
        found = self.tensor[place].clone()
        self.read += found.nbytes
        return found

    def __setitem__(self, place: Any, value: torch.Tensor) -> None:
        self.tensor[place] = value
        self.written += self.tensor[place].nbytes


def kernels_for(
    fn: Callable[..., Any],
    *shapes: Sequence[int],
    target: str = "cuda:90",
    dtype: torch.dtype = torch.float32,
) -> tuple[Kernel, ...]:
    """The kernels that our compiler prints for a GPU, whatever is here. They are not built and nothing is
    run: the tensors have a shape and no memory, so a matrix of 64 GB costs nothing."""

    def only_print(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        generate(aten, GPU, Setting(options, recorder))
        return CompiledModule(aten.id, lambda args: aten.module.forward(*args))

    compiled = nbcompile.compile(fn, options={"target": target}, compile_aten=only_print)
    compiled(*(torch.empty(tuple(shape), dtype=dtype, device="meta") for shape in shapes))
    return compiled.compilation.kernels


# -- bytes ----------------------------------------------------------------------------------------


def _three(x: Counted, y: Counted) -> None:
    rows = len(x.tensor)
    means = [float(x[row].mean()) for row in range(rows)]
    variances = [float((x[row] - means[row]).square().mean()) for row in range(rows)]
    for row in range(rows):
        y[row] = (x[row] - means[row]) / math.sqrt(variances[row] + 1e-5)


def _two(x: Counted, y: Counted) -> None:
    rows, width = x.tensor.shape
    found: list[Part] = []
    for row in range(rows):
        state: Part = (0, torch.zeros(()), torch.zeros(()))
        for start in range(0, width, 512):
            state = _welford(state, _part(x[row, start : start + 512]))
        found.append(state)
    for row, (count, mean, m2) in enumerate(found):
        y[row] = (x[row] - mean) / torch.sqrt(m2 / count + 1e-5)


def _one(x: Counted, y: Counted) -> None:
    for row in range(len(x.tensor)):
        held = x[row]
        y[row] = (held - held.mean()) / torch.sqrt(held.var(correction=0) + 1e-5)


_WALKS: dict[str, Callable[[Counted, Counted], None]] = {"three": _three, "two": _two, "one": _one}


@exercise("reductions.bytes")
def walks(answer: Mapping[str, float]) -> str:
    """How many bytes each of three walks of a layer norm moves, within 2%. Each walks over :class:`Counted`
    tensors of the shape ``TRAFFIC``."""
    keyed(answer, _WALKS, "a number of bytes")
    given = torch.randn(TRAFFIC)
    expected = torch.nn.functional.layer_norm(given, TRAFFIC[1:])
    for name, walk in _WALKS.items():
        x, y = Counted(given), Counted(torch.empty(TRAFFIC))
        walk(x, y)
        torch.testing.assert_close(y.tensor, expected, rtol=1e-3, atol=1e-3)
        moved = x.read + y.written
        said = number(answer[name], f"What the walk of {name!r} moves")
        if said <= 0:
            raise WrongAnswerError(f"The walk of {name!r} moves something.")
        if abs(said - moved) > 0.02 * moved:
            factor = said / moved
            hint = "Count how often each element is read, and do not forget the result."
            if abs(factor - given.numel() / given.nbytes) < 0.01:
                hint = "That is the number of elements moved: a float32 has several bytes."
            elif factor < 1 and abs(moved - said - y.written) < 0.02 * moved:
                hint = "The result is written too."
            raise WrongAnswerError(
                f"The walk of {name!r} moved {factor:.2g} times less than that. {hint}"
                if factor > 1
                else f"The walk of {name!r} moved {1 / factor:.2g} times as much. {hint}"
            )
    record = record_of(lambda x: torch.nn.functional.layer_norm(x, TRAFFIC[1:]), given)
    return (
        f"each was walked and counted. Our compiler makes {len(record.kernels)} kernel of it, which by its "
        f"record moves {traffic(record) / 1e6:.1f} MB: the one-pass figure is what a fused kernel is held to."
    )


# -- the online softmax ---------------------------------------------------------------------------


def _rows() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(7)

    def normal(size: int) -> torch.Tensor:
        return torch.randn(size, generator=random)

    return {
        "random numbers": normal(50),
        "a row that rises, so that the maximum changes in every block": normal(50).sort().values * 3,
        "a row that falls, so that the maximum never changes": normal(50).sort(descending=True).values * 3,
        "numbers about 10,000": normal(50) * 50 + 1e4,
        "numbers about -10,000": normal(50) * 50 - 1e4,
        "one element": normal(1),
        "a row that begins with -inf (as masks make them)": torch.cat([torch.full((9,), -INF), normal(41)]),
        "a row that ends with -inf": torch.cat([normal(41), torch.full((9,), -INF)]),
        "a row with a NaN in the middle": torch.cat([normal(20), torch.tensor([math.nan]), normal(20)]),
        "a row with an infinity in the middle": torch.cat([normal(20), torch.tensor([INF]), normal(20)]),
        "a row of nothing but -inf": torch.full((20,), -INF),
    }  # fmt: skip


def _on(name: str, answer: Callable[..., Any], *arguments: Any) -> Any:
    return called(answer, "Your function", *arguments, when=f"on {name}")


def _state(value: Any, wrote: str) -> tuple[torch.Tensor, torch.Tensor]:
    returned(... if isinstance(value, tuple) and any(item is ... for item in value) else value, wrote)
    try:
        largest, total = (torch.as_tensor(item, dtype=torch.float32).reshape(()) for item in value)
    except (TypeError, ValueError, RuntimeError):
        raise WrongAnswerError(f"{wrote} is to return two numbers, (m, s).") from None
    return largest, total


def _finished(row: torch.Tensor, state: State, wrote: str, name: str, hint: str) -> None:
    """Finish a softmax with the state, and compare."""
    largest, total = _state(state, wrote)
    got = torch.exp(row - largest) / total
    expected = torch.softmax(row.double(), -1).float()
    if torch.allclose(got, expected, rtol=1e-4, atol=1e-6, equal_nan=True):
        return
    bad = int((~torch.isclose(got, expected, rtol=1e-4, atol=1e-6, equal_nan=True)).nonzero()[0])
    raise WrongAnswerError(
        f"On {name} it ends with m = {largest.item():.4g}, s = {total.item():.4g}: element {bad} of the "
        f"softmax is then {got[bad].item():.4g}, not {expected[bad].item():.4g}. {hint}"
    )


def _hint(row: torch.Tensor, when_finite: str) -> str:
    if bool((row == -INF).any()):
        return "What is -inf minus -inf, and where does it arise?"
    if bool((row.abs() > 1e3).any()):
        return "Which exponentials overflow or vanish, and relative to which maximum are they taken?"
    return when_finite


@exercise("reductions.online")
def online(answer: Callable[[Any, Any, Any], State]) -> str:
    """A function ``update(m, s, block)`` that takes a block into the state of an online softmax. It gets rows
    of many kinds in blocks of three sizes, and the softmax from its last state must be PyTorch's. A block of
    nothing but -inf must leave a state as it is."""
    function(answer, "update(m, s, block)")
    rows = _rows()
    for size in (1, 7, 64):
        for name, row in rows.items():
            m, s = torch.tensor(-INF), torch.tensor(0.0)
            for block in torch.split(row, size):
                m, s = _state(_on(name, answer, m, s, block.clone()), "update")
            when = "The sum was taken relative to an older maximum: what must become of it when that changes?"
            _finished(row, (m, s), "update", f"{name}, in blocks of {size}", _hint(row, when))
    for m, s in ((torch.tensor(-INF), torch.tensor(0.0)), (torch.tensor(2.0), torch.tensor(3.0))):
        found = _state(_on("a block of -inf", answer, m, s, torch.full((4,), -INF)), "update")
        if not (torch.equal(found[0], m) and torch.equal(found[1], s)):
            raise WrongAnswerError(
                f"A block of nothing but -inf is to leave the state ({m:.0f}, {s:.0f}) as it is, "
                f"and it became ({found[0]:.3g}, {found[1]:.3g}). Look at each difference of infinities."
            )
    return (
        f"{len(rows)} rows in blocks of 1, 7 and 64 give torch.softmax's result, NaN where it has NaN. "
        "Two numbers a row are all that a pass has to keep."
    )


@exercise("reductions.merge")
def merging(answer: Callable[[State, State], State]) -> str:
    """A function ``merge(a, b)`` of two states of an online softmax. It merges the parts of rows of many
    kinds, one after the other and as a tree, and the softmax from its result must be PyTorch's."""
    function(answer, "merge(a, b)")
    rows = _rows()
    cuts = (1, 5, 10, 16)
    for name, row in rows.items():
        for cut in cuts:
            states = [_reference(part) for part in torch.split(row, cut)]
            if cut == 10:
                states.reverse()
            whole = (torch.tensor(-INF), torch.tensor(0.0))
            for state in states:
                whole = _state(_on(name, answer, whole, state), "merge")
            when = "The two sums are relative to different maxima: bring both to one before you add them."
            _finished(row, whole, "merge", f"{name}, in parts of {cut}", _hint(row, when))
            while len(states) > 1:  # as a tree
                pairs = [states[n : n + 2] for n in range(0, len(states), 2)]
                states = [
                    _state(_on(name, answer, *pair), "merge") if len(pair) == 2 else pair[0] for pair in pairs
                ]
            _finished(
                row, states[0], "merge", f"{name}, merged as a tree of parts of {cut}", _hint(row, when)
            )
    empty = (torch.tensor(-INF), torch.tensor(0.0))
    found = _state(_on("two empty states", answer, empty, empty), "merge")
    if found[0] != -INF or found[1] != 0:
        raise WrongAnswerError("Two states of nothing, (-inf, 0), are to make one of nothing again.")
    programs = kernels_for(lambda x: torch.softmax(x, -1), (4096, 131072))[0].schedule
    return (
        "in any order, and as a tree. On an H100 our compiler shares a row of 131,072 out in the same way: "
        f"its schedule is '{programs}', and at their meeting they merge such pairs."
    )


def _reference(row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    largest = row.max()
    pivot = torch.where(largest == -INF, torch.tensor(0.0), largest)
    return largest, torch.exp(row - pivot).sum()


# -- Welford --------------------------------------------------------------------------------------


def _part(values: torch.Tensor) -> Part:
    if not values.numel():
        return 0, torch.zeros(()), torch.zeros(())
    return values.numel(), values.mean(), (values - values.mean()).square().sum()


def _welford(a: Part, b: Part) -> Part:
    count = a[0] + b[0]
    if not count:
        return a
    delta = b[1] - a[1]
    return count, a[1] + delta * (b[0] / count), a[2] + b[2] + delta * delta * (a[0] * b[0] / count)


@exercise("reductions.welford")
def welford(answer: Callable[[Part, Part], Part]) -> str:
    """A function ``merge_moments(a, b)`` of the (count, mean, m2) of two parts. What it makes of the parts of
    each case must be the moments of the whole."""
    function(answer, "merge_moments(a, b)")
    random = torch.Generator().manual_seed(11)
    cases = {
        "two halves": (torch.randn(64, generator=random), (32, 32)),
        "parts of different length with different means": (
            torch.cat([torch.randn(10, generator=random), torch.randn(90, generator=random) + 5]), (10, 90)
        ),
        "parts of which one is empty": (torch.randn(40, generator=random) + 1, (0, 40, 0)),
        "numbers about 10,000 with a variance near 1": (
            torch.randn(1000, generator=random) + 1e4, (300, 200, 500)
        ),
        "many parts of one": (torch.randn(100, generator=random) * 3 - 7, (1,) * 100),
        "two empty parts": (torch.zeros(0), (0, 0)),
    }  # fmt: skip
    for name, (values, lengths) in cases.items():
        state: Part = _part(values[:0])
        for piece in torch.split(values, list(lengths)):
            found = returned(_on(name, answer, state, _part(piece)), "merge_moments")
            if not isinstance(found, tuple | list) or len(found) != 3:
                raise WrongAnswerError("merge_moments is to return three numbers: (count, mean, m2).")
            state = _moments(found)
        _same_moments(name, values, state)
    return (
        f"{len(cases)} ways of cutting, numbers about 10,000 among them: only distances from a mean near "
        "them are squared, never the numbers themselves."
    )


def _moments(found: Any) -> Part:
    try:
        count, mean, m2 = (torch.as_tensor(each, dtype=torch.float64).reshape(()) for each in found)
    except (TypeError, ValueError, RuntimeError):
        raise WrongAnswerError("merge_moments is to return three numbers: (count, mean, m2).") from None
    if not bool(count.isfinite()) or float(count) != count.round():
        raise WrongAnswerError(f"The count that merge_moments returns is to be whole, not {float(count):g}.")
    return int(count), mean, m2


def _same_moments(name: str, values: torch.Tensor, state: Part) -> None:
    count, mean, m2 = state
    if count != values.numel():
        raise WrongAnswerError(f"For {name} the count is {count}, of {values.numel()} numbers.")
    if not count:
        if float(mean) != 0 or float(m2) != 0:
            raise WrongAnswerError(f"For {name} mean and m2 are to stay 0.")
        return
    exact = values.double()
    if not abs(float(mean) - float(exact.mean())) <= 1e-4 * (1 + abs(float(exact.mean()))):  # NaN too
        raise WrongAnswerError(
            f"For {name} the mean is {float(mean):.6g}, not {float(exact.mean()):.6g}: "
            "a part counts by its length."
        )
    variance, truth = float(m2) / count, float(exact.var(correction=0))
    if not abs(variance - truth) <= 5e-3 * truth:
        raise WrongAnswerError(
            f"For {name} the variance is {variance:.4g}, not {truth:.4g}. What do the squared distances lack "
            "that were taken from a part's own mean, and is anything squared that is not a distance?"
        )


# -- schedules ------------------------------------------------------------------------------------

CASES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, int]]] = {
    "a": (lambda x: torch.softmax(x, -1), (8192, 2048)),
    "b": (lambda x: x.sum(-1), (2, 1_000_000)),
    "c": (lambda x: torch.softmax(x, -1), (2048, 100_000)),
    "d": (lambda x: x.sum(-1), (8192, 100_000)),
    "e": (lambda x: torch.logsumexp(x, -1), (2, 100_000)),
}
"""What the schedules are asked of: a function, and the shape of its float32 input."""
WORDS = ("persistent", "looped", "shared", "split")


@exercise("reductions.schedules")
def schedules(answer: Mapping[str, str]) -> str:
    """Which of ``WORDS`` the schedule is that our compiler chooses for each of ``CASES`` on a ``cuda:90``
    GPU."""
    keyed(answer, CASES, "a word")
    right = 0
    missed = []
    for name, (fn, shape) in CASES.items():
        said = str(answer[name]).lower()
        if said not in WORDS:
            raise WrongAnswerError(
                f"{name!r} is {shown(answer[name])}; each of {', '.join(CASES)} is one of {', '.join(WORDS)}."
            )
        (kernel,) = kernels_for(fn, shape)
        if next(word for word in ("shared", *WORDS) if word in kernel.schedule) == said:
            right += 1
        else:
            missed.append(name)
    if missed:
        raise WrongAnswerError(
            f"{right} of {len(CASES)} are right. Look again at {', '.join(missed)}: does a row fit into "
            "registers, is it needed again once its result is known, and are there rows enough for all "
            "multiprocessors?"
        )
    return "the compiler chose the same five. " + "; ".join(
        f"{name}: {kernels_for(fn, shape)[0].schedule}" for name, (fn, shape) in CASES.items()
    )
