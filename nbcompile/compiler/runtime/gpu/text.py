"""The text of generated Triton files: what they define, and when two functions are the same but for names;
and what of Triton's texts is worth keeping.

The same kernel in another layer, or in another graph, is compiled and searched for once.
"""

from __future__ import annotations

import ast
import functools
import re
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
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise CodegenError(f"the generated Triton file is no Python, line {error.lineno}.") from error
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {item.asname or item.name.partition(".")[0]: node for item in node.names}
        elif isinstance(node, ast.Assign):
            found |= {item.id: node for item in node.targets if isinstance(item, ast.Name)}
    return found


def canonical(text: str, launch: Launch) -> list[str]:
    """The function's syntax, its pointers and variables renamed in order of appearance, and that of all it
    reaches in its file."""
    known = definitions(text)
    node = known.get(launch.function)
    if not isinstance(node, ast.FunctionDef):
        return [text, launch.function]
    own = ast.parse(ast.unparse(node)).body[0]  # a copy of its own: the definitions are shared
    assert isinstance(own, ast.FunctionDef)
    pointers = {item.name for item in launch.arguments if is_pointer(item.type)}
    kept = {item.arg for item in own.args.args} - pointers  # the grid and the configs name these
    names = [item for item in ast.walk(own) if isinstance(item, ast.Name)]
    bound = {item.id for item in names if isinstance(item.ctx, ast.Store)}
    renamed: dict[str, str] = {}
    for item in own.args.args:
        if item.arg in pointers:
            item.arg = renamed.setdefault(item.arg, f"v{len(renamed)}")
    for part in names:
        if part.id in bound | pointers and part.id not in kept:
            part.id = renamed.setdefault(part.id, f"v{len(renamed)}")
    own.name = "kernel"
    return [ast.dump(own, annotate_fields=False), *_reached(known, node)]


def _reached(known: dict[str, ast.stmt], node: ast.stmt) -> Sequence[str]:
    found: dict[str, ast.stmt] = {}
    waiting = [node]
    while waiting:
        for item in ast.walk(waiting.pop()):
            if isinstance(item, ast.Name) and item.id in known and item.id not in found:
                found[item.id] = known[item.id]
                waiting.append(known[item.id])
    return [f"{name}: {ast.dump(found[name], annotate_fields=False)}" for name in sorted(found)]
