"""``%compile --export FILE.pt2 f(x)``: the call's function and inputs, its dimensions by the user's names."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.error import UsageError

from nbcompile.bench.export.export import export
from nbcompile.bench.export.program import DynamicDim, signature_of
from nbcompile.bench.export.report import ExportReport
from nbcompile.errors import ExportError, OptionError
from nbcompile.notebook.arguments import CellOptions


def export_call(
    expression: str, namespace: Mapping[str, Any], options: CellOptions, progress: Callable[[str], None]
) -> ExportReport:
    """Export what ``expression`` calls, with the inputs that it calls it with. UsageError, one line, for what
    is no call or cannot be exported; else raises what the program raises."""
    tree = ast.parse(expression, mode="eval").body
    if not isinstance(tree, ast.Call):
        raise UsageError("--export wants a call, for its inputs: %compile --export model.pt2 model(x)")
    fn, args, kwargs = _called(tree, namespace)
    bound = signature_of(fn).bind(*args, **kwargs)
    dynamic: dict[str, dict[int, DynamicDim]] = {}
    for name, axis, dim in options.dynamic_dims:
        dynamic.setdefault(_parameter(name, bound, namespace), {})[axis] = dim
    try:
        return export(
            fn,
            args,
            options.export,
            kwargs=kwargs,
            dynamic=dynamic,
            package=options.package,
            compilers=options.compare if options.bench else (),
            budget=options.bench_seconds,
            progress=progress,
        )
    except (ExportError, OptionError) as error:
        raise UsageError(str(error)) from error


def _called(tree: ast.Call, namespace: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function and the inputs of a call, evaluated in the order Python would."""
    taken = ast.Call(ast.Name("%taken", ast.Load()), [tree.func, *tree.args], tree.keywords)
    code = compile(ast.fix_missing_locations(ast.Expression(taken)), "<%compile --export>", "eval")

    def take(fn: Any, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        return fn, args, kwargs

    made: tuple[Any, tuple[Any, ...], dict[str, Any]] = eval(code, {**namespace, "%taken": take})
    return made


def _parameter(name: str, bound: inspect.BoundArguments, namespace: Mapping[str, Any]) -> str:
    """The parameter that ``name`` is, or that a variable of this name was given for."""
    if name in bound.arguments or name not in namespace:
        return name
    given = (parameter for parameter, value in bound.arguments.items() if value is namespace[name])
    return next(given, name)
