"""Grids of Triton launches: expressions such as ``cdiv(n, BLOCK)``, evaluated here or by the C launcher.

An expression is Python over the integer arguments of a launch, its constants, ``cdiv``, ``min`` and
``max``. :func:`grid_of` evaluates it; :func:`program` makes it the postfix code that
``launch.c`` runs at each launch, so that no Python runs there.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbcompile.compiler.stages import Config, Launch
from nbcompile.errors import CodegenError

# Operations of the postfix code, as numbered in launch.c.
CONSTANT, ARGUMENT, ADD, SUBTRACT, MULTIPLY, FLOOR_DIVIDE, MODULO, CEIL_DIVIDE, MINIMUM, MAXIMUM = range(10)
STACK = 32
"""Values that the C launcher has room for at once."""

_OPERATORS: dict[type[ast.operator], int] = {
    ast.Add: ADD,
    ast.Sub: SUBTRACT,
    ast.Mult: MULTIPLY,
    ast.FloorDiv: FLOOR_DIVIDE,
    ast.Mod: MODULO,
}
_FUNCTIONS = {"cdiv": CEIL_DIVIDE, "min": MINIMUM, "max": MAXIMUM}
_EVALUATE: dict[int, Callable[[int, int], int]] = {
    ADD: lambda a, b: a + b,
    SUBTRACT: lambda a, b: a - b,
    MULTIPLY: lambda a, b: a * b,
    FLOOR_DIVIDE: lambda a, b: a // b,
    MODULO: lambda a, b: a % b,
    CEIL_DIVIDE: lambda a, b: -(-a // b),
    MINIMUM: min,
    MAXIMUM: max,
}


def is_pointer(type_name: str) -> bool:
    """Whether a Triton type is a pointer's: ``"*bf16"``."""
    return type_name.startswith("*")


def grid_of(launch: Launch, config: Config, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """The three extents of a launch's grid, given the values of its integer arguments by name.

    CodegenError for an expression that is not of the kind above, or that names what is not there."""
    extents = []
    names = {**sizes, **config.constants}
    for expression in launch.grid:
        stack: list[int] = []
        for operation, operand in _postfix(expression):
            if operation == CONSTANT:
                stack.append(int(operand))
            elif operation == ARGUMENT:
                if operand not in names:
                    raise CodegenError(
                        f"the grid of {launch.function} names {operand!r}, which it is not given."
                    )
                stack.append(int(names[operand]))
            else:
                second, first = stack.pop(), stack.pop()
                stack.append(_EVALUATE[operation](first, second))
        extents.append(stack.pop())
    return (*extents, 1, 1, 1)[:3]  # type: ignore[return-value]


def hints_of(launch: Launch) -> dict[str, int]:
    """The sizes at which the graph was captured, by argument name."""
    return {item.name: item.hint for item in launch.arguments if not is_pointer(item.type)}


def cut_by(launch: Launch, block: str) -> list[int | None]:
    """The extents that a grid cuts into as many blocks as are needed, the constant ``block`` being the size
    of one; None for an extent that is no number."""
    found: list[int | None] = []
    for code in map(_postfix, launch.grid):
        if code[-2:] == ((ARGUMENT, block), (CEIL_DIVIDE, 0)):
            known = len(code) == 3 and code[0][0] == CONSTANT
            found.append(int(code[0][1]) if known else None)
    return found


def sizes_of(launch: Launch, args: Sequence[Any]) -> dict[str, int]:
    """The integer arguments of a call by name."""
    pairs = zip(launch.arguments, args, strict=True)
    return {item.name: int(value) for item, value in pairs if not is_pointer(item.type)}


def program(launch: Launch, config: Config) -> list[int]:
    """The grid as postfix code: for each of its expressions the number of (operation, operand) pairs,
    then the pairs; an argument's operand is its position, a constant's its value."""
    positions = {item.name: n for n, item in enumerate(launch.arguments) if not is_pointer(item.type)}
    code: list[int] = [len(launch.grid)]
    for expression in launch.grid:
        pairs = _postfix(expression)
        code.append(len(pairs))
        for operation, operand in pairs:
            if operation == ARGUMENT and operand in config.constants:
                code += [CONSTANT, int(config.constants[operand])]
            elif operation == ARGUMENT:
                if operand not in positions:
                    raise CodegenError(
                        f"the grid of {launch.function} names {operand!r}, which it is not given."
                    )
                code += [ARGUMENT, positions[operand]]
            else:
                code += [operation, int(operand)]
    return code


@functools.lru_cache(maxsize=1024)
def _postfix(expression: str) -> tuple[tuple[int, Any], ...]:
    try:
        tree = ast.parse(expression, mode="eval").body
    except SyntaxError as error:
        raise CodegenError(f"the grid {expression!r} is no expression: {error.msg}.") from error
    code: list[tuple[int, Any]] = []
    deepest = _emit(tree, expression, code)
    if deepest > STACK:
        raise CodegenError(f"the grid {expression!r} nests too deeply.")
    return tuple(code)


def _emit(node: ast.expr, whole: str, code: list[tuple[int, Any]]) -> int:
    """Append the code of one subexpression; the most values that it has on the stack."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        code.append((CONSTANT, node.value))
        return 1
    if isinstance(node, ast.Name):
        code.append((ARGUMENT, node.id))
        return 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        code.append((CONSTANT, 0))
        depth = 1 + _emit(node.operand, whole, code)
        code.append((SUBTRACT, 0))
        return depth
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        depth = max(_emit(node.left, whole, code), 1 + _emit(node.right, whole, code))
        code.append((_OPERATORS[type(node.op)], 0))
        return depth
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        if len(node.args) == 2 and not node.keywords:
            depth = max(_emit(node.args[0], whole, code), 1 + _emit(node.args[1], whole, code))
            code.append((_FUNCTIONS[node.func.id], 0))
            return depth
    raise CodegenError(f"the grid {whole!r} has {ast.unparse(node)!r}, which no launcher evaluates.")
