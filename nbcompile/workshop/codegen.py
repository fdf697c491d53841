"""Judges of notebook 08, and the kernels that it asks to be mended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

import nbcompile
from nbcompile.bench.measure.timing import interleaved, quiet
from nbcompile.compiler.attempt import Attempt
from nbcompile.compiler.stages import KernelCall
from nbcompile.errors import NbcompileError
from nbcompile.record.compilation import Kernel
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, function, keyed, record_of, returned, whole_number

ROWS, WIDTH = 2048, 1000
FASTER = 8
"""Times as fast as the slow kernel that an answer must be."""


def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """RMS norm: each row divided by the root of its mean square, and weighted."""
    scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    return x * scale * w


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row: what :func:`broken_mask` computes wrongly."""
    return torch.softmax(x, -1)


def example() -> tuple[torch.Tensor, torch.Tensor]:
    """What :func:`norm` is called with, the same each time: ``ROWS`` rows of ``WIDTH`` numbers, and the
    weights."""
    random = torch.Generator().manual_seed(8)
    return torch.randn(ROWS, WIDTH, generator=random), torch.randn(WIDTH, generator=random)


@dataclass(frozen=True)
class TriedKernel:
    """One run of a program with its kernel's text replaced: the result, and the kernel's call in that run."""

    result: torch.Tensor
    call: KernelCall

    def run(self, on: TriedKernel | None = None) -> None:
        """Call the kernel again, on the same memory as another's."""
        self.call.run(*(on or self).call.arguments)


def tried(
    fn: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], text: str = "", **options: Any
) -> TriedKernel:
    """``fn`` compiled and run with the text of its only kernel replaced (without ``text``: as it is).
    NbcompileError where that cannot be built, or reads or writes outside its arguments."""
    (kernel,) = kernels(fn, *inputs, **options)
    attempt = Attempt([(kernel.id, text)] if text else [], watch=kernel.id)
    compiled = nbcompile.compile(fn, options=options, compile_aten=attempt.compile_aten)
    result = compiled(*inputs)
    attempt.check()
    return TriedKernel(result, attempt.calls[0])


