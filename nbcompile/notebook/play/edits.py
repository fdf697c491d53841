"""One kernel as the explorer asks for it: edited (built, tried, compared with eager, and timed beside the
original), by itself as a script, and as machine code."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbcompile.bench.measure.accuracy import check
from nbcompile.bench.measure.timing import interleaved, quiet
from nbcompile.compiler.attempt import KERNEL_FILE, Attempt, assembly_of, find_toolchain, script_of
from nbcompile.compiler.stages import KernelCall
from nbcompile.errors import PlayError, ToolchainError
from nbcompile.notebook.cell.compiling import settings_of
from nbcompile.notebook.play.programs import AGAIN, ProgramPiece
from nbcompile.notebook.play.running import (
    PlaySettings,
    Tell,
    Variant,
    current,
    run_compiled,
    step_of,
    untouched,
)
from nbcompile.record.compilation import Accuracy, Compilation, Kernel
from nbcompile.view.facts.assembly import machine_code

EDITED = "edited"
_SECONDS = 0.5  # of timing, both together
_LANGUAGES = ("c", "triton")
_STEPS = 5


@dataclasses.dataclass(frozen=True)
class Edited:
    """What came of an edit: the record with the edited kernel, and seconds a call of the kernel alone."""

    compilation: Compilation
    settings: PlaySettings
    rows: tuple[Accuracy, ...]
    original: tuple[float, ...]
    edited: tuple[float, ...]
    message: str

    @property
    def agrees(self) -> bool:
        return all(row.agrees for row in self.rows)


def run_edit(variant: Variant, params: Mapping[str, Any], tell: Tell) -> Edited:
    """Run the program with one kernel's text replaced. EditError where that cannot be built, or crashes."""
    kernel, source = str(params.get("kernel", "")), params.get("source")
    language = str(params.get("language", "c"))
    if language not in _LANGUAGES or not isinstance(source, str):
        raise PlayError(f"a kernel's {language} text cannot be edited.", advice="Edit its C or Triton text.")
    settings = variant.settings
    tell("reading the values", 0, _STEPS)
    pieces = current(variant.program, settings)
    train = variant.program.train
    with untouched(pieces) as snapshot:
        tell("running the original", 1, _STEPS)
        before = Attempt([pair for pair in settings.edits if pair[0] != kernel], watch=kernel)
        record, _ = _compiled(variant, pieces, before, tell, 1)
        snapshot.restore()
        known = _kernel(record, kernel)
        if language not in known.sources:
            raise PlayError(f"{known.name} has no {language} text.", advice="Edit the text it was made from.")
        edits = (*(pair for pair in settings.edits if pair[0] != kernel), (kernel, source))
        tell("building and trying the edited kernel", 2, _STEPS)
        after = Attempt(edits, watch=kernel)
        compilation, compiled = _compiled(variant, pieces, after, tell, 2)
        snapshot.restore()
        tell("comparing with eager", 3, _STEPS)
        eager = step_of(pieces, train)
        fn = step_of(compiled, train).fn
        with quiet():
            rows = check(eager, {EDITED: eager.with_function(fn)}, snapshot)
        agrees = all(row.agrees for row in rows)
        original: tuple[float, ...] = ()
        edited: tuple[float, ...] = ()
        if agrees and compilation.execution == "compiled":
            tell("timing both", 4, _STEPS)
            with quiet():
                times = interleaved(
                    {"original": _runs(before.calls, after.calls), EDITED: _runs(after.calls, after.calls)},
                    budget=_SECONDS,
                )
            original, edited = times["original"], times[EDITED]
    compilation = dataclasses.replace(compilation, accuracy=rows)
    message = _message(rows, original, edited)
    return Edited(compilation, dataclasses.replace(settings, edits=edits), rows, original, edited, message)


