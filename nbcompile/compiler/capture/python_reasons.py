"""Why a statement of a cell is Python's to run, as far as its text can tell."""

from __future__ import annotations

import ast
import re

_BACKWARD = "runs the backward pass, itself compiled, from Python"
CALLS_BACKWARD = f".backward() {_BACKWARD}"
EAGER_BACKWARD = ".backward() runs from Python, and what it goes back through was not compiled"
_PYTHON_METHODS = {
    **dict.fromkeys(("item", "tolist", "numpy", "__bool__"), "reads a tensor's value into Python"),
    "backward": _BACKWARD,
    "zero_grad": "clears gradients",
    "state_dict": "hands out a module's tensors, from Python",
    "step": "updates parameters (--optimizer compiles an optimizer's)",
    **dict.fromkeys(
        ("load_state_dict", "train", "eval", "requires_grad_", "retain_grad", "register_hook"),
        "changes a module's or tensor's settings",
    ),
}
_OTHER_STEP = "updates parameters (--optimizer compiles a line that is only opt.step(), without arguments)"
CHANGES_CONTAINER = "changes a container at each step"
ANNOTATED = "has an annotation, which Python evaluates"
FILLS_CONTAINER = f"{CHANGES_CONTAINER} and computes what goes into it"
TAKEN_BY_PYTHON = "a branch that Python takes"
_ASKING = ("backward", "item", "tolist", "numpy")
_OPERATION = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare)
_HANDING_ON = frozenset("detach cpu to float double clone contiguous squeeze view reshape flatten".split())
_PYTHON_NAMES = frozenset(
    "print input open exec eval compile locals globals vars dir display get_ipython breakpoint help exit "
    "quit delattr setattr id hash __import__ iter next".split()
)
_DEFINITIONS = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global,
    ast.Nonlocal, ast.Pass, ast.Break, ast.Continue, ast.Return, ast.Raise, ast.Delete,
)  # fmt: skip


_QUIET: tuple[tuple[type[ast.stmt] | tuple[type[ast.stmt], ...], str], ...] = (
    ((ast.Import, ast.ImportFrom), "imports a module"),
    ((ast.FunctionDef, ast.AsyncFunctionDef), "defines a function"),
    (ast.ClassDef, "defines a class"),
    ((ast.Pass, ast.Break, ast.Continue, ast.Return), "Python's control flow"),
    (ast.Raise, "raises an exception"),
    (ast.Delete, "deletes a name"),
    ((ast.Global, ast.Nonlocal), "says whose a name is"),
    ((ast.Try, ast.Match), "Python's control flow"),
    ((ast.With, ast.AsyncWith), "enters a context"),
    (ast.While, "a loop, run step by step"),
    ((ast.For, ast.AsyncFor), "a loop, run step by step"),
    (ast.If, TAKEN_BY_PYTHON),
)


def is_step(node: ast.stmt) -> bool:
    """Whether a statement is a call such as ``optimizer.step()``, of which nothing is asked back."""
    call = node.value if isinstance(node, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.attr == "step"
        and not (call.args or call.keywords)
    )


def is_of_its_owner(call: ast.Call) -> bool:
    """Whether it depends on whose method it is: ``trainer.step(x)`` and ``agent.train(x)`` are given what
    they compute with, where an optimizer's and a module's are given little or nothing."""
    named = isinstance(call.func, ast.Attribute) and call.func.attr in ("step", "train")
    return named and bool(call.args or call.keywords)


def python_method(name: str, *, only: bool = False) -> str:
    """Why a method of this name is Python's to run; ``only``: the statement is nothing else, and gives it no
    arguments."""
    return f".{name}() {_OTHER_STEP if name == 'step' and not only else _PYTHON_METHODS[name]}"


def receiver_reads(node: ast.stmt) -> ast.Call | None:
    """The call of ``loss_of(x).backward()`` or ``n = (p == y).sum().item()``: a statement that only asks
    a tensor's value, or its gradients, of an expression that may be compiled. None for any other."""
    call = node.value if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if isinstance(node, ast.AugAssign) and not isinstance(node.target, ast.Name):
        return None  # a place that is looked up before the value is computed
    if call.func.attr not in _ASKING or not isinstance(call.func.value, ast.Call | ast.BinOp | ast.UnaryOp):
        return None
    worth = _computes(call.func.value) and expression_reason(call.func.value) is None
    return call if worth else None


def appended(node: ast.stmt) -> ast.expr | None:
    """``net(x)``, which may be compiled, of ``outs.append(net(x))`` or ``losses.append(float(net(x)))`` in a
    loop, where Python changes the list at each step. None for any other statement."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    owner: ast.expr = call.func
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    grows = call.func.attr in ("append", "appendleft") and isinstance(owner, ast.Name)
    if not grows or len(call.args) != 1 or call.keywords:
        return None
    value = _behind_a_number(call.args[0])
    if not isinstance(value, _OPERATION) or not work_in(value) or expression_reason(value) is not None:
        return None
    # A list that is read, too, is another one to Dynamo at each step.
    own = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    return None if isinstance(owner, ast.Name) and owner.id in own else value


def work_in(node: ast.expr) -> list[ast.expr]:
    """What of an expression computes, of tensors as far as its text can tell: more than the number that one
    holds, or a tensor that is handed on. Of a tuple, a list or a dict, its items."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [found for each in node.elts for found in work_in(each)]
    if isinstance(node, ast.Dict):
        return [found for each in node.values for found in work_in(each)]
    node = _behind_a_number(node)
    return [node] if isinstance(node, _OPERATION) and _computes(node) else []


