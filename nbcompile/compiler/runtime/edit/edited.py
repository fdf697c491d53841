"""Kernels compiled with another text than the compiler's, or watched: see ``KernelEdit`` in ``stages``.

A change is an argument of the compile. The text replaces the kernel's own and must keep its functions with
their parameters; a compiler's message is told with the line of that text.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from nbcompile.compiler.runtime.bind import KERNEL_FILE, Allocate, alone
from nbcompile.compiler.runtime.c import binary
from nbcompile.compiler.runtime.c.binary import Functions
from nbcompile.compiler.runtime.c.toolchain import Toolchain
from nbcompile.compiler.runtime.layout import flat
from nbcompile.compiler.stages import KernelCall, KernelEdit, KernelSource, KernelText
from nbcompile.errors import OUR_BUG, EditError, KernelError, NbcompileError, ToolchainError
from nbcompile.options import Options
from nbcompile.record.compilation import Kernel, LineLink
from nbcompile.record.recorder import Recorder

_MOST_LINES = 20

Calls = Mapping[str, Callable[..., None]]


def changes_of(source: KernelSource, changes: Sequence[KernelEdit]) -> dict[str, KernelEdit]:
    """Those of ``changes`` that are about kernels of this graph, by kernel."""
    known = {item.id for item in source.kernels}
    return {item.kernel: item for item in changes if item.kernel in known}


def replaced(source: KernelSource, changes: Mapping[str, KernelEdit]) -> KernelSource:
    """``source`` with the changed texts in place. EditError where one no longer defines its functions with
    the parameters they had, or is no Python."""
    kernels = []
    for item in source.kernels:
        change = changes.get(item.id)
        if change is not None and change.text is not None and change.text != item.text:
            _check(source, item, change.text)
            item = replace(item, text=change.text, lines=_links(item, change.text))
        kernels.append(item)
    return replace(source, kernels=tuple(kernels))


def build_c(
    source: KernelSource, changes: Mapping[str, KernelEdit], toolchain: Toolchain, options: Options,
    recorder: Recorder,
) -> Functions:  # fmt: skip
    """The functions of a C file, each edited kernel built by itself. EditError with the compiler's words."""
    edited = replaced(source, changes)
    functions = dict(binary.find_or_build(source, toolchain, options, recorder).functions())
    for before, after in zip(source.kernels, edited.kernels, strict=True):
        if before.text == after.text:
            continue
        try:
            functions |= binary.find_or_build(alone(source, after), toolchain, options, recorder).functions()
        except ToolchainError as error:
            raise _refused_by_c(error, after) from error
    return functions


def watched(source: KernelSource, changes: Mapping[str, KernelEdit]) -> Callable[[Calls], Calls]:
    """What the wrapper is to call, given its kernels by symbol (for ``bind``)."""

    def wrap(calls: Calls) -> Calls:
        found = dict(calls)
        for item in source.kernels:
            change = changes.get(item.id)
            if change is None or change.around is None:
                continue
            for symbol in _symbols(source, item):
                found[symbol] = partial(_around, change.around, source, item, symbol, calls[symbol])
        return found

    return wrap


def note_edits(recorder: Recorder, source: KernelSource, changes: Mapping[str, KernelEdit]) -> None:
    """Show the kernels of the record as they are now."""
    texts = {item.id: item for item in source.kernels}

    def change(kernel: Kernel) -> Kernel:
        item = texts.get(kernel.id)
        if item is None or changes.get(kernel.id) is None or changes[kernel.id].text is None:
            return kernel
        recorder.add(f"The text of {kernel.name} was edited by hand.")
        links = tuple(LineLink(line, origins) for line, origins in item.lines)
        return replace(kernel, sources={source.language: item.text}, line_map=links)

    recorder.change_kernels(change)


def explained(error: NbcompileError, source: KernelSource, kernel: str) -> EditError:
    """An error that building or running a kernel raised whose text is the user's, with the line of that text
    where one is known: what would be a bug of ours in a kernel of ours is to be mended there."""
    if isinstance(error, EditError):
        return error
    text = next(item.text for item in source.kernels if item.id == kernel)
    message, line = error.message, None
    if isinstance(error, KernelError) and error.file_line is not None:
        message = message.replace(f", generated line {error.file_line}", "")
        line = error.file_line - source.line_of(kernel)
        if not 1 <= line <= text.count("\n") + 1:
            line = None  # in one of the functions that it calls
    return _theirs(message, line, error.advice)


