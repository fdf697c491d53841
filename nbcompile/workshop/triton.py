"""Notebook 09: Triton kernels written by hand, run on the CPU and compiled for a GPU that is not there.

``interpret`` and ``compile_for`` give a reader's kernel to the interpreter and the compiler that nbcompile's
own kernels go through; the checkers below use them.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from nbcompile.compiler.stages import Argument, Config, EntryPoint, KernelSource, KernelText, Launch
from nbcompile.errors import KernelError, NbcompileError
from nbcompile.targets import parse
from nbcompile.units import count_text
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import shown, whole_number, whole_numbers

if TYPE_CHECKING:
    from nbcompile.compiler.runtime.gpu.compile import Built

CHIP = "cuda:90"

_TYPES = {
    "torch.float32": "*fp32",
    "torch.float16": "*fp16",
    "torch.bfloat16": "*bf16",
    "torch.int32": "*i32",
    "torch.int64": "*i64",
}


def interpret(kernel: Any, *arguments: Any, programs: int, **constants: int) -> None:
    """Run a ``@triton.jit`` function on CPU tensors, ``programs`` times, as a GPU would with that grid. Every
    access is checked: EditError, with the kernel's line, for one outside of its tensor, or if two programs
    race for an element."""
    from nbcompile.compiler.runtime.interpreter.interpret import interpreted

    source = _source(kernel, arguments, constants, programs)
    with _by_hand(source):
        interpreted(source)[source.entry_points[0].symbol](*arguments)


def compile_for(chip: str, kernel: Any, *arguments: Any, warps: int = 4, **constants: int) -> Built:
    """Compile a ``@triton.jit`` function for ``chip`` with arguments like these: ``texts`` has each stage,
    ``registers`` and ``spill_bytes`` are a thread's. As Triton does by itself, it is assumed that tensors
    begin at a multiple of 16 bytes, and that a number divisible by 16 always will be. EditError, with the
    kernel's line, if Triton refuses it."""
    from nbcompile.compiler.runtime.gpu.build import begin

    source = _source(kernel, arguments, constants, 1, warps)
    (launch,) = source.launches
    with _by_hand(source):
        return begin(source, launch, launch.configs[0], parse(chip)).result()


def readable(text: str) -> str:
    """TTIR or TTGIR without the locations, which say what source line each operation came from."""
    lines = [re.sub(r" loc\([^()]*(\([^()]*\))?\)", "", line) for line in text.splitlines()]
    return "\n".join(line for line in lines if not line.startswith("#loc"))


