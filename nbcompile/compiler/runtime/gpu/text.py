"""The text of generated Triton files: what they define, and when two functions are the same but for names;
and what of Triton's texts is worth keeping.

The same kernel in another layer, or in another graph, is compiled and searched for once.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import types
from collections.abc import Sequence

from nbcompile.compiler.runtime.gpu.grid import is_pointer
from nbcompile.compiler.stages import Launch
from nbcompile.errors import CodegenError

_FOLDER = re.compile(r'"/[^"\n]*/([^"/\n]+\.py")|(?<=directory: )"[^"\n]*"')
_DWARF = re.compile(r"\n\s*\.section\s+\.debug_.*", re.DOTALL)


def kept(kind: str, text: str) -> str:
    """What a record keeps of a text of the compiler's: no folders (they are those of a cache in somebody's
    home) and, of PTX, no sections of debug information, which list bytes and are half of a small kernel. The
    lines that instructions are of stay."""
    if kind == "ptx":
        text = _DWARF.sub("\n", text)
    return _FOLDER.sub(lambda found: f'"{found[1]}' if found[1] else '""', text)


@functools.lru_cache(maxsize=16)
def definitions(text: str) -> dict[str, ast.stmt]:
    """What a generated file defines at its top, by name. CodegenError if it is no Python."""
    found: dict[str, ast.stmt] = {}
    for node in _syntax(text).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {item.asname or item.name.partition(".")[0]: node for item in node.names}
        elif isinstance(node, ast.Assign):
            found |= {item.id: node for item in node.targets if isinstance(item, ast.Name)}
    return found


def canonical(text: str, launch: Launch) -> list[str]:
    """What the function does, whatever its pointers and variables are called, and what all that it reaches in
    its file does. Two functions that Python compiles to the same code do the same: it numbers variables, and
    knows neither comments nor lines."""
    code, node = _codes(text).get(launch.function), definitions(text).get(launch.function)
    if code is None or not isinstance(node, ast.FunctionDef):
        return [text, launch.function]
    pointers = {item.name for item in launch.arguments if is_pointer(item.type)}
    # the grid and the configs name the others
    named = ["*" if item.arg in pointers else ast.dump(item) for item in node.args.args]
    return [sys.implementation.cache_tag or "", *named, _told(code), *_reached(text, launch.function)]


@functools.lru_cache(maxsize=4)
def _syntax(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise CodegenError(f"the generated Triton file is no Python, line {error.lineno}.") from error


@functools.lru_cache(maxsize=16)
def _codes(text: str) -> dict[str, types.CodeType]:
    """The code of each function of a file, by name."""
    whole = compile(_syntax(text), "<kernels>", "exec", dont_inherit=True)
    return {code.co_name: code for code in whole.co_consts if isinstance(code, types.CodeType)}


def _told(code: types.CodeType) -> str:
    """Code as text: all that it does, without the names of its variables."""
    constants = [_told(each) if isinstance(each, types.CodeType) else repr(each) for each in code.co_consts]
    around = code.co_argcount, code.co_flags, code.co_cellvars, code.co_freevars
    return repr((code.co_code.hex(), code.co_names, constants, around))


@functools.lru_cache(maxsize=4096)
def _reached(text: str, function: str) -> Sequence[str]:
    """What of its file a function needs, and what that does in turn."""
    known, found, waiting = definitions(text), set[str](), [function]
    while waiting:
        more = _names(text, waiting.pop()) & known.keys() - found
        found |= more
        waiting += more
    return [f"{name}: {_dumped(text, name)}" for name in sorted(found)]


@functools.lru_cache(maxsize=4096)
def _names(text: str, defined: str) -> frozenset[str]:
    code, node = _codes(text).get(defined), definitions(text)[defined]
    if code is None or any(isinstance(each, types.CodeType) for each in code.co_consts):
        return _named(node)
    assert isinstance(node, ast.FunctionDef)
    return _named(node.args, *node.decorator_list).union(code.co_names)  # and names of attributes


def _named(*nodes: ast.AST) -> frozenset[str]:
    return frozenset(item.id for node in nodes for item in ast.walk(node) if isinstance(item, ast.Name))


@functools.lru_cache(maxsize=4096)
def _dumped(text: str, defined: str) -> str:
    return ast.dump(definitions(text)[defined], annotate_fields=False)