def refused(
    error: KernelError, source: KernelSource, changes: Mapping[str, KernelEdit]
) -> KernelError | EditError:
    """What Triton's compiler refuses, explained where it is a kernel with an edited text."""
    for item in source.kernels:
        change = changes.get(item.id)
        if change is not None and change.text is not None and error.function in _symbols(source, item):
            return explained(error, source, item.id)
    return error


def _theirs(message: str, line: int | None, advice: str) -> EditError:
    if advice in ("", OUR_BUG):
        what = f"line {line} of it" if line is not None else "it"
        advice = f"The error is in the text of the kernel, which is yours: correct {what}, and try again."
    return EditError(message, line=line, advice=advice)


def spoiling(empty: Allocate, changes: Mapping[str, KernelEdit]) -> Allocate:
    """``empty``, but for edited kernels with memory that holds NaN (whole numbers: the largest). Else what an
    edit leaves unwritten could be right by chance: memory comes back with the results of the run before."""
    if all(change.text is None for change in changes.values()):
        return empty

    def spoiled(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        made = empty(shape, strides, dtype)
        if made.numel():
            number = dtype.is_floating_point or dtype.is_complex
            worst = math.nan if number else True if dtype == torch.bool else torch.iinfo(dtype).max
            flat(made).fill_(worst)
        return made

    return spoiled


# -- checking: what a user has written is text, and here alone it is read ---------------------------------


def _symbols(source: KernelSource, kernel: KernelText) -> tuple[str, ...]:
    return tuple(item.symbol for item in source.functions_of(kernel.id))


def _check(source: KernelSource, kernel: KernelText, text: str) -> None:
    headers = _c_headers if source.language == "c" else _python_headers
    before, after = headers(kernel.text), headers(text)
    for symbol in _symbols(source, kernel):
        if symbol not in after:
            raise EditError(
                f"the function {symbol} is no longer there.", advice="Keep its name and its parameters."
            )
        if before[symbol][0] != after[symbol][0]:
            raise EditError(
                f"the parameters of {symbol} are not what they were: {before[symbol][0]}.",
                line=after[symbol][1],
                advice="Keep them: the code around the kernel passes these.",
            )


def _c_headers(text: str) -> dict[str, tuple[str, int]]:
    """Parameters and line of each function, by name."""
    return {
        found[1]: (" ".join(found[2].split()), text[: found.start()].count("\n") + 1)
        for found in re.finditer(r"\bvoid (\w+)\(([^)]*)\)\s*\{", text)
    }


def _python_headers(text: str) -> dict[str, tuple[str, int]]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise EditError(f"it is no Python: {error.msg}.", line=error.lineno) from error
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: (ast.unparse(node.args), node.lineno) for node in functions}


def _refused_by_c(error: ToolchainError, kernel: KernelText) -> EditError:
    output = error.output
    if not output:
        return EditError(error.message, advice=error.advice)
    lines = [line for line in output.splitlines() if line.strip()]
    found = re.search(rf"^{KERNEL_FILE}:(\d+):(?:\d+:)? (?:fatal )?error", output, re.MULTILINE)
    line = min(int(found[1]), kernel.text.count("\n") + 1) if found else None
    return _theirs("\n".join(lines[:_MOST_LINES]), line, error.advice)


def _links(kernel: KernelText, text: str) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The line map of the edited text: lines that are still there keep their loops."""
    before, after = kernel.text.splitlines(), text.splitlines()
    moved: dict[int, int] = {}
    for block in difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        moved |= {block.a + n + 1: block.b + n + 1 for n in range(block.size)}
    return tuple((moved[line], origins) for line, origins in kernel.lines if line in moved)


# -- calling ----------------------------------------------------------------------------------------


def _around(
    around: Callable[[KernelCall], None], source: KernelSource, kernel: KernelText, symbol: str,
    run: Callable[..., None], *arguments: Any,
) -> None:  # fmt: skip
    around(KernelCall(source, kernel.id, symbol, run, arguments))