def accesses(ptx: str) -> list[tuple[str, int]]:
    """Each access to global memory in PTX: the instruction, and the bytes that it moves for one thread."""
    found = []
    for name, vector, bits in re.findall(r"\b((?:ld|st)\.global[\w.:]*?(?:\.v(\d))?\.[a-z](\d+))\b", ptx):
        found.append((name, int(vector or 1) * int(bits) // 8))
    return found


def message(error: NbcompileError) -> str:
    """What the interpreter or compiler says of a reader's kernel, with neither its name nor advice."""
    return re.sub(r"^kernel \w+ ", "in ", error.message).rstrip(".")


@contextlib.contextmanager
def _by_hand(source: KernelSource) -> Iterator[None]:
    """What goes wrong with the only kernel of ``source`` is told of the text that its reader wrote."""
    from nbcompile.compiler.runtime.edit.edited import explained

    try:
        yield
    except KernelError as error:
        raise explained(error, source, source.kernels[0].id) from error


def _source(
    kernel: Any, arguments: Sequence[Any], constants: Mapping[str, int], programs: int, warps: int = 4
) -> KernelSource:
    function = getattr(kernel, "fn", None)
    if not inspect.isfunction(function):
        raise WrongAnswerError(f"A kernel is a function decorated with @triton.jit, not {shown(kernel)}.")
    text = textwrap.dedent(inspect.getsource(function))
    text = "@triton.jit\n" + text[text.index("def ") :]
    names = [name for name in inspect.signature(function).parameters if name not in constants]
    if len(names) != len(arguments):
        raise WrongAnswerError(
            f"{function.__name__} has the parameters {', '.join(names)} beside its constants, "
            f"and is called with {len(arguments)} arguments: leave its first line as it was."
        )
    launch = Launch(
        function.__name__,
        "k0",
        tuple(_argument(name, value) for name, value in zip(names, arguments, strict=True)),
        (str(programs),),
        (Config(dict(constants), warps),),
    )
    kernels = (KernelText("k0", function.__name__, text, (), "by hand"),)
    head = ("import triton\nimport triton.language as tl",)
    entry = EntryPoint(function.__name__, "k0", tuple(names))
    return KernelSource("by-hand", "triton", head, kernels, "", (entry,), launches=(launch,))


def _argument(name: str, value: Any) -> Any:
    if isinstance(value, int):
        return Argument(name, "i32", hint=value)
    if isinstance(value, float):
        return Argument(name, "fp32")
    return Argument(name, _TYPES[str(value.dtype)])


# -- the checkers ---------------------------------------------------------------------------------


def _compiled(kernel: Any, *arguments: Any, warps: int = 4, **constants: int) -> Built:
    try:
        return compile_for(CHIP, kernel, *arguments, warps=warps, **constants)
    except NbcompileError as error:
        told = message(error)
        raise WrongAnswerError(
            f"The interpreter runs it, but Triton's compiler refuses it for {CHIP}: {told}."
        ) from error


UNWRITTEN = -12345.0
"""What a result is filled with before a kernel runs: no right result has this number in it."""


@exercise("triton.grid")
def grid(answer: Mapping[str, int], who: Any, n: int, block: int) -> str:
    """``who`` stores at each element the program that has it: run, so that there is something to count."""
    whole_numbers(answer, ("programs", "idle"))
    owner = torch.full((n,), -1, dtype=torch.int32)
    programs = 0
    while bool((owner < 0).any()):  # one program more, until nothing is left over
        programs += 1
        interpret(who, owner, n, programs=programs, BLOCK=block)
    if answer["programs"] < programs:
        raise WrongAnswerError(f"{answer['programs']} programs leave elements that no program has.")
    if answer["programs"] > programs:
        raise WrongAnswerError(f"Of {answer['programs']} programs, not all would have anything to do.")
    idle = programs * block - n
    if answer["idle"] != idle:
        busy = int((owner == programs - 1).sum())
        raise WrongAnswerError(
            f"{programs} programs is right. In the last one, {busy} lanes have an element."
        )
    return (
        f"{programs} programs of {block} lanes are {programs * block} lanes for {n} elements: the mask keeps "
        f"the last {idle} from reading and writing."
    )


@exercise("triton.add")
def add(kernel: Any) -> str:
    """A Triton kernel that adds two vectors. Interpreted for five sizes in blocks of 256, each element must
    be exact and nothing outside the tensors touched; then it must compile for ``CHIP``."""
    generator = torch.Generator().manual_seed(0)
    sizes = (1024, 1000, 1, 255, 257)
    for n in sizes:
        x, y = (torch.randn(n, generator=generator) for _ in "xy")
        out = torch.full((n,), UNWRITTEN)
        _try(kernel, (x, y, out, n), -(-n // 256), 256, f"{n} elements")
        _written(out)
        wrong = (out != x + y).nonzero().flatten().tolist()
        if wrong:
            state = "was never written" if float(out[wrong[0]]) == UNWRITTEN else "is not x + y"
            raise WrongAnswerError(
                f"Of {n} elements, in blocks of 256, {len(wrong)} are wrong; the first is element "
                f"{wrong[0]}, which {state}. Which program is to have it?"
            )
    x = torch.empty(1024)
    built = _compiled(kernel, x, x, x, 1024, BLOCK=1024)
    return (
        f"right for {', '.join(map(str, sizes))} elements, and nothing outside is touched. For {CHIP} it "
        f"takes {built.registers} registers a thread and moves {_widest(built)} bytes with a load."
    )


def _rows() -> Iterator[tuple[torch.Tensor, str]]:
    generator = torch.Generator().manual_seed(1)
    yield torch.randn(4, 128, generator=generator), "4 rows of 128"
    yield torch.randn(3, 77, generator=generator), "3 rows of 77"
    yield torch.randn(2, 1, generator=generator), "2 rows of one element"
    yield -torch.rand(3, 50, generator=generator) - 5, "3 rows of 50 numbers below -5"
    yield torch.randn(2, 100, generator=generator) * 50 + 500, "2 rows of 100 numbers around 500"
    yield torch.randn(5, 90, generator=generator)[:, :60], "5 rows of 60 elements, 90 apart in memory"


@exercise("triton.softmax")
def softmax(kernel: Any) -> str:
    """A Triton kernel for the softmax of rows, a program for each. Interpreted on rows of several
    lengths, signs, sizes and strides, all of it must be written and right to 1e-5; then it must compile
    for ``CHIP``."""
    worst = 0.0
    for x, what in _rows():
        rows, columns = x.shape
        out = torch.full((rows, columns), UNWRITTEN)
        block = 1 << (columns - 1).bit_length()
        _try(kernel, (x, out, columns, x.stride(0), columns), rows, block, what)
        _written(out)
        if bool((out == UNWRITTEN).any()):
            raise WrongAnswerError(f"With {what}, some elements of out were never written.")
        if not bool(out.isfinite().all()):
            raise WrongAnswerError(
                f"With {what}, some results are not finite. What is exp(500) in float32? And what may be "
                "taken from every element of a row without changing its softmax?"
            )
        off = float((out.double() - torch.softmax(x.double(), -1)).abs().max())
        if off > 1e-5:
            raise WrongAnswerError(
                f"With {what}, in blocks of {block}, an element is off by {off:.1e}, and the first row adds "
                f"up to {float(out[0].double().sum()):.3f}. Look at where each row begins, and at what the "
                "lanes past its end hold when the maximum and the sum are taken."
            )
        worst = max(worst, off)
    x = torch.empty(64, 1024)
    built = _compiled(kernel, x, x, 1024, 1024, 1024, BLOCK=1024)
    loads = [size for name, size in accesses(built.texts["ptx"]) if name.startswith("ld")]
    together = sum(loads) * 32 * built.warps
    return (
        f"right to {worst:.0e}, on rows of any length, sign, size and stride. For {CHIP}, with rows of 1024: "
        f"{built.registers} registers a thread, and {sum(loads)} bytes read by each of {32 * built.warps} "
        f"threads, {together} together, which is each element {_times(together // 4096)}."
    )


@exercise("triton.width")
def width(answer: Mapping[str, int], kernel: Any, cases: Mapping[str, tuple[Any, int, int, int]]) -> str:
    """``cases``: a name to (dtype, n, BLOCK, warps)."""
    whole_numbers(answer, cases)
    told = []
    for name, (dtype, n, block, warps) in cases.items():
        x = torch.empty(1, dtype=dtype)
        built = compile_for(CHIP, kernel, x, x, x, n, warps=warps, BLOCK=block)
        size = _widest(built)
        if answer[name] != size:
            lanes = block // (32 * warps)
            hint = f"a thread has {lanes} elements of {x.element_size()} bytes in a block"
            if n % 16:
                hint = f"what may the compiler assume of `at < n` for neighbouring lanes, if n is {n}"
            raise WrongAnswerError(
                f"{name!r} is not {answer[name]}: {hint}. No load moves more than 16 bytes."
            )
        told.append(next(item for item, _ in accesses(built.texts["ptx"]) if item.startswith("ld")))
    return f"{'; '.join(f'{name}: {instruction}' for name, instruction in zip(cases, told, strict=True))}."


@exercise("triton.spills")
def spills(answer: int, kernel: Any, columns: int) -> str:
    """The smallest number of warps with which ``kernel`` does not spill for rows of ``columns``. It is
    compiled for ``CHIP`` with as many and, if that is more than one, with half as many."""
    choices = (1, 2, 4, 8, 16, 32)
    whole_number(answer, "The number of warps")
    if answer not in choices:
        raise WrongAnswerError(f"A program has {', '.join(map(str, choices[:-1]))} or {choices[-1]} warps.")
    x = torch.empty(1, columns)

    def with_warps(warps: int) -> Built:
        return _compiled(kernel, x, x, columns, columns, columns, warps=warps, BLOCK=columns)

    warps = count_text(answer, "warp")
    mine, held = with_warps(answer), columns // (32 * answer)
    if mine.spill_bytes:
        raise WrongAnswerError(
            f"With {warps} a thread has {held} elements of the row, and of them "
            f"{mine.spill_bytes} bytes are in memory."
        )
    if answer == 1:
        return f"one warp is enough: {held} elements a thread, {mine.registers} registers."
    fewer = with_warps(answer // 2)
    if not fewer.spill_bytes:
        raise WrongAnswerError(
            f"{warps} do not spill, with {mine.registers} registers, and half would not either."
        )
    return (
        f"{warps}: {held} elements and {mine.registers} registers a thread. Half as many warps mean "
        f"{held * 2} elements, and {fewer.spill_bytes} bytes of a thread's go out to memory and come back."
    )


def _try(kernel: Any, arguments: Sequence[Any], programs: int, block: int, what: str) -> None:
    """Interpret a reader's kernel: what goes wrong is a wrong answer."""
    try:
        interpret(kernel, *arguments, programs=programs, BLOCK=block)
    except NbcompileError as error:
        raise WrongAnswerError(f"With {what} the interpreter stops: {message(error)}.") from error


def _written(out: torch.Tensor) -> None:
    if bool((out == UNWRITTEN).all()):
        raise WrongAnswerError("Nothing has been stored in out yet: a kernel ends with tl.store.")


def _widest(built: Built) -> int:
    return max(size for name, size in accesses(built.texts["ptx"]) if name.startswith("ld"))


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
