"""The rules of the house beside those of tests/test_imports.py: functions that one sees at once, one name for
one thing, nobody at another file's private things, no circle of files. What breaks a rule today is listed,
and comes off the list when it is mended."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "nbcompile"
FILES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
Function = ast.FunctionDef | ast.AsyncFunctionDef

MOST_LINES, MOST_PARAMETERS = 60, 8
# What users call has the arguments that torch.compile has; what lowers an operator has that operator's.
OF_ATEN = ("compiler/lower/operators/", "backends/xla/operators/", "compiler/linear_cross_entropy/")
MANY_PARAMETERS = {
    # What users call with keywords: each is one thing to ask for, listed by help().
    "bench/captures/captures.py:captures", "bench/export/export.py:export", "bench/sweep/running.py:sweep",
    "testing.py:__call__",
}  # fmt: skip


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def parameters(function: Function) -> int:
    given = function.args
    named = [*given.posonlyargs, *given.args]
    own = bool(named) and named[0].arg in ("self", "cls")
    return len(named) + len(given.kwonlyargs) - own


def place(path: Path, name: str) -> str:
    return f"{path.relative_to(PACKAGE).as_posix()}:{name}"


def too_long(files: dict[Path, ast.Module]) -> set[str]:
    return {
        place(path, each.name)
        for path, tree in files.items()
        for each in functions(tree)
        if (each.end_lineno or 0) - each.lineno + 1 > MOST_LINES
    }


def too_many_parameters(files: dict[Path, ast.Module]) -> set[str]:
    return {
        place(path, each.name)
        for path, tree in files.items()
        for each in functions(tree)
        if parameters(each) > MOST_PARAMETERS and not place(path, each.name).startswith(OF_ATEN)
    }


def private_imports(files: dict[Path, ast.Module]) -> set[str]:
    """What one file takes of another's private names."""
    return {
        place(path, name.name)
        for path, tree in files.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nbcompile")
        for name in node.names
        if name.name.startswith("_") and not name.name.startswith("__")
    }


def shared_names(files: dict[Path, ast.Module]) -> set[str]:
    """Names of public classes that more than one file has."""
    seen: dict[str, set[Path]] = {}
    for path, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                seen.setdefault(node.name, set()).add(path)
    return {name for name, homes in seen.items() if len(homes) > 1}


def undescribed(files: dict[Path, ast.Module]) -> list[str]:
    return [
        place(path, node.name)
        for path, tree in files.items()
        for node in tree.body
        if isinstance(node, Function) and not node.name.startswith("_") and not ast.get_docstring(node)
        if not any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)
    ]


def arrows(files: dict[Path, ast.Module]) -> dict[str, set[str]]:
    """Which modules of the package each imports, also inside functions and for types alone. The package
    itself, which hands out names of others on demand, is none of them."""
    names = {}
    for path in files:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[path] = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    known = set(names.values()) - {""}
    found: dict[str, set[str]] = {name: set() for name in known}
    for path, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            elif isinstance(node, ast.Import):
                wanted = [(alias.name, alias.name) for alias in node.names]
            else:
                continue
            for inner, outer in wanted:
                targets = (inner.removeprefix("nbcompile."), outer.removeprefix("nbcompile."))
                target = next((name for name in targets if name in known), None)
                if target and names[path] in known and target != names[path]:
                    found[names[path]].add(target)
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The modules that import each other, by way of whatever others (Tarjan, 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            place = stack.index(module)
            if len(stack) - place > 1:
                found.append(set(stack[place:]))
            del stack[place:]

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


READ_BY_THEIR_TESTS = ("schedule", "kernel_ir", "codegen")  # rooms of the compiler


def without_tests(files: dict[Path, ast.Module]) -> set[str]:
    """Files of those rooms that have no test file of their own name, in the same place below ``tests``."""
    rooms = [PACKAGE / "compiler" / room for room in READ_BY_THEIR_TESTS]
    own = [path for path in files if path.name != "__init__.py" and any(r in path.parents for r in rooms)]
    places = {path.relative_to(PACKAGE): f"test_{path.name}" for path in own}
    return {
        place.as_posix()
        for place, test in places.items()
        if not (ROOT / "tests" / place.parent / test).exists()
    }


def test_functions_are_seen_at_once() -> None:
    assert too_long(FILES) == set()


def test_functions_take_few_parameters() -> None:
    assert too_many_parameters(FILES) == MANY_PARAMETERS


def test_nobody_takes_anothers_private_names() -> None:
    assert private_imports(FILES) == set()


def test_one_name_for_one_thing() -> None:
    assert shared_names(FILES) == set()


def test_public_functions_say_what_they_do() -> None:
    assert undescribed(FILES) == []


def test_printers_and_schedules_have_tests_of_their_own() -> None:
    assert without_tests(FILES) == set()
    assert without_tests({PACKAGE / "compiler" / "codegen" / "x.py": ast.parse("")}) == {
        "compiler/codegen/x.py"
    }


def test_no_circle_of_files() -> None:
    assert circles(arrows(FILES)) == []


_BAD = {
    too_long: "def f():\n" + "    x = 1\n" * 61,
    too_many_parameters: "class C:\n    def f(self, a, b, c, d, e, f, g, h, *, i): ...\n",
    private_imports: "def f():\n    from nbcompile.api import _hidden\n",
}


@pytest.mark.parametrize("rule", _BAD, ids=lambda rule: rule.__name__)
def test_each_rule_can_fail(rule) -> None:
    path = PACKAGE / "x.py"
    assert len(rule({path: ast.parse(_BAD[rule])})) == 1
    assert not rule({path: ast.parse("def f(a: int) -> int:\n    return a\n")})


def test_the_rules_of_names_and_circles_can_fail() -> None:
    one, other = PACKAGE / "a.py", PACKAGE / "record" / "b.py"
    assert shared_names({one: ast.parse("class A: ..."), other: ast.parse("class A: ...")}) == {"A"}
    assert undescribed({one: ast.parse("def f(): ...\ndef _g(): ...\n")}) == ["a.py:f"]
    round_ = {
        one: ast.parse("from nbcompile.record import b\n"),
        other: ast.parse("def f():\n    import nbcompile.a\n"),
    }
    assert circles(arrows(round_)) == [{"a", "record.b"}]
    assert circles(arrows({one: round_[one], other: ast.parse("")})) == []
