"""A file of C: the nest that each kernel is printed as, and what is declared above them all."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.codegen.c.expressions import CWriter
from nbcompile.compiler.codegen.c.groups_to_c import NESTS, groups_to_c, nest_of, print_kernel
from nbcompile.compiler.loop_ir.expr import Expr, Load, op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from nbcompile.compiler.stages import KernelSource
from tests.compiler.codegen.c.by_hand import buffer, buffers, fused, group, loop, nests, read

ROW, COL = Axis("i", index(6)), Axis("j", index(40))
X, D = buffer("x", 6), buffer("d", 6, dtype=torch.float64)
WHOLE = buffer("x", 6, 40)


def pointwise(name: str, body: Expr, dtype: torch.dtype = torch.float32) -> Group:
    return group(loop(buffer(name, 6, dtype=dtype), (ROW,), body), axes=(ROW,))


def file_of(*groups: Group, vector_math: str = "", lines: tuple[int, ...] = ()) -> KernelSource:
    return groups_to_c(fused(*groups, inputs=[X, D], lines=lines), frozenset(vector_math.split()))


def test_what_needs_nothing_of_the_library_has_nothing_above_it() -> None:
    made = file_of(pointwise("double", read(X, ROW) + read(X, ROW)))
    assert made.head == ("// made by nbcompile; header-free C",)


def test_a_function_of_the_library_is_declared_once_whoever_calls_it() -> None:
    power, angle = op("sin", read(X, ROW)), op("atan2", read(X, ROW), read(X, ROW))
    made = file_of(pointwise("a", power), pointwise("b", power + angle))
    assert made.head[1].splitlines() == [
        "__attribute__((const)) float atan2f(float, float);",
        "__attribute__((const)) float sinf(float);",
    ]


def test_where_the_library_has_vectors_of_a_function_loops_may_take_them() -> None:
    made = file_of(
        pointwise("a", op("sin", read(X, ROW))),
        pointwise("b", op("exp", read(D, ROW)), torch.float64),
        vector_math="expf sinf",
    )
    assert made.head[1].splitlines() == [
        "__attribute__((const)) double exp(double);",
        '__attribute__((simd("notinbranch"), const)) float sinf(float);',
    ]


def test_helpers_stand_once_above_all_kernels_each_below_what_it_calls() -> None:
    quantile, tail = op("ndtri", read(D, ROW)), op("log_ndtr", read(D, ROW))
    text = file_of(pointwise("a", quantile, torch.float64), pointwise("b", tail, torch.float64)).source
    order = ["exp(", "chebyshev(", "erfcx_f64(", "normal_tail(", "erfinv_f64(", "ndtri_f64("]
    places = [text.index(f"double {name}double") for name in order]
    assert places == sorted(places) and places[-1] < text.index("void k0_test(")
    assert text.count("double erfcx_f64(double") == 1


def test_kernels_stand_in_the_order_in_which_they_run() -> None:
    made = file_of(pointwise("a", read(X, ROW)), pointwise("b", read(X, ROW)), lines=(3, 1))
    assert [item.symbol for item in made.entry_points] == ["k0_test", "k1_test"]
    assert [item.text.splitlines()[0] for item in made.kernels] == [
        "// cell lines 1, 3: a", "// cell lines 1, 3: b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reduced", "inner", "kind"),
    [((ROW, COL), (), "points"), ((ROW, COL), (ROW, COL), "rows"), ((COL,), (COL,), "rows"),
     ((ROW,), (ROW,), "columns")],
    ids=["shared out among threads", "of one walk", "of rows", "of columns"],
)  # fmt: skip
def test_a_sum_is_printed_as_its_nest_has_it_walked(
    reduced: tuple[Axis, ...], inner: tuple[Axis, ...], kind: str
) -> None:
    kept = [axis for axis in (ROW, COL) if axis not in reduced]
    out = buffer("total", *(int(axis.extent.constant or 0) for axis in kept))
    total = loop(out, (ROW, COL), read(WHOLE, ROW, COL), reduced=reduced, reduction="sum")
    outer = [axis for axis in (ROW, COL) if axis not in inner]
    made = group(total, axes=(*outer, *inner), inner=inner, split="" if inner else "total")
    assert nest_of(nests(made, WHOLE)) == kind and kind in NESTS


def test_a_scatter_is_one_even_where_it_walks_rows() -> None:
    made = loop(buffer("put", 6), (ROW,), read(X, ROW), target=(index(ROW),), base="d", mode="add")
    assert nest_of(nests(group(made, axes=(ROW,), inner=(ROW,)), X, D)) == "scatter"


def test_a_number_takes_no_loop() -> None:
    one = buffer("s")
    made = group(loop(buffer("twice"), (), Load("s", (), torch.float32) * 2.0), axes=())
    printed = print_kernel(made, buffers(made, one), CWriter(), ["why"])
    assert printed.text.splitlines() == [
        "// why", "void k0_test(const float *s, float *twice) {", "  twice[0] = s[0] * 2.0f;", "}",
    ]  # fmt: skip
