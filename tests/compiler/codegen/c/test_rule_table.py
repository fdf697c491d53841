"""The rule table: an expression is a value that knows its type and how its parts hold together."""

from __future__ import annotations

import math

import pytest
import torch

from nbcompile.compiler.codegen.c import expressions
from nbcompile.compiler.codegen.c.expressions import CWriter, cast, constant, index_code
from nbcompile.compiler.codegen.c.helpers import HELPERS
from nbcompile.compiler.codegen.c.special_functions import SPECIAL
from nbcompile.compiler.codegen.expression import Binds, Expression, loose, name
from nbcompile.compiler.codegen.helpers import I0
from nbcompile.compiler.loop_ir.index import Axis, FloorDiv, IndexExpr, Size, index
from nbcompile.errors import CodegenError

F, L = torch.float32, torch.int64
X, Y = name("x", F), name("y", F)


def test_parentheses_stand_where_an_expression_is_an_operand() -> None:
    total = CWriter().op("add", [X, Y], F)
    assert (total.text, total.operand, total.is_name) == ("x + y", "(x + y)", False)
    assert CWriter().op("mul", [total, Y], F).text == "(x + y) * y"
    assert X.operand == "x" and X.is_name


def test_no_two_signs_in_a_row() -> None:
    assert CWriter().op("neg", [constant(-3, L)], L).text == "(long)-(-3L)"
    assert CWriter().op("neg", [constant(-0.0, F)], F).text == "-(-0.0f)"
    assert CWriter().op("sub", [X, constant(-1.5, F)], F).text == "x - (-1.5f)"


@pytest.mark.parametrize(
    ("value", "dtype", "text", "binds"),
    [
        (1, torch.bool, "1", Binds.TIGHT),
        (7, L, "7L", Binds.TIGHT),
        (-7, torch.int32, "-7", Binds.SIGNED),
        (-(2**63), L, "-9223372036854775807L - 1", Binds.LOOSE),
        (0.1, F, "0.1f", Binds.TIGHT),
        (0.1, torch.float64, "0.1", Binds.TIGHT),
        (-math.inf, F, "-__builtin_inff()", Binds.SIGNED),
        (math.nan, torch.float64, '__builtin_nan("")', Binds.TIGHT),
    ],
)
def test_literals(value: float, dtype: torch.dtype, text: str, binds: Binds) -> None:
    assert constant(value, dtype) == Expression(text, dtype, binds)


def test_a_cast_goes_by_way_of_a_type_that_holds_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cast(name("d", torch.float64), torch.uint8).text == "(unsigned char)(long)d"
    monkeypatch.setattr(expressions, "_X86", False)
    assert cast(X, torch.uint8).text == "(unsigned char)(long)x"
    monkeypatch.setattr(expressions, "_X86", True)
    assert cast(X, torch.uint8).text == "(unsigned char)(int)x"
    assert cast(name("n", L), torch.uint8).text == "(unsigned char)n"
    assert cast(loose("x + y", F), torch.bool).text == "(x + y) != 0"


def test_small_integers_wrap_where_they_are_computed() -> None:
    small = name("a", torch.int8)
    assert CWriter().op("add", [small, small], torch.int8).text == "(signed char)(a + a)"


def test_truths_are_joined_by_logic() -> None:
    p, q = name("p", torch.bool), name("q", torch.bool)
    written = {
        each: CWriter().op(each, [p, q], torch.bool).text for each in ("add", "mul", "maximum", "bitxor")
    }
    assert written == {"add": "p || q", "mul": "p && q", "maximum": "p || q", "bitxor": "p ^ q"}
    with pytest.raises(CodegenError, match="no C for sub"):
        CWriter().op("sub", [p, q], torch.bool)


def test_a_writer_knows_what_must_be_declared() -> None:
    writer = CWriter()
    writer.op("remainder", [X, Y], F)
    writer.op("erfinv", [name("z", torch.float64)], torch.float64)
    assert writer.functions == {
        "fmodf": ("float", 2), "log": ("double", 1), "erf": ("double", 1), "exp": ("double", 1),
    }  # fmt: skip
    assert list(writer.helpers) == [
        "remainder_float_f32", "special_chebyshev", "special_erfcx", "special_normal_tail", "special_erfinv",
    ]  # fmt: skip


def test_no_placeholder_is_left_in_a_helper() -> None:
    writer = CWriter()
    for helper, entry in HELPERS.items():
        typed = "TYPE" in entry.text
        of = F if helper in ("maximum", "minimum", "fmax", "fmin", "sign") or "float" in helper else L
        writer.helper(helper, of if typed else None)
    for text in writer.helpers.values():
        assert not any(word in text for word in ("TYPE", "SHORT", "SUFFIX", "MINUS_ONE")), text


def test_special_functions_name_all_that_they_call() -> None:
    for entry in SPECIAL.values():
        called = {other for other in SPECIAL if f" {other}(" in entry.text or f"{other}_f64(" in entry.text}
        own = {each for each in SPECIAL if SPECIAL[each] is entry}
        assert called - own <= set(entry.needs)


def test_a_special_function_holds_its_series_once() -> None:
    assert SPECIAL["i0e"].text.count(repr(I0.near[0])) == 1


def test_an_index_says_whether_it_is_a_variable() -> None:
    i, n = Axis("i", index(8)), Size("s0", 8)
    names = {"i": "i", "s0": "s0"}

    def code(place: IndexExpr) -> tuple[str, Binds]:
        made = index_code(place, lambda atom: names[atom.text])
        return made.text, made.binds

    assert code(index(i)) == ("i", Binds.NAME) and code(index(0)) == ("0", Binds.TIGHT)
    assert code(index(i) * 4) == ("i*4", Binds.LOOSE) and code(index(i) - 1)[1] is Binds.LOOSE
    quotient = IndexExpr({(FloorDiv(index(i), index(n)),): 1})
    assert code(quotient) == ("((i) / s0)", Binds.LOOSE)
