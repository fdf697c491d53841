"""Breaks: one line each, on the user's line, silent on the screen, also where no graph came before."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch._guards import TracingContext

from nbcompile.compiler.capture.graph_breaks import explain
from nbcompile.compiler.capture.recompiles import clean_reason
from nbcompile.notebook.cell.fullgraph import why_left
from tests.compiler.capture.helpers import cell, compiled


class PrintModule(torch.nn.Module):
    def forward(self, x):
        print("shape", x.shape)
        return x * 2


class ItemModule(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        if x.sum().item() > 0:
            return y * 2
        return y - 1


class ShapeLoopModule(torch.nn.Module):
    def forward(self, x):
        total = x[0]
        for row in range(1, x.shape[0]):
            total = total + x[row]
        return total


def line_of(cls: type, text: str) -> int:
    lines, first = inspect.getsourcelines(cls.forward)
    return next(first + number for number, line in enumerate(lines) if text in line)


def test_print_first(capfd: pytest.CaptureFixture[str]) -> None:
    run = compiled(PrintModule())
    torch.testing.assert_close(run(torch.ones(3)), torch.full((3,), 2.0))
    (found,) = run.compilation.breaks
    assert "print" in found.reason and "\n" not in found.reason
    assert found.hint.startswith("Print after")
    assert found.after_graph == "", "no graph came before it"
    assert found.spans[-1].line == line_of(PrintModule, "print(")
    assert found.spans[-1].file == __file__
    out, err = capfd.readouterr()
    assert out == "shape torch.Size([3])\n"
    assert err == "", "Dynamo's own 20 lines must not show"


def test_item_in_an_if(capfd: pytest.CaptureFixture[str]) -> None:
    run = compiled(ItemModule())
    torch.testing.assert_close(run(torch.ones(3)), torch.full((3,), 4.0))
    (found,) = run.compilation.breaks
    assert "Tensor.item()" in found.reason
    assert "torch.where" in found.hint
    assert found.after_graph == "g0"
    assert found.spans[-1].line == line_of(ItemModule, ".item()")
    assert [g.id for g in run.compilation.graphs if g.stage == "fx"] == ["g0.fx", "g1.fx"]
    assert capfd.readouterr().err == ""


def test_loop_over_a_shape_is_unrolled() -> None:
    run = compiled(ShapeLoopModule(), dynamic=False)
    x = torch.randn(5, 3)
    torch.testing.assert_close(run(x), x.sum(0))
    assert run.compilation.breaks == ()
    adds = [n for n in run.compilation.graph("g0.fx").nodes if n.op == "operator.add"]
    assert len(adds) == 4


@pytest.mark.skipif(
    "positions" not in inspect.signature(TracingContext.set_current_loc).parameters,
    reason="this torch (2.11) tells the line of a break, not its columns",
)
def test_column_in_the_cell() -> None:
    names, source = cell("def f(x):\n    y = x + 1\n    return y if y.sum() > 0 else -y")
    run = compiled(names["f"], cell=source)
    run(torch.ones(3))
    (found,) = run.compilation.breaks
    assert found.reason == "the branch depends on the values in a tensor"
    span = found.spans[0]
    assert (span.file, span.line) == ("", 4)
    assert source.source.splitlines()[3][span.column : span.end_column] == "y.sum() > 0"


@pytest.mark.parametrize("known", ["nothing", "columns"])
def test_columns_where_torch_notes_fewer(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from traceback import FrameSummary

    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    original = InstructionTranslatorBase.frame_summary

    def older(self):  # torch 2.11, and 2.13
        full = original(self)
        columns = {} if known == "nothing" else {"colno": full.colno, "end_colno": full.end_colno}
        return FrameSummary(full.filename, full.lineno, full.name, lookup_line=False, **columns)

    monkeypatch.setattr(InstructionTranslatorBase, "frame_summary", older)
    names, source = cell("def f(x):\n    return torch.tanh(x * 2) + 1")
    run = compiled(names["f"], cell=source)
    run(torch.ones(3))
    (tanh,) = [node for node in run.compilation.graph("g0.fx").nodes if node.op == "torch.tanh"]
    (span,) = tanh.spans
    assert source.source.splitlines()[2][span.column : span.end_column] == "torch.tanh(x * 2)"
    assert InstructionTranslatorBase.frame_summary is older, "put back when done"


def test_break_in_a_called_function_is_one_record() -> None:
    names, source = cell(
        """
        def inner(x):
            y = x * 2
            print("inside")
            return y + 1

        def outer(x):
            return inner(x + 1) * 3
        """
    )
    run = compiled(names["outer"], cell=source)
    run(torch.ones(2))
    (found,) = run.compilation.breaks
    assert [span.line for span in found.spans] == [8, 4], "outermost first"


def test_break_in_a_loop_says_that_all_ran_eagerly() -> None:
    def f(x):
        for i in range(2):
            x = x + i
            print(i)
        return x

    run = compiled(f)
    run(torch.ones(2))
    (found,) = run.compilation.breaks
    assert "inside a loop" in found.reason and "print" in found.reason
    assert not run.ran_compiled
    assert "print" in run.eager_reason


def test_fullgraph_raises_at_the_break() -> None:
    run = compiled(PrintModule(), fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        run(torch.ones(3))
    # The compile of something else goes on as if nothing had happened.
    after = compiled(lambda x: x + 1)
    after(torch.ones(2))
    assert after.ran_compiled and after.compilation.breaks == ()


def test_other_backends_breaks_are_recorded_too() -> None:
    run = compiled(ItemModule(), backend="eager")
    run(torch.ones(3))
    assert len(run.compilation.breaks) == 1
    assert run.compilation.backend == "eager"


@pytest.mark.parametrize(
    ("kind", "explanation", "reason"),
    [
        (
            "Attempted to call function marked as skipped",
            "Dynamo does not know how to trace the builtin `mine.fast_sum.` This function is either a Python "
            "builtin (e.g. _warnings.warn) or a third-party C/C++ Python extension.",
            "mine.fast_sum is not written in Python, and Dynamo does not know it",
        ),
        (
            "Data dependent operator",
            "Operator `aten.allclose.default` has a non-Tensor output whose value is dependent on data.",
            "aten.allclose gives Python a value that depends on the data in a tensor",
        ),
        ("Something new", "It cannot be done. Because of that.", "It cannot be done"),
    ],
)
def test_reasons_name_the_culprit_in_one_line(kind: str, explanation: str, reason: str) -> None:
    message = (
        f"{kind}\n  Explanation: {explanation}\n  Hint: Try this. Or that.\n\n  Developer debug context: x"
    )
    got, hint = explain(kind, message)
    assert got == reason
    assert hint and "\n" not in hint


def test_logging_is_left_as_it_was() -> None:
    import logging

    from nbcompile.compiler.capture.listening import _BREAK_LOGGERS

    before = [(logging.getLogger(n).level, logging.getLogger(n).handlers[:]) for n in _BREAK_LOGGERS]
    compiled(PrintModule())(torch.ones(2))
    after = [(logging.getLogger(n).level, logging.getLogger(n).handlers[:]) for n in _BREAK_LOGGERS]
    assert before == after


@pytest.mark.parametrize(
    "explanation, reason",
    [
        ("Missing `as_proxy()` implementation for some arg/kwarg.", "an object that no graph can hold"),
        (
            "Dynamo developers have intentionally marked that the function `E.module` in file `/a.b/c.py` "
            "should not be traced.",
            "E.module is left to Python",
        ),
        ("Dynamo does not know how to iterate over `UserDefinedObjectVariable(g)`", "is iterated over"),
        ("Tracing numpy.* functions as methods is not supported.", "a method of a NumPy array"),
        ("setattr() is not supported on type type", "is set"),
        ("<class 'RuntimeError'> has a C/C++ based str method", "text is made of"),
    ],
)
def test_reasons_are_in_our_words_and_whole(explanation: str, reason: str) -> None:
    told, hint = explain("x", f"x\n  Explanation: {explanation}\n\n  Developer debug context: none")
    assert reason in told and hint and "register_fake" not in hint


@pytest.mark.parametrize(
    ("line", "reason", "hint"),
    [
        (
            "Consider annotating your code using torch._check*(). Could not guard on data-dependent "
            "expression Eq(u0, 1) (unhinted: Eq(u0, 1)).  (Size-like symbols: none)",
            "what is done here depends on the values in a tensor", "torch.where instead of if",
        ),
        (
            "Could not extract specialized integer from data-dependent expression u0 (unhinted: u0).",
            "a number that depends on the values in a tensor is used as an index or a size", "torch.bincount",
        ),
        (
            "Attempted to represent unregistered RemovableHandle",
            "a hook is put on or taken off", "Put hooks on",
        ),
        (
            "using `torch.autograd.grad` with `torch._dynamo.config.trace_autograd_ops=False`",
            "torch.autograd.grad() is called inside the compiled part", "Call it outside",
        ),
    ],
)  # fmt: skip
def test_torchs_symbols_and_settings_are_no_reason(line: str, reason: str, hint: str) -> None:
    told = explain(line, f"{line}\n\nCaused by: (_dynamo/variables/tensor.py:2606 in evaluate_expr)")
    assert told[0] == reason and hint in told[1]


def test_why_a_statement_is_left_to_python_is_not_told_in_symbols() -> None:
    error = RuntimeError(
        "backend raised:\nCould not extract specialized integer from data-dependent expression u0"
    )
    assert (
        why_left(error, []) == "a number that depends on the values in a tensor is used as an index or a size"
    )


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "0/0: ___check_type_id(total, 94338572), type=<class 'int'>",
            "total is of another type than before (int)",
        ),
        ("0/0: ___check_obj_id(G['f'], 140235789123456)", "G['f'] is another object than before"),
        (
            "1/0: tensor 'p' rank mismatch. expected 2, actual 1. Guard failed on a parameter, consider "
            "using torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism.",
            "tensor 'p' rank mismatch. expected 2, actual 1",
        ),
    ],
)
def test_a_recompile_is_told_without_dynamos_own_checks(said: str, reason: str) -> None:
    assert clean_reason(said) == reason


@pytest.mark.parametrize(
    ("explanation", "reason"),
    [
        ("Dynamo does not know how to trace builtin operator <built-in function add> with tensor arguments",
         "Dynamo does not know add of these: a tensor, or a number that is drawn at random"),
        ("Dynamo cannot call <function f at 0x7f9b7630aac0> here", "Dynamo cannot call f here"),
        ("Dynamo has no <bound method A.g of <__main__.A object at 0x7f9b7630aac0>>",
         "Dynamo has no <bound method A.g of <__main__.A object>>"),
        ("Dynamo has intentionally marked that the function `<function g at 0x7f12>` is left",
         "g is left to Python: Dynamo does not follow it"),
    ],
)  # fmt: skip
def test_no_place_in_memory_is_told(explanation: str, reason: str) -> None:
    assert explain("some kind", f"some kind\n  Explanation: {explanation}\n")[0] == reason
