"""A file of Triton: what stands above the kernels, and which of them may take the shorter functions."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.codegen.triton.groups_to_triton import groups_to_triton
from nbcompile.compiler.loop_ir.expr import Expr, cast, op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.stages import KernelSource
from nbcompile.errors import CodegenError
from nbcompile.targets import CHIPS
from tests.compiler.codegen.c.by_hand import buffer, fused, group, loop, read
from tests.compiler.codegen.triton_running import launches_of

ROW, COL = Axis("i", 6), Axis("j", 4096)
F32, BF16, I64 = torch.float32, torch.bfloat16, torch.int64
X, H = buffer("x", 6), buffer("h", 6, dtype=BF16)
OWN = read(X, ROW)


def pointwise(name: str, body: Expr, dtype: torch.dtype = F32) -> Group:
    return group(loop(buffer(name, 6, dtype=dtype), (ROW,), body), axes=(ROW,))


def file_of(*groups: Group, target: str = "cuda:80", lines: tuple[int, ...] = ()) -> KernelSource:
    return groups_to_triton(fused(*groups, inputs=[X, H], lines=lines), CHIPS[target])


def body(source: KernelSource, kernel: int = 0) -> str:
    return source.kernels[kernel].text


def test_a_file_imports_what_its_kernels_call() -> None:
    plain = ["# made by nbcompile", "import triton", "import triton.language as tl"]
    assert file_of(pointwise("a", OWN + OWN)).head == ("\n".join(plain),)
    library = "from triton.language.extra import libdevice"
    made = file_of(pointwise("a", op("expm1", OWN)), pointwise("b", op("log1p", OWN)))
    assert made.head == ("\n".join([*plain, library]),)


def test_helpers_stand_once_above_all_kernels_each_below_what_it_calls() -> None:
    made = file_of(pointwise("a", op("floordiv", OWN, 3.0)), pointwise("b", op("floordiv", OWN, 5.0)))
    assert [text.split("(")[0] for text in made.head[1:]] == [
        "@triton.jit\ndef true_divide", "@triton.jit\ndef floor_divide_float",
    ]  # fmt: skip
    assert made.source.count("def floor_divide_float") == 1


@pytest.mark.parametrize(("target", "early"), [("cuda:80", False), ("cuda:90", True), ("hip:gfx942", False)])
def test_kernels_wait_for_those_before_where_the_chip_starts_them_early(target: str, early: bool) -> None:
    made = file_of(pointwise("a", OWN), target=target)
    assert ("import gdc_wait" in made.head[0]) is early and ("    gdc_wait()\n" in body(made)) is early
    assert [launch.early for launch in made.launches] == [early]


@pytest.mark.parametrize(
    ("dtype", "text"), [(F32, "libdevice.exp(x)"), (BF16, "tl.exp(x)"), (torch.float16, "tl.exp(x)")]
)
def test_what_is_rounded_to_half_may_take_the_hardware_s_exponential(dtype: torch.dtype, text: str) -> None:
    assert text in body(file_of(pointwise("a", op("exp", OWN), dtype)))


def test_each_kernel_is_judged_by_itself() -> None:
    made = file_of(pointwise("a", op("exp", OWN), BF16), pointwise("b", op("exp", OWN)),
                   pointwise("c", op("exp", OWN), BF16))  # fmt: skip
    assert [("libdevice.exp(" in body(made, n)) for n in range(3)] == [False, True, False]


def test_all_that_a_kernel_stores_must_be_half_or_no_float() -> None:
    half = loop(buffer("a", 6, dtype=BF16), (ROW,), op("exp", OWN))
    count = loop(buffer("b", 6, dtype=I64), (ROW,), cast(op("exp", OWN), I64))
    full = loop(buffer("c", 6), (ROW,), op("exp", OWN))
    found = {
        stored: "libdevice.exp(" in body(file_of(group(half, count, full, axes=(ROW,), stored=stored)))
        for stored in ("a", "b", "a b", "a c")
    }
    assert found == {"a": False, "b": False, "a b": False, "a c": True}


def test_a_kernel_is_called_what_its_schedule_is() -> None:
    long = buffer("y", 6, 4096)
    total = loop(buffer("total", 6), (ROW, COL), read(long, ROW, COL), reduced=(COL,), reduction="sum")
    sums = group(total, axes=(ROW, COL), inner=(COL,))
    made = groups_to_triton(fused(pointwise("a", OWN), sums, inputs=[X, long], lines=(2,)), CHIPS["cuda:90"])
    assert [kernel.schedule for kernel in made.kernels] == ["pointwise", "persistent rows"]
    assert [body(made, n).splitlines()[0] for n in range(2)] == ["# cell line 2: a", "# cell line 2: total"]
    assert [item.function for kernel in made.kernels for item in launches_of(made, kernel)] == [
        "k0_test", "k1_test",
    ]  # fmt: skip


def test_a_type_that_triton_lacks_is_refused() -> None:
    odd = buffer("z", 6, dtype=torch.uint16)
    with pytest.raises(CodegenError, match=r"no Triton type for torch\.uint16"):
        groups_to_triton(fused(pointwise("a", read(odd, ROW), odd.dtype), inputs=[odd]), CHIPS["cuda:90"])


def test_a_number_is_one_program() -> None:
    one = buffer("s")
    made = groups_to_triton(
        fused(group(loop(buffer("a"), (), read(one)), axes=()), inputs=[one]), CHIPS["cuda:90"]
    )
    (launch,) = made.launches
    assert launch.grid == ("1",) and [dict(config.constants) for config in launch.configs] == [{}]
