"""Calls that only do something outside of the graph: told, waited for, timed. They go, or move behind it."""

from __future__ import annotations

import ast

from nbcompile.coach.source import Function, Rewrite, Source, called, names

_TELL = ("print", "logging.", "warnings.", "logger.", "log.", "pprint.", "sys.stdout.", "sys.stderr.")
_WAIT = ("time.sleep", "gc.collect", "torch.cuda.synchronize", "torch.cuda.empty_cache", "breakpoint")
_CLOCK = ("time.time", "time.perf_counter", "time.monotonic", "time.process_time", "time.time_ns",
          "time.perf_counter_ns")  # fmt: skip


def is_effect(statement: ast.stmt) -> bool:
    """Whether a statement is a call of which nothing comes back but what a reader sees, or a wait."""
    name = called(statement.value) if isinstance(statement, ast.Expr) else ""
    return name in _WAIT or any(
        name == start or (start.endswith(".") and name.startswith(start)) for start in _TELL
    )


def drop_effect(source: Source, statement: ast.stmt) -> Rewrite | None:
    """A call that prints, logs, warns or waits: in a cell it moves behind the tensor statements, in a
    function it becomes a comment."""
    if not is_effect(statement):
        return None
    moved = _behind(source, statement)
    if moved is not None:
        return moved
    inside = source.scope(statement)
    gone = [each for each in ast.walk(inside) if isinstance(each, ast.stmt) and is_effect(each)]
    name = called(statement.value)  # type: ignore[attr-defined]
    return Rewrite(f"{name}() out of the function", source.without(gone), f"{name} does not run any more")


def _behind(source: Source, statement: ast.stmt) -> Rewrite | None:
    block = source.block(statement)
    if source.parents[statement] is not source.tree or isinstance(block[-1], ast.Expr):
        return None
    rest = block[block.index(statement) + 1 :]
    if any(names(each, ast.Store) & names(statement, ast.Load) for each in rest):
        return None
    lines = source.text.split("\n")
    own = lines[statement.lineno - 1 : statement.end_lineno]
    last = rest[-1].end_lineno or 0
    lines[last:last] = own
    del lines[statement.lineno - 1 : statement.end_lineno]
    return Rewrite("moved behind the tensor statements", "\n".join(lines))


def drop_clock(source: Source, statement: ast.stmt) -> Rewrite | None:
    """A clock read inside the function, where nothing but what is told depends on it."""
    inside = source.scope(statement)
    if not any(called(part) in _CLOCK for part in ast.walk(statement)):
        return None
    times: set[str] = set()
    gone: list[ast.stmt] = []
    for each in [each for each in ast.walk(inside) if isinstance(each, ast.stmt) and each is not inside]:
        read = any(called(part) in _CLOCK for part in ast.walk(each)) or times & names(each, ast.Load)
        if not read:
            continue
        if isinstance(each, ast.Assign):
            times |= names(each, ast.Store)
        elif not is_effect(each):
            return None
        gone.append(each)
    return Rewrite("clock out of the function", source.without(gone), "time the call instead")


def drop_graph_break(source: Source, statement: ast.stmt) -> Rewrite | None:
    """A break that the code asks for."""
    if isinstance(statement, ast.Expr) and called(statement.value).endswith("graph_break"):
        return Rewrite("graph_break() removed", source.without([statement]))
    return None


def drop_disable(source: Source, statement: ast.stmt) -> Rewrite | None:
    """The mark ``torch.compiler.disable`` of a function that the statement calls."""
    wanted = {called(part) for part in ast.walk(statement)}
    for each in ast.walk(source.tree):
        if not isinstance(each, Function) or each.name not in wanted:
            continue
        for mark in each.decorator_list:
            if "disable" in ast.unparse(mark):
                lines = source.text.split("\n")
                del lines[mark.lineno - 1 : mark.end_lineno]
                return Rewrite("the mark torch.compiler.disable removed", "\n".join(lines))
    return None


def allow_rnn(source: Source, statement: ast.stmt) -> Rewrite | None:
    """Dynamo traces recurrent layers where it is told to."""
    lines = source.text.split("\n")
    lines.insert(source.starts - 1, "torch._dynamo.config.allow_rnn = True")
    return Rewrite("recurrent layers traced (allow_rnn)", "\n".join(lines), "holds for the session")
