"""Triton kernels run on the CPU, and every address they touch."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

import nbcompile
from nbcompile.compiler.runtime.gpu.build import build
from nbcompile.compiler.runtime.interpreter.interpret import interpreted
from nbcompile.compiler.stages import Argument, Config, KernelText, Launch
from nbcompile.errors import OUR_BUG, CodegenError, LaunchError
from nbcompile.targets import parse
from tests.compiler.runtime.gpu.samples import sample

pytest.importorskip("triton")

HEAD = "import triton\nimport triton.language as tl\n\n\n"
ONE = (Argument("x", "*fp32"), Argument("y", "*fp32", ours=True), Argument("n", "i32"))


def _run(
    body: str, *args: object, arguments: tuple[Argument, ...] = ONE, grid: str = "1", above: str = ""
) -> None:
    """Interpret a function ``f`` of this body (indented lines) on these arguments."""
    names = ", ".join(item.name for item in arguments)
    text = f"{HEAD}{above}@triton.jit\ndef f({names}, BLOCK: tl.constexpr):\n{body}"
    launch = Launch("f", "k0", arguments, (grid,), (Config({"BLOCK": 8}),))
    interpreted(sample(text=text, launches=(launch,)))["f"](*args)


def test_pointwise_numbers_are_those_of_torch_to_the_last_bit_of_bfloat16() -> None:
    x = torch.randn(3000, generator=torch.Generator().manual_seed(0)).bfloat16()
    y = torch.empty_like(x)
    interpreted(sample("pointwise"))["pointwise"](x, y, 3000)
    wide = x.double()
    expected = (torch.nn.functional.silu(wide) * 2 + wide.tanh()).bfloat16()
    assert (y.float() - expected.float()).abs().max() <= 2**-8 * expected.float().abs().max()
    assert (y == expected).float().mean() > 0.99


def test_rows_loops_and_combine_functions() -> None:
    x = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    functions = interpreted(sample("softmax", "row_sum"))
    y = torch.empty(300, 300, dtype=torch.bfloat16)
    functions["softmax"](x.bfloat16(), y, 300)
    torch.testing.assert_close(y.float(), x.bfloat16().float().softmax(-1), rtol=1e-2, atol=1e-5)
    total = torch.empty(300)
    functions["row_sum"](x.half(), total, 300)
    torch.testing.assert_close(total, x.half().float().sum(1), rtol=1e-5, atol=1e-4)


def test_programs_that_wait_for_each_other_take_turns() -> None:
    x, y, done = torch.rand(1000), torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    expected = x / x.sum()
    interpreted(sample("whole_sum"))["whole_sum"](x, y, done, 1000)
    assert done.item() == 8
    torch.testing.assert_close(x, expected)


def test_programs_that_wait_for_ever_are_stopped() -> None:
    body = "    while tl.atomic_add(y, 0.0) < 1.0:\n        pass\n"
    launch = Launch("f", "k0", ONE, ("n",), (Config({"BLOCK": 8}),), together=True)
    text = f"{HEAD}@triton.jit\ndef f(x, y, n, BLOCK: tl.constexpr):\n{body}"
    with pytest.raises(LaunchError, match=r"kernel f, generated line 7 .*wait for each other for ever"):
        interpreted(sample(text=text, launches=(launch,)))["f"](torch.zeros(8), torch.zeros(8), 3)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("tl.store(y, tl.sum(tl.load(x + tl.arange(0, 8)), 0))", "loads element 6 .*argument x, which has 6"),
        ("tl.store(y + tl.arange(0, 8) - 1, 1.0, tl.arange(0, 8) < 4)", "stores element -1 .*argument y"),
        ("tl.atomic_add(y + n, 1.0)", "updates element 8 .*argument y, which has 8"),
        ("tl.store(tl.where(n > 0, y, x) + 80000, 1.0)", "in no argument"),
        (
            "tl.store((y.to(tl.pointer_type(tl.int8)) + 2).to(tl.pointer_type(tl.float32)), 1.0)",
            "no multiple of 4",
        ),
    ],
)  # fmt: skip
def test_an_access_outside_the_arguments_is_an_error_with_its_line(body: str, says: str) -> None:
    with pytest.raises(LaunchError, match=f"kernel f, generated line 7 `tl..*{says}") as caught:
        _run(f"    {body}\n", torch.zeros(6), torch.zeros(8), 8)
    assert (caught.value.function, caught.value.file_line, caught.value.advice) == ("f", 7, OUR_BUG)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("tl.store(y, p + 0.0)", "stores element 0 .*argument y, which program number 0 writes"),
        ("tl.store(y + p, tl.load(y) + 1.0)", "loads element 0 .*y, which program number 0 writes"),
        ("tl.store(y + (3 - p), tl.load(y + p) + 1.0)", "program number . (reads|writes)"),
        ("tl.store(y + tl.arange(0, 8) // 2, tl.arange(0, 8) + 0.0)", "two different values in element 0"),
    ],
)  # fmt: skip
def test_programs_that_race_are_found(body: str, says: str) -> None:
    with pytest.raises(LaunchError, match=f"kernel f, generated line 8 `tl..*{says}"):
        _run(f"    p = tl.program_id(0)\n    {body}\n", torch.zeros(8), torch.zeros(8), 8, grid="4")


def test_where_a_scatter_s_indices_collide_the_user_decided_so() -> None:
    text = (
        f"{HEAD}@triton.jit\ndef f(x, y, n, BLOCK: tl.constexpr):\n    tl.store(y, tl.program_id(0) + 1.0)\n"
    )
    launch = Launch("f", "k0", ONE, ("4",), (Config({"BLOCK": 8}),))
    source = replace(
        sample(text=text, launches=(launch,)), kernels=(KernelText("k0", "f", "", (), "scatter"),)
    )
    y = torch.zeros(8)
    interpreted(source)["f"](torch.zeros(8), y, 8)
    assert y[0] in (1.0, 2.0, 3.0, 4.0)


def test_what_cannot_go_wrong_in_any_order_is_no_race() -> None:
    body = (
        "    p = tl.program_id(0)\n"
        "    tl.store(y, 1.0)\n"  # all write the same
        "    tl.store(y + 1 + p, tl.load(x + p))\n"
        "    tl.atomic_add(y + 5, 1.0)\n"
        "    if tl.atomic_add(y + 6, 1.0) == 3.0:\n"  # the last one knows that the others are done
        "        tl.store(y + 7, tl.load(y + 1) + tl.load(y + 5))\n"
    )
    y = torch.zeros(8)
    _run(body, torch.ones(8), y, 8, grid="4")
    assert y.tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 4.0, 4.0, 5.0]


def test_masked_accesses_may_lie_anywhere() -> None:
    y = torch.zeros(8)
    _run(
        "    i = tl.arange(0, BLOCK)\n    tl.store(y + i, tl.load(x + i, i < n, other=7.0))\n",
        torch.ones(3),
        y,
        3,
    )
    assert y.tolist() == [1.0] * 3 + [7.0] * 5


def test_the_argument_is_told_apart_from_its_neighbour_in_memory() -> None:
    both = torch.zeros(16)
    x, y = torch.empty(0).set_(both.untyped_storage(), 0, (8,)), torch.zeros(8)
    _run("    tl.store(y, tl.load(x + 15))\n", x, y, 1)  # within the storage that x lies in
    with pytest.raises(LaunchError, match="argument x"):
        _run("    tl.store(y, tl.load(x + 16))\n", x, y, 1)


def test_numbers_are_as_wide_as_in_the_compiler() -> None:
    arguments = (Argument("x", "*i64"), Argument("n", "i32"), Argument("m", "i64"))
    out = torch.zeros(5, dtype=torch.int64)
    body = (
        "    tl.store(x, n * 65536)\n"  # 32 bits wrap around
        "    tl.store(x + 1, m * 65536)\n"
        "    last = 0\n"
        "    for k in range(n - 40000):\n"
        "        last = k.to(tl.int64) * 2\n"
        "        if k == 5:\n"
        "            tl.store(x + 2, k)\n"
        "    tl.store(x + 3, last)\n"
        "    tl.store(x + 4, (n - 40018) // 8)\n"  # truncates
    )
    _run(body, out, 40007, 40007, arguments=arguments)
    assert out.tolist() == [40007 * 65536 - 2**32, 40007 * 65536, 5, 12, -1]
    with pytest.raises(LaunchError, match="argument n of kernel f is i32, got 4294967296"):
        _run(body, out, 1 << 32, 1, arguments=arguments)


def test_bfloat16_is_computed_as_numbers() -> None:
    kinds = (Argument("x", "*bf16"), Argument("y", "*bf16"), Argument("n", "i32"))
    x = torch.tensor([1.5, -2.25, 3.0, float("nan"), float("inf"), 0.1, 100.0, -0.0]).bfloat16()
    y = torch.empty_like(x)
    body = (
        "    i = tl.arange(0, 8)\n"
        "    a = tl.load(x + i)\n"
        "    tl.store(y + i, tl.where(a > 2.0, a + a, a * 3.0))\n"
    )
    _run(body, x, y, 8, arguments=kinds)
    assert torch.equal(y.nan_to_num(7.0), torch.where(x > 2, x + x, x * 3).nan_to_num(7.0))


def test_scans_and_pairs_with_combine_functions_keep_the_order_of_operands() -> None:
    above = (
        "@triton.jit\ndef chain(a, b, c, d):\n    return a * c, b * c + d\n\n\n"
        "@triton.jit\ndef first(a, b):\n    return a\n\n\n"
    )
    body = (
        "    i = tl.arange(0, 8)\n"
        "    a = tl.load(x + i)\n"
        "    p, q = tl.associative_scan((a, a + 1.0), 0, chain)\n"
        "    s, t = tl.reduce((a, a + 1.0), 0, chain)\n"
        "    tl.store(y + i, q)\n"
        "    tl.store(y + 8, t)\n"
        "    tl.store(y + 9, tl.reduce(a, 0, first))\n"
        "    tl.store(y + 10 + i, tl.associative_scan(a, 0, first, reverse=True))\n"
    )
    x, y = torch.arange(1.0, 9.0) / 4, torch.zeros(18)
    _run(body, x, y, 8, above=above)
    q, expected = 0.0, []
    for value in x.tolist():
        q = q * value + value + 1
        expected.append(q)
    torch.testing.assert_close(y[:8], torch.tensor(expected))
    torch.testing.assert_close(y[8:10], torch.tensor([expected[-1], 0.25]))
    assert y[10:].tolist() == [2.0] * 8


def test_nothing_is_left_behind_also_where_a_kernel_raises() -> None:
    import triton.language as tl
    from triton.runtime.jit import JITFunction

    before = {name: id(value) for name, value in vars(tl).items()}
    tensor = {name: id(value) for name, value in vars(tl.tensor).items()}
    with pytest.raises(
        CodegenError, match=r"kernel f, generated line 7 `tl.store\(y, undefined\)`.*NameError"
    ):
        _run("    tl.store(y, undefined)\n", torch.zeros(8), torch.zeros(8), 1)
    y = torch.zeros(8)
    _run("    tl.store(y + tl.program_id(0), tl.sum(tl.load(x + tl.arange(0, 8)), 0))\n", torch.ones(8), y, 1)
    assert y[0] == 8.0
    assert {name: id(value) for name, value in vars(tl).items()} == before
    assert {name: id(value) for name, value in vars(tl.tensor).items()} == tensor
    assert isinstance(tl.sum, JITFunction)
    assert "TRITON_INTERPRET" not in os.environ
    assert build(sample("softmax"), parse("cuda:90"))["softmax"].registers


def test_what_is_given_is_checked() -> None:
    call = interpreted(sample("pointwise"))["pointwise"]
    x = torch.zeros(8)
    with pytest.raises(LaunchError, match="takes 3 arguments, got 1"):
        call(x)
    with pytest.raises(LaunchError, match=r"argument x of kernel pointwise is \*bf16, got torch.float32"):
        call(x, x, 8)
    with pytest.raises(LaunchError, match="wants a tensor on the CPU"):
        call(1, x, 8)
    with pytest.raises(CodegenError, match="no function pointwise"):
        interpreted(sample("pointwise", text=HEAD))
    call(x, x, 0)  # no program, so nothing is looked at


@pytest.mark.parametrize("shape", [(70,), (5, 70), (2, 5000)])
def test_a_sum_wraps_in_its_own_type(shape: tuple[int, ...]) -> None:
    x = torch.full(shape, 2**31 - 5, dtype=torch.int32)
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: x.sum(dtype=torch.int32), options={"cache": False, "interpret": True})
    assert run(x) == x.sum(dtype=torch.int32) and run.ran_compiled
