"""Names, locals, guards and gathered indices of one kernel."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.codegen.c.expressions import may_be_one_bit
from nbcompile.compiler.codegen.c.kernel import out_of_range
from nbcompile.compiler.codegen.expression import Expression, name
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.expr import Constant, Guarded, op
from nbcompile.compiler.loop_ir.index import Axis, index
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, nests, read

ROW = Axis("i", index(10))
X = buffer("x", 10)


def test_names_are_no_words_of_c_and_no_two_are_the_same() -> None:
    made = nests(group(loop(buffer("out", 10), (ROW,), read(X, ROW)), axes=(ROW,)), X)
    assert [made.fresh(hint) for hint in ("double", "exp", "i", "3d", "a.b", "t", "t")] == [
        "double_", "exp_", "i_", "t3d", "a_b", "t", "t_2",
    ]  # fmt: skip


def test_what_is_used_twice_is_computed_once() -> None:
    power = op("exp", read(X, ROW))
    twice = group(loop(buffer("out", 10), (ROW,), op("add", power, power)), axes=(ROW,))
    assert "const float t = exp_f32(x[i]);" in lines(twice, X) and "out[i] = t + t;" in lines(twice, X)


def test_a_loop_is_cut_where_a_guard_changes_its_mind() -> None:
    padded = Guarded(((index(ROW), index(2), index(10)),), read(X, ROW), Constant(0.0, torch.float32))
    found = lines(group(loop(buffer("out", 10), (ROW,), padded), axes=(ROW,)), X)
    assert [line for line in found if line.startswith(("for", "out"))] == [
        "for (long i = 0; i < 2; i++) {", "out[i] = 0.0f;",
        "for (long i = 2; i < 10; i++) {", "out[i] = x[i];",
    ]  # fmt: skip


def test_bits_and_numbers_of_memory() -> None:
    made = nests(group(loop(buffer("out", 10), (ROW,), read(X, ROW)), axes=(ROW,)), X)
    assert made.loaded("m[i]", torch.bool, torch.bool).operand == "(m[i] != 0)"
    assert made.loaded("m[i]", torch.bfloat16, torch.float32).text == "bf16_to_float(m[i])"
    stored = made.stored(name("t", torch.float32), torch.float16)
    assert stored == Expression("float_to_f16(t)", torch.float16)
    copied = made.stored(made.loaded("m[(i)]", torch.float16, torch.float32), torch.float16)
    assert copied.text == "m[(i)]"


def test_the_test_of_an_index_is_one_comparison() -> None:
    assert out_of_range("p[i]", "6") == "bad |= (unsigned long)(p[i]) >= (unsigned long)(6)"


@pytest.mark.parametrize(("kind", "operation", "one_bit"), [("load", "", False), ("op", "bitand", True)])
def test_which_numbers_a_compiler_may_make_of_a_comparison(kind: str, operation: str, one_bit: bool) -> None:
    assert may_be_one_bit(Value(0, kind, torch.int64, op=operation)) is one_bit
    total = Value(1, "op", torch.int64, (Value(0, kind, torch.int64, op=operation),), op="add")
    assert may_be_one_bit(total) is one_bit
