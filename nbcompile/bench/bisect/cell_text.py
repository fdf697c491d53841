"""The smallest program as a cell, and the proof that it shows what it was made for: it is run as printed."""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from nbcompile.backends import registry
from nbcompile.backends.base import BackendArgument
from nbcompile.bench.bisect.graphs import Cut
from nbcompile.bench.bisect.inputs import RECIPES, lines_of
from nbcompile.bench.bisect.judging import Symptom, judge
from nbcompile.bench.bisect.stages import StageCompiler
from nbcompile.errors import CheckError, OptionError
from nbcompile.record.check import MinimalCell

_FILE = "<the smallest cell>"


def minimal_cell(cut: Cut, stage: StageCompiler, symptom: Symptom, train: bool) -> MinimalCell:
    """``cut`` as text, on the plainest inputs with which it shows the symptom. CheckError where it cannot be
    written as a cell."""
    names, imports, body, results = _printed(cut.module)
    flags = stage.flags + (" --train" if train else "")
    text = "\n".join([f"%%compile {flags}", *body])
    tried = stage.printed
    inputs = ""
    for recipe, said in RECIPES.items():
        lines = lines_of(names, cut.inputs, recipe)
        if lines is None:
            continue
        inputs = "\n".join([*imports, "", *lines])
        fn, values = _program(inputs, names, body, results)
        if symptom.shown_by(judge(fn, values, tried.compile, train=train)):
            return MinimalCell(inputs, text, said, True, _how_to_name(stage))
    missing = "run as printed, it does not show it: only within the program, where the search saw it"
    return MinimalCell(inputs, text, "saved as they were", False, missing)


def _printed(module: fx.GraphModule) -> tuple[list[str], list[str], list[str], list[str]]:
    """Names of the inputs, import statements, statements, and names of the results."""
    code = module.graph.python_code("self")
    tree = ast.parse(code.src)
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    if any(isinstance(node, ast.Name) and node.id == "self" for node in ast.walk(function)):
        raise CheckError("it calls a graph within the graph, which no cell can say.")
    names = [str(node.target) for node in module.graph.nodes if node.op == "placeholder"]
    kept = [each for each in function.body if not _forgets(each) and not isinstance(each, ast.Return)]
    body = [ast.unparse(_Public().visit(_plain(each))) for each in kept]
    results = [node.name for node in module.graph.output_node().all_input_nodes]
    used = {node.id for each in kept for node in ast.walk(each) if isinstance(node, ast.Name)}
    wanted = {name: value for name, value in code.globals.items() if name in used}
    imports = {"import torch", *(_import(name, value) for name, value in wanted.items())}
    return names, sorted(imports), body, results


def _forgets(statement: ast.stmt) -> bool:
    """``x = None``, by which FX lets go of what is read no more."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    return isinstance(value, ast.Constant) and value.value is None


def _plain(statement: ast.stmt) -> ast.stmt:
    """Without the type that FX writes beside a name."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        plain = ast.Assign(targets=[statement.target], value=statement.value, lineno=statement.lineno)
        return ast.fix_missing_locations(plain)
    return statement


class _Public(ast.NodeTransformer):
    """Builtins of torch by the names that people know: ``torch.nn.functional.gelu``."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.value) != "torch._C._nn":
            return node
        known = getattr(functional, node.attr, None)
        if known is None or known is not getattr(torch._C._nn, node.attr):
            return node
        return ast.parse(f"torch.nn.functional.{node.attr}", mode="eval").body


def _import(name: str, value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__}" + (f" as {name}" if value.__name__ != name else "")
    if isinstance(value, float):
        return f'{name} = float("{value}")'
    if value is type(None):
        return f"{name} = type(None)"
    module, own = getattr(value, "__module__", ""), getattr(value, "__name__", "")
    if module and getattr(sys.modules.get(module), own, None) is value:
        return f"from {module} import {own}" + (f" as {name}" if own != name else "")
    raise CheckError(f"it calls {name}, which no import gives.")


def _program(
    inputs: str, names: list[str], body: list[str], results: list[str]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The printed text as a function with its arguments."""
    scope: dict[str, Any] = {"__name__": "nbcompile_check"}
    exec(compile(inputs, _FILE, "exec"), scope)
    shown = ", ".join(results)
    lines = [f"def cell({', '.join(names)}):", *(f"    {line}" for line in body), f"    return ({shown},)"]
    source = "\n".join(lines) + "\n"
    linecache.cache[_FILE] = (len(source), None, source.splitlines(keepends=True), _FILE)
    exec(compile(source, _FILE, "exec"), scope)
    return scope["cell"], tuple(scope[name] for name in names)


def _how_to_name(stage: StageCompiler) -> str:
    """What is left to do so that ``--backend`` finds the backend; empty if it does."""
    name = stage.settings.backend_name
    if isinstance(stage.settings.backend, str) or _finds(name, stage.settings.backend):
        return ""
    return f"give the backend the name {name} in the notebook first, where --backend looks for it"


def _finds(name: str, backend: BackendArgument) -> bool:
    try:
        registry.check(name)
    except OptionError:
        return False
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module or "__main__"), own, backend) is backend
