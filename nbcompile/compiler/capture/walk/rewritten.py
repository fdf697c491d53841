"""The bytecode that Dynamo writes in a function's place, as text for a person."""

from __future__ import annotations

import ast
import dis
from types import CodeType

from nbcompile.record.watched.walk import Rewritten

MOST_LINES = 400
NOT_HERE = "depyf is not installed, so there is no Python text of it: pip install depyf."
_REMARKS = (
    ("__compiled_fn_", "the compiled graph"),
    ("__resume_at_", "the rest of the function, compiled when it is reached"),
    ("torch_dynamo_resume_in_", "the rest of the function"),
    ("record_pregraph_bytecode", "Dynamo's own timer"),
    ("__builtins_dict", "Python's builtins"),
    ("__import_", "a package that Dynamo needs"),
)
_BY_OPCODE = {
    "RETURN_VALUE": "returns to the caller",
    "STORE_ATTR": "a change that the function makes, made now",
    "STORE_GLOBAL": "a change that the function makes, made now",
}


def rewritten(code: CodeType, graph: str = "") -> Rewritten:
    """``code`` as a listing with remarks and, where depyf can, as Python. ``graph`` is the id of the graph
    that it calls."""
    python, why_not = _decompiled(code)
    return Rewritten(_listing(code, graph), python, why_not)


def _listing(code: CodeType, graph: str) -> str:
    lines: list[str] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("CACHE", "RESUME", "PRECALL", "NOP", "COPY_FREE_VARS", "MAKE_CELL"):
            continue
        number = "" if instruction.arg is None else str(instruction.arg)
        argument = _short(instruction.argrepr or number)
        text = f"{instruction.offset:>5}  {instruction.opname:<22} {argument[:60]}".rstrip()
        if remark := _remark(instruction, graph):
            text = f"{text:<62}  # {remark}"
        lines.append(text)
    left_out = len(lines) - MOST_LINES
    if left_out > 0:
        lines[MOST_LINES:] = [f"… {left_out:,} more instructions"]
    return "\n".join(lines)


def _remark(instruction: dis.Instruction, graph: str) -> str:
    for begins, said in _REMARKS:
        if begins in instruction.argrepr:
            return f"{said} {graph}".rstrip() if begins == "__compiled_fn_" else said
    return _BY_OPCODE.get(instruction.opname, "")


def _short(text: str) -> str:
    """Without the random part of a compiled graph's name."""
    at = text.find("__compiled_fn_")
    if at < 0:
        return text
    head, number = text[:at], text[at + len("__compiled_fn_") :].partition("_")[0]
    return f"{head}__compiled_fn_{number.rstrip(')')}{')' if text.endswith(')') else ''}"


def _decompiled(code: CodeType) -> tuple[str, str]:
    """(Python text, "") by depyf, or ("", why there is none)."""
    try:
        from depyf.decompiler import Decompiler
    except ImportError:
        return "", NOT_HERE
    try:
        text = str(Decompiler(code).decompile()).strip()
        ast.parse(text)
    except Exception as error:  # it does not know every instruction of every Python
        return "", f"depyf could not make Python of it ({type(error).__name__})."
    for name in sorted(code.co_names, key=len, reverse=True):
        text = text.replace(name, _short(name))
    lines = text.splitlines()
    left_out = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"# {left_out:,} more lines"] if left_out > 0 else [])]), ""
