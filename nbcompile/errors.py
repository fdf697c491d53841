"""Every error nbcompile raises: what happened, at which line of the user's cell, what to do next."""

from __future__ import annotations

from typing import Any


class NbcompileError(Exception):
    """Base of all errors of this package.

    ``line`` is a line of the user's cell (1-based, the magic line counts) where one is known, and
    ``advice`` the next thing to do.
    """

    def __init__(self, message: str, *, line: int | None = None, advice: str = "") -> None:
        self.message = message
        self.line = line
        self.advice = advice
        super().__init__(message)

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line is not None else ""
        between = "\n" if "\n" in self.message else " "  # a compiler's own lines are left whole
        advice = f"{between}{self.advice}" if self.advice else ""
        return f"{where}{self.message}{advice}"


OUR_BUG = "This is a bug of nbcompile's code generator: please report it with the kernel's source."
"""Advice for what only a kernel that nbcompile printed can do wrong."""


class RecordError(NbcompileError):
    """A saved record cannot be read."""


class CellError(NbcompileError):
    """A cell cannot become a function as it stands; it is run eagerly instead. ``at``: where in it the reason
    lies, which may be another line than that at which it is raised."""

    def __init__(
        self, message: str, *, at: int | None = None, line: int | None = None, advice: str = ""
    ) -> None:
        super().__init__(message, line=line, advice=advice)
        self.at = at


class OptionError(NbcompileError):
    """An option of the magic or of ``torch.compile(options=...)`` is unknown or out of range."""


class BackendError(NbcompileError):
    """Another compiler cannot compile a graph: ``operator`` is what it lacks, where that is known."""

    def __init__(
        self, message: str, *, operator: str = "", line: int | None = None, advice: str = ""
    ) -> None:
        super().__init__(message, line=line, advice=advice)
        self.operator = operator


class LoweringError(NbcompileError):
    """A lowering met a case it does not handle; the node is called in ATen instead."""


class SymbolicSizeError(LoweringError):
    """Of a size that is a symbol too little can be said; were it a number, it might do."""


class VerifyError(NbcompileError):
    """A stage value breaks an invariant: a bug in a pass. Prints the failing neighbourhood."""


class FusionError(NbcompileError):
    """The fusion pass made something it should not have."""


class KernelError(NbcompileError):
    """A kernel fails in Triton. ``function`` is which, and ``file_line`` where in the whole file of generated
    code, as far as is known."""

    function = ""
    file_line: int | None = None


class CodegenError(KernelError):
    """A group of loops cannot be printed as a kernel, or what was printed cannot be compiled."""


class ToolchainError(NbcompileError):
    """No C compiler, or it refused a generated file: ``output`` is all that it said."""

    output = ""


class LaunchError(KernelError):
    """A kernel cannot be loaded, launched or called, or touches memory that it was not given."""


class MeasureError(NbcompileError):
    """A measurement cannot be made, or state cannot be put back after one."""


class CheckError(NbcompileError):
    """A program cannot be checked stage by stage, or what was found cannot be written as a cell."""


class RanksError(NbcompileError):
    """A cell cannot be run on several ranks, or failed on one of them: ``rank`` is which, where known."""

    def __init__(
        self, message: str, *, rank: int | None = None, line: int | None = None, advice: str = ""
    ) -> None:
        super().__init__(message, line=line, advice=advice)
        self.rank = rank

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of where we raised it: the rank's own traceback, which is a note."""
        return [*getattr(self, "__notes__", ()), f"{type(self).__name__}: {self}"]


class PlayError(NbcompileError):
    """What the explorer asked of this kernel cannot be done with what the session holds now."""


class EditError(NbcompileError):
    """A kernel that the user wrote or edited does not compile, or fails when run. ``line`` is one of the
    kernel's own text."""


class ExplorerError(NbcompileError):
    """The explorer's own files are missing, or what it is to show is no compilation."""


class SuiteError(NbcompileError):
    """A suite of ``nbcompile bench`` cannot be run. ``line`` is one of its file."""


class ExportError(NbcompileError):
    """A program cannot be exported as it stands, or its file cannot be run. ``blockers`` are all obstacles
    that are known, with their lines (``record.compilation.GraphBreak``); ``line`` and ``file`` (empty: not
    known) those of the first."""

    def __init__(
        self,
        message: str,
        *,
        blockers: tuple[Any, ...] = (),
        line: int | None = None,
        file: str = "",
        advice: str = "",
    ) -> None:
        super().__init__(message, line=line, advice=advice)
        self.blockers = blockers
        self.file = file


def in_one_line(error: BaseException) -> str:
    """``ValueError: the first line of what it says``, of any error; the next too where that one only says
    that something follows, as torch's ``backend='x' raised:`` does."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    said = " ".join(line.strip() for line in lines[:2]) if lines[0].rstrip().endswith(":") else lines[0]
    return f"{type(error).__name__}: {said}"


class TraceError(NbcompileError):
    """What ``TORCH_TRACE`` wrote is not where it was said to be, or has nothing of this name in it."""
