"""Points in blocks: what lies across the walk is copied first, and only that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import Axis, index
from nbcompile.compiler.loop_ir.nodes import Buffer
from tests.compiler.codegen.c.by_hand import buffer, group, lines, loop, read
from tests.nightly import few

ROW, COL = Axis("i", index(50)), Axis("j", index(70))


def added(rows: Axis, columns: Axis, dtype: torch.dtype = torch.float32) -> tuple[Group, Buffer, Buffer]:
    """``x + y.t()``."""
    x = Buffer("x", (rows.extent, columns.extent), (columns.extent, index(1)), dtype)
    y = Buffer("y", (columns.extent, rows.extent), (rows.extent, index(1)), dtype)
    out = Buffer("out", x.shape, x.strides, dtype)
    total = op("add", read(x, rows, columns), read(y, columns, rows))
    return group(loop(out, (rows, columns), total), axes=(rows, columns)), x, y


def test_a_block_of_what_lies_across_is_copied_along_its_memory() -> None:
    found = lines(*added(ROW, COL))
    at = found.index(
        "across_f32(y + i + j*50, 50, y_block + (i - i_block)*64 + j - j_block, 64, i_end - i, j_end - j);"
    )
    assert found[at - 2 : at] == [
        "for (long j = j_block; j < j_end; j += 16) {", "for (long i = i_block; i < i_end; i += 16) {",
    ]  # fmt: skip
    assert "out[i*70 + j] = x[i*70 + j] + y_block[(i - i_block)*64 + j - j_block];" in found
    assert not any("x_block" in line for line in found)


def test_halves_and_bytes_are_copied_one_by_one() -> None:
    found = lines(*added(ROW, COL, torch.bfloat16))
    at = found.index("y_block[(i - i_block)*65 + j - j_block] = y[i + j*50];")
    assert found[at - 2 : at] == [
        "for (long j = j_block; j < j_end; j++) {", "for (long i = i_block; i < i_end; i++) {",
    ]  # fmt: skip


def test_what_is_short_or_lies_along_is_read_where_it_is() -> None:
    short = lines(*added(Axis("i", index(4)), COL))
    assert not any("block" in line for line in short)
    x, out = buffer("x", 50, 70), buffer("out", 50, 70)
    along = group(loop(out, (ROW, COL), op("exp", read(x, ROW, COL))), axes=(ROW, COL))
    assert not any("block" in line for line in lines(along, x))


def test_blocks_of_several_tensors_fit_in_the_cache_together() -> None:
    a, b, c = (
        Buffer(name, (COL.extent, ROW.extent), (ROW.extent, index(1)), torch.float64) for name in "abc"
    )
    y, out = (
        Buffer(name, (ROW.extent, COL.extent), (COL.extent, index(1)), torch.float64) for name in ("y", "out")
    )
    across = op("mul", op("mul", read(a, COL, ROW), read(b, COL, ROW)), read(c, COL, ROW))
    whole = loop(out, (ROW, COL), op("add", across, read(y, ROW, COL)))
    found = lines(group(whole, axes=(ROW, COL)), a, b, c, y)
    assert {f"double {name}_block[{16 * 64}];" for name in "abc"} <= {*found}


def mixed(a: torch.Tensor, b: torch.Tensor) -> Any:
    return a.t().sigmoid() + b, (a.t() - b).sum()


PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "added": lambda a, b: a.t() + b,
    "several": lambda a, b: a.t() * b + (a + 1).t() * b.t().t(),
    "with a sum of all": mixed,
    "behind a pad": lambda a, b: F.pad(a.t(), (3, 2)) + F.pad(b, (3, 2)),
    "joined": lambda a, b: torch.cat([a.t() * 2, b], 1) + 1,
    "permuted": lambda a, b: a.reshape(1, *a.shape).expand(3, -1, -1).permute(0, 2, 1) * b,
    "compared": lambda a, b: (a.t() > b) & (b < 1),
    "overwritten": lambda a, b: b.mul_(a.t()),
    "both ways": lambda a, b: (a.t() + b, (a + b.t()) * 2),
}


@few(1)
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int32,
        torch.int64,
        torch.bool,
        torch.uint8,
    ],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(name: str, dtype: torch.dtype) -> None:
    function = PROGRAMS[name]
    if dtype == torch.bool and name in ("several", "with a sum of all", "joined", "both ways"):
        pytest.skip("arithmetic of bools")
    torch.manual_seed(0)
    for rows, columns in ((130, 65), (64, 64), (9, 200), (1, 77), (12, 70)):
        a, b = torch.randn(rows, columns) * 3, torch.randn(columns, rows) * 3
        if dtype.is_floating_point:
            a[0, ::7], b[::5, 0] = float("nan"), float("inf")
        a, b = a.to(dtype), b.to(dtype)
        run = nbcompile.compile(function, options={"cache": False, "verify": True})
        got, wanted = run(a.clone(), b.clone()), function(a.clone(), b.clone())
        # eager rounds each step to a half type
        more = {"rtol": 0.05, "atol": 0.05} if dtype.itemsize == 2 else {}
        torch.testing.assert_close(got, wanted, equal_nan=True, **more)
        assert run.ran_compiled, run.eager_reason


def test_sizes_known_only_when_it_runs() -> None:
    run = nbcompile.compile(PROGRAMS["several"], dynamic=True, options={"cache": False, "verify": True})
    for rows, columns in ((70, 130), (3, 64), (65, 9)):
        a, b = torch.randn(rows, columns), torch.randn(columns, rows)
        torch.testing.assert_close(run(a, b), PROGRAMS["several"](a, b))


def test_each_line_that_copies_or_computes_leads_to_its_loop() -> None:
    run = nbcompile.compile(PROGRAMS["added"], options={"cache": False})
    run(torch.ones(128, 128), torch.ones(128, 128))
    (kernel,) = run.compilation.kernels
    linked = {link.line for link in kernel.line_map if link.origins}
    for number, line in enumerate(kernel.sources["c"].splitlines(), start=1):
        computes = line.strip().endswith(";") and not line.strip().startswith("const long")
        assert (number in linked) == computes, line