def _behind_a_number(node: ast.expr) -> ast.expr:
    """``net(x)`` of ``float(net(x))``."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        if node.func.id not in ("float", "int", "bool", "str"):
            break
        node = node.args[0]
    return node


def _computes(node: ast.expr) -> bool:
    """Whether there is more in it than a tensor that is handed on."""
    while (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _HANDING_ON
    ):
        node = node.func.value
    return not isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


def python_reason(node: ast.stmt) -> str | None:
    """Why a simple statement is Python's to run: a sentence, ``""`` where that needs no saying, or
    ``None`` if it may be compiled."""
    if isinstance(node, _DEFINITIONS) or _is_type_alias(node):
        return ""
    if isinstance(node, ast.AnnAssign):
        value = node.value
        worth = value is not None and work_in(value) and expression_reason(value) is None
        return ANNOTATED + (": without it, the line is compiled" if worth else "")
    if isinstance(node, ast.Assert):
        return "decides by a value"
    if isinstance(node, ast.Expr | ast.Assign) and isinstance(
        node.value, ast.Constant | ast.Name | ast.Lambda
    ):
        # A bare store into x[...] or x.a is real work; binding a name is not.
        if isinstance(node, ast.Expr) or all(isinstance(target, ast.Name) for target in node.targets):
            return ""
    if isinstance(node, ast.Assign | ast.Expr | ast.AugAssign):
        if isinstance(node.value, ast.GeneratorExp):
            return ""
        return expression_reason(node)
    return "is not tensor work"


def quiet_reason(node: ast.stmt) -> str:
    """What a statement is, of which ``python_reason`` says nothing: there is nothing in it to compile."""
    if isinstance(node, ast.While) and not isinstance(node.test, ast.Constant | ast.Name):
        return "a loop, run step by step, whose condition Python computes"
    for kinds, words in _QUIET:
        if isinstance(node, kinds):
            return words
    if _is_type_alias(node):
        return "names a type"
    value = getattr(node, "value", None)
    if isinstance(value, ast.Lambda):
        return "makes a function"
    if isinstance(value, ast.GeneratorExp):
        return "makes a generator"
    return "text" if _is_text(node) else "names a value"


def is_in_block(node: ast.stmt, place: tuple[int, int]) -> bool:
    """Whether a place in a statement is of one that stands in it, and not in what it begins with."""
    body = getattr(node, "body", None)
    return isinstance(body, list) and (body[0].lineno, body[0].col_offset) <= place


def where_it_stands(reason: str, part: ast.expr, node: ast.stmt) -> str:
    """The reason for which a part of a statement is Python's, said of the whole: of one in a block, with its
    line."""
    within = is_in_block(node, (part.lineno, part.col_offset))
    return f"{quiet_reason(node)}, for line {part.lineno}: {reason}" if within else reason


def reason_within(reason: str) -> str:
    """Where a statement is left to Python for one that stands in it, the reason of that; else empty."""
    found = _FOR_LINE.search(reason)
    return reason[found.end() :] if found else ""


_FOR_LINE = re.compile(r", for line \d+: ")


def head_reason(node: ast.stmt) -> str:
    """Why Python evaluates what a compound statement begins with; empty where that is no more than which
    statements run."""
    heads: list[ast.expr] = []
    if isinstance(node, ast.For):
        heads = [node.iter]
    elif isinstance(node, ast.If | ast.While):
        heads = [node.test]
    elif isinstance(node, ast.With):
        heads = [item.context_expr for item in node.items]
    elif isinstance(node, ast.Match):
        heads = [node.subject]
    return next((reason for head in heads if (reason := expression_reason(head))), "")


def expression_reason(node: ast.AST) -> str | None:
    """Why an expression is Python's to compute; ``None`` if it may be compiled."""
    consumed = {id(arg) for call in ast.walk(node) if isinstance(call, ast.Call) for arg in call.args}
    for part in ast.walk(node):
        if isinstance(part, ast.Await | ast.Yield | ast.YieldFrom):
            return "awaits or yields"
        if isinstance(part, ast.Lambda) and id(part) not in consumed:
            return "makes a function"
        if isinstance(part, ast.GeneratorExp) and id(part) not in consumed:
            return "makes a generator"
        if isinstance(part, ast.JoinedStr):
            return "formats text"
        if isinstance(part, ast.Call):
            if isinstance(part.func, ast.Name) and part.func.id == "get_ipython":
                return "a magic or a shell command, which IPython runs"
            if isinstance(part.func, ast.Name) and part.func.id in _PYTHON_NAMES:
                return f"{part.func.id} runs in Python"
            if isinstance(part.func, ast.Attribute) and part.func.attr in _PYTHON_METHODS:
                if not is_of_its_owner(part):
                    only = isinstance(node, ast.stmt) and is_step(node)
                    return python_method(part.func.attr, only=only)
            if any(word.arg == "requires_grad" for word in part.keywords):
                return "makes a leaf of the autograd graph"
    return None


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_type_alias(node: ast.stmt) -> bool:
    return type(node).__name__ == "TypeAlias"  # Python 3.12