def run_script(variant: Variant, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """A stand-alone script for one kernel: ``name`` of the file, and its ``text``."""
    tell("reading the values", 0, 2)
    item, calls = _watched(variant, params, lambda text: tell(text, 1, 2))
    return {"name": f"{item.name}.py", "text": script_of(calls)}


def run_assembly(variant: Variant, params: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """The machine code of one C kernel: ``text``, ``lines`` (pairs of a line of it and the line of the C text
    that it was made for), and the ``compiler``. PlayError without one."""
    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        raise PlayError(error.message, advice=error.advice) from error
    tell("reading the values", 0, 3)
    item, calls = _watched(variant, params, lambda text: tell(text, 1, 3))
    tell(f"compiling {item.name}", 2, 3)
    read = machine_code(assembly_of(calls[0].source, item.id, toolchain), KERNEL_FILE)
    places = [(n, row.place[1]) for n, row in enumerate(read.rows, start=1) if row.place]
    return {
        "text": "\n".join(read.lines),
        "lines": [[n, line] for n, line in places if line],
        "compiler": toolchain.version,
    }


def _watched(
    variant: Variant, params: Mapping[str, Any], tell: Callable[[str], None]
) -> tuple[Kernel, list[KernelCall]]:
    """The kernel that a request names, and its calls in one run of the program. PlayError without any."""
    kernel = str(params.get("kernel", ""))
    pieces = current(variant.program, variant.settings)
    attempt = Attempt(variant.settings.edits, watch=kernel)
    with untouched(pieces):
        record, _ = _compiled(variant, pieces, attempt, lambda text, _, __: tell(text), 1)
        item = _kernel(record, kernel)
    if not attempt.calls:
        raise PlayError("the kernel was not called in this run of the program.")
    return item, attempt.calls


def _compiled(
    variant: Variant, pieces: Sequence[ProgramPiece], attempt: Attempt, tell: Tell, step: int
) -> tuple[Compilation, list[ProgramPiece]]:
    """Compile and run the program once with the changes of an attempt."""
    program, options = variant.program, variant.settings.options
    recorder = settings_of(options).recorder(
        program.cell, lambda text: tell(text, step, _STEPS), program.name
    )
    try:
        made = run_compiled(pieces, options, recorder, train=program.train, compile_aten=attempt.compile_aten)
    finally:
        attempt.check()  # what is wrong with an edit says more than what came of it
    return recorder.compilation(), made


def _kernel(record: Compilation, kernel: str) -> Kernel:
    for item in record.kernels:
        if item.id == kernel:
            return item
    raise PlayError(f"the program as it is now has no kernel {kernel!r}.", advice=AGAIN)


def _runs(calls: Sequence[KernelCall], given: Sequence[KernelCall]) -> Callable[[], None]:
    """All calls of a kernel in one run of the program, on the same memory for either text."""
    steps = [(call.run, other.arguments) for call, other in zip(calls, given, strict=True)]

    def run() -> None:
        for function, arguments in steps:
            function(*arguments)

    return run


def _message(rows: Sequence[Accuracy], original: Sequence[float], edited: Sequence[float]) -> str:
    wrong = [row for row in rows if not row.agrees]
    if wrong:
        row = wrong[0]
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        by = f" by up to {row.max_difference:.3g}" if row.max_difference is not None else ""
        return f"{row.output} differs from eager{by}: {row.reason}{more}."
    if not original or not edited:
        return "All outputs agree with eager."
    one, two = _quartiles(original), _quartiles(edited)
    if one[0] <= two[2] and two[0] <= one[2]:
        return "All outputs agree with eager; the kernel is about as fast as the original."
    ratio = one[1] / two[1]
    times = f"{ratio:.2f} times as fast" if ratio >= 1 else f"{1 / ratio:.2f} times as slow"
    return f"All outputs agree with eager; the kernel is {times} as the original."


def _quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    first, median, third = statistics.quantiles(seconds, n=4, method="inclusive")
    return first, median, third