def kernels(fn: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> tuple[Kernel, ...]:
    """The record's kernels, after one run."""
    return record_of(fn, *inputs, **options).kernels


def text_of(fn: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> str:
    """The C or Triton text of the only kernel that ``fn`` becomes."""
    (kernel,) = kernels(fn, *inputs, **options)
    return next(iter(kernel.sources.values()))


@cache
def _c_head() -> tuple[str, str]:
    """The head of norm's C function, and what its result is called."""
    head = next(line for line in text_of(norm, *example()).splitlines() if line.startswith("void "))
    return head, head.rpartition("*")[2].partition(")")[0]


def _in_c(body: str) -> str:
    head, out = _c_head()
    filled = body.replace("OUT", out).replace("ROWS", str(ROWS)).replace("WIDTH", str(WIDTH))
    return f"{head}\n{filled.strip(chr(10))}\n}}"


def broken_tail() -> str:
    """C for :func:`norm`, by hand, with vectors of 16: right numbers, and yet wrong."""
    return _in_c("""
  typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
  for (long i = 0; i < ROWS; i++) {
    const float *row = x + i*WIDTH;
    float *out = OUT + i*WIDTH;
    lanes squares = {0};
    for (long j = 0; j + 16 <= WIDTH; j += 16) {
      const lanes t = *(const lanes *)(row + j);
      squares += t * t;
    }
    float sum = 0;
    for (int lane = 0; lane < 16; lane++) sum += squares[lane];
    for (long j = WIDTH / 16 * 16; j < WIDTH; j++) sum += row[j] * row[j];
    const float scale = 1.0f / __builtin_sqrtf(sum / WIDTH.0f + 1e-06f);
    for (long j = 0; j < WIDTH; j += 16) {
      const lanes t = *(const lanes *)(row + j);
      *(lanes *)(out + j) = t * scale * *(const lanes *)(w + j);
    }
  }
""")


def slow() -> str:
    """C for :func:`norm`: right, and slow."""
    return _in_c("""
  double squares[ROWS];
  for (long i = 0; i < ROWS; i++) squares[i] = 0;
  for (long j = 0; j < WIDTH; j++) {
    for (long i = 0; i < ROWS; i++) {
      squares[i] += x[i*WIDTH + j] * x[i*WIDTH + j];
    }
  }
  for (long j = 0; j < WIDTH; j++) {
    for (long i = 0; i < ROWS; i++) {
      OUT[i*WIDTH + j] = x[i*WIDTH + j] / __builtin_sqrt(squares[i] / WIDTH + 1e-6) * w[j];
    }
  }
""")


def broken_mask() -> str:
    """Triton for :func:`softmax` of rows of 1000 in a tile of 1024: its masks are wrong."""
    lines = text_of(softmax, example()[0][:4], interpret=True).splitlines()
    head = next(line for line in lines if line.startswith("def "))
    name = head.rpartition(", RBLOCK")[0].rpartition(" ")[2]
    return f"""@triton.jit
{head}
    gdc_wait()
    i = tl.program_id(0)
    j = tl.arange(0, RBLOCK)
    j_in = j < {WIDTH}
    x = tl.load(x_ptr + i*{WIDTH} + j, mask=j_in, other=0.0)
    max_ = max_nan(x, 0)
    exp = libdevice.exp((x - max_))
    sum_ = tl.sum(exp, axis=0)
    tl.store({name} + i*{WIDTH} + j, exp / sum_, mask=j_in)"""


# -- reading --------------------------------------------------------------------------------------


@exercise("codegen.lines")
def lines(answer: Mapping[str, int]) -> str:
    """The numbers, from 1, of five lines in the C and the Triton text of :func:`norm`. Both are printed anew,
    and each line is found by what is written in it."""
    keyed(answer, ("threads", "permission", "weights", "edge", "neutral"), "the number of a line")
    x, w = example()
    texts = {
        "C": text_of(norm, x, w).splitlines(),
        "Triton": text_of(norm, x[:4], w, interpret=True).splitlines(),
    }
    wanted = {
        "threads": ("C", "which line shares the rows out among threads", ("omp parallel",)),
        "permission": ("C", "which line allows a sum to be taken in another order", ("reduction(+",)),
        "weights": ("C", "which line reads the weights", ("w[",)),
        "edge": ("Triton", "where it is decided which columns exist", (f"< {WIDTH}",)),
        "neutral": ("Triton", "where columns that do not exist are made not to count", ("tl.where(", "0.0")),
    }  # fmt: skip
    for name, (language, what, marks) in wanted.items():
        text = texts[language]
        (number,) = (n for n, line in enumerate(text, start=1) if all(mark in line for mark in marks))
        said = whole_number(answer[name], f"{name!r}, {what} in {language},")
        if said != number:
            there = text[said - 1].strip() if 1 <= said <= len(text) else "not there"
            raise WrongAnswerError(
                f"{name!r} asks {what}. Line {said} of the {language} kernel is `{there}`: look for another."
            )
    return "all five, as the compiler's own text has them."


@exercise("codegen.offset")
def offset(answer: Callable[[int, int], int]) -> str:
    """A function ``offset(i, j)``: the number that element ``[i, j]`` of a view has in ``base``, whose
    elements are counted row by row. It is called for each element of the view."""
    function(answer, "offset(i, j)")
    base = torch.arange(40 * 30).reshape(40, 30).float()
    view = base[5:, 2::3].t()
    for i in range(view.shape[0]):
        for j in range(view.shape[1]):
            found = whole_number(
                returned(called(answer, "offset", i, j), "offset"), f"What offset({i}, {j}) returns"
            )
            truth = int(view[i, j])  # the elements of base are numbered
            if found != truth:
                raise WrongAnswerError(
                    f"offset({i}, {j}) is {found}, and view[{i}, {j}] is element {truth} of base. The view "
                    f"has shape {tuple(view.shape)}: how far does a step of i move in base, and one of j?"
                )
    text = text_of(lambda base: base[5:, 2::3].t() + 1, base)
    index = text.partition("base[")[2].partition("]")[0]
    return f"all {view.numel()} elements. The compiler writes base[{index}]."


# -- mending --------------------------------------------------------------------------------------


def _text(answer: Any) -> str:
    if not isinstance(answer, str) or not answer.strip():
        raise WrongAnswerError("The answer is the kernel's text: a string.")
    return answer


def _attempted(
    fn: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], text: str, **how: Any
) -> TriedKernel:
    try:
        run = tried(fn, inputs, text, **how)
    except NbcompileError as error:
        raise WrongAnswerError(f"It does not run: {error}") from error
    return run


def _agrees(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    close = torch.isclose(got.double(), expected, rtol=1e-4, atol=1e-6, equal_nan=True)
    if not bool(close.all()):
        row, column = (int(item) for item in (~close).nonzero()[0])
        wrong = int((~close).sum())
        raise WrongAnswerError(
            f"On {what}, {wrong:,} of {close.numel():,} elements are wrong; the first is [{row}, {column}]: "
            f"{float(got[row, column]):.4g}, not {float(expected[row, column]):.4g}."
        )


@exercise("codegen.mask")
def mask(answer: str) -> str:
    """The text of a Triton kernel for :func:`softmax` of rows of ``WIDTH``. Interpreted on three kinds of
    rows, it must agree with eager and touch nothing outside its arguments."""
    text = _text(answer)
    x = example()[0][:4].clone()  # of its own: what lies behind it is then outside
    masked = x.clone()
    masked[:, : WIDTH // 2] = float("-inf")
    cases = {"random numbers": x, "numbers about -1000": x - 1000, "rows that are half -inf": masked}
    for what, given in cases.items():
        run = _attempted(softmax, (given,), text, interpret=True)
        _agrees(run.result, torch.softmax(given.double(), -1), what)
    return (
        f"{len(cases)} kinds of rows agree with eager, and no access lies outside the arguments. The mask of "
        "a load protects memory; what a masked lane holds must still be neutral in each reduction."
    )


@exercise("codegen.tail")
def tail(answer: str) -> str:
    """The text of a C kernel for :func:`norm`. Each element must be right, and nothing outside its arguments
    touched."""
    x, w = example()
    run = _attempted(norm, (x, w), _text(answer))
    _agrees(run.result, norm(x.double(), w.double()), "the example")
    return (
        f"every element is right and nothing outside the arguments was touched: {WIDTH} is "
        f"{WIDTH // 16} vectors of 16 and {WIDTH % 16} elements."
    )


@exercise("codegen.fast")
def fast(answer: str) -> str:
    """The text of a C kernel for :func:`norm` that is right and at least ``FASTER`` times as fast as
    :func:`slow`, measured in turns."""
    inputs = example()
    theirs = _attempted(norm, inputs, _text(answer))
    _agrees(theirs.result, norm(*(item.double() for item in inputs)), "the example")
    given, ours = tried(norm, inputs, slow()), tried(norm, inputs)
    with quiet():
        times = interleaved(
            {
                "slow": lambda: given.run(),
                "answer": lambda: theirs.run(given),
                "ours": lambda: ours.run(given),
            },
            budget=1.0,
        )
    # The fastest sample of each: whatever else this machine does only ever makes one slower.
    was, now, best = (min(times[name]) * 1e3 for name in ("slow", "answer", "ours"))
    told = f"{was:.1f} ms became {now:.2f} ms, {was / now:.1f} times as fast"
    if was < FASTER * now:
        raise WrongAnswerError(
            f"It is right: {told}, and {FASTER} are asked for. In which order does it walk through memory, "
            "what does it compute again for each element, and does anything stand in the way of vectors?"
        )
    return f"{told}, measured in turns. The compiler's own kernel takes {best:.2f} ms here."
