"""Reductions and random numbers in Triton: run in the interpreter against torch, compiled for three chips."""

from __future__ import annotations

import math
import re

import pytest
import torch

from nbcompile.compiler.codegen.triton.expressions import HELPERS, POINTER_TYPES, TRITON_TYPES, reserved_names
from nbcompile.compiler.loop_ir.interpret import _reduce
from nbcompile.compiler.loop_ir.philox import uniform
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.test_expressions import DEVICES, File
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip, titles
from tests.golden.triton_programs import SHORT
from tests.nightly import few

triton = pytest.importorskip("triton")

CHIPS = ["cuda:90", "cuda:80", "hip:gfx942"]
KINDS = {
    torch.float32: ["sum", "prod", "max", "min", "argmax", "argmin"],
    torch.float64: ["sum", "prod", "max", "min", "argmax", "argmin"],
    torch.int64: ["sum", "prod", "max", "min", "argmax", "argmin"],
    torch.int32: ["sum", "max", "argmin"],
    torch.int16: ["sum", "min"],
    torch.int8: ["sum", "max", "argmax"],
    torch.uint8: ["sum", "prod", "max", "argmin"],
    torch.bool: ["any", "all", "max", "min", "argmax", "argmin"],
}
ROWS, COLUMNS = 8, 16


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))


def tile(dtype: torch.dtype) -> torch.Tensor:
    """[ROWS, COLUMNS] with ties, and for floats rows with NaN, infinities and nothing but -inf."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-9, 10, (ROWS, COLUMNS), generator=generator).to(dtype)
    if dtype == torch.bool:
        x[0], x[1] = False, True
    if dtype.is_floating_point:
        x[1, 3] = x[1, 9] = math.nan
        x[2] = -math.inf
        x[3, 5], x[4, 6] = math.inf, -math.inf
        x[5] /= 7
    return x


def reductions(dtype: torch.dtype) -> tuple[File, dict[str, torch.dtype]]:
    """For every kind: the tile reduced along either axis, and row by row with a running result."""
    file, outputs = File(), {}
    writer = file.writer
    for kind in KINDS[dtype]:
        arg = kind.startswith("arg")
        register = TRITON_TYPES[dtype]
        for axis in (0, 1):
            name = f"{kind}_{axis}"
            place = ["[:, None]", "[None, :]"][axis]
            lines = ["@triton.jit", f"def {name}(x_ptr, out_ptr, n):"]
            lines += [f"    i = tl.arange(0, {ROWS})", f"    j = tl.arange(0, {COLUMNS})"]
            lines += [f"    x = tl.load(x_ptr + i[:, None] * {COLUMNS} + j[None, :])"]
            if arg:
                position = f"tl.broadcast_to({'ij'[axis]}{place}, x.shape)"
                lines += [f"    best, where = {writer.arg_reduce(kind, 'x', position, axis, dtype)}"]
                result = "where"
            else:
                result = writer.reduce(kind, "x", axis, dtype)
            lines += [f"    tl.store(out_ptr + {'ji'[axis]}, {result})"]
            file.kernels[name] = "\n".join(lines)
            outputs[name] = torch.int64 if arg else dtype
        # rows one after the other, all but the last 3 columns: the rest of the tile is masked
        name = f"{kind}_running"
        start = f"tl.full([{COLUMNS}], {writer.identity(kind, dtype)}, {register})"
        lines = ["@triton.jit", f"def {name}(x_ptr, out_ptr, n):", f"    j = tl.arange(0, {COLUMNS})"]
        lines += [f"    best = {start}", f"    where = tl.full([{COLUMNS}], 0, tl.int32)"]
        lines += [f"    for row in range({ROWS}):"]
        other = writer.identity(kind, dtype)
        lines += [f"        x = tl.load(x_ptr + row * {COLUMNS} + j, j < {COLUMNS - 3}, other={other})"]
        if dtype == torch.bool:
            lines += ["        x = x.to(tl.int1)"]
        if arg:
            lines += [f"        better = {writer.arg_better(kind, 'x', 'best', dtype)}"]
            lines += ["        best = tl.where(better, x, best)"]
            lines += ["        where = tl.where(better, row, where)"]
        else:
            lines += [f"        best = {writer.combine(kind, 'best', 'x', dtype)}"]
        lines += [f"    tl.store(out_ptr + j, {'where' if arg else 'best'}, j < {COLUMNS - 3})"]
        file.kernels[name] = "\n".join(lines)
        outputs[name] = torch.int64 if arg else dtype
    for name, out in outputs.items():
        file.signatures[name] = {"x_ptr": POINTER_TYPES[dtype], "out_ptr": POINTER_TYPES[out], "n": "i32"}
    return file, outputs


@few(10)
@pytest.mark.parametrize("device", [*DEVICES, "as printed"])
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_reductions_agree_with_torch(dtype, device, tmp_path):
    x = tile(dtype)
    file, outputs = reductions(dtype)
    if device == "as printed":  # under other names, the functions are not replaced by numpy's
        device = "cpu"
        for texts in (file.writer.helpers, file.kernels):
            for name, text in texts.items():
                texts[name] = re.sub(rf"\b({'|'.join(HELPERS)})(?=[()])", r"our_\1", text)
    got = file.run(tmp_path, "reductions", {name: [x.reshape(-1).to(device)] for name in outputs}, outputs)
    wrong = []
    for name, mine in got.items():
        kind, _, way = name.partition("_")
        where = [0] if way == "running" else [int(way)]
        values = x.to(torch.int8) if dtype == torch.bool and kind.startswith("arg") else x
        expected = _reduce(kind, values, where)[0].to(outputs[name])
        size = COLUMNS - 3 if way == "running" else expected.numel()
        try:
            torch.testing.assert_close(mine[:size], expected[:size], equal_nan=True)
        except AssertionError as error:
            wrong.append(f"{name}: {mine[:size].tolist()}, not {expected[:size].tolist()}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
@pytest.mark.parametrize("target", CHIPS)
def test_reductions_compile(target, tmp_path):
    made = 0
    for dtype in [torch.float32, torch.int8, torch.bool] if target != "cuda:90" else KINDS:
        file, _ = reductions(dtype)
        short = str(dtype).removeprefix("torch.")
        kernels = [name for name in file.kernels if target == "cuda:90" or "_0" not in name]
        made += len(file.compile(tmp_path, f"reductions_{short}", target, kernels))
    assert made >= 24


def test_the_maximum_of_a_row_is_one_instruction_an_element(tmp_path):
    file, _ = reductions(torch.float32)
    text = file.compile(tmp_path, "reductions", "cuda:90", ["max_1"])["max_1"]
    assert "max.NaN.f32" in text and "setp.nan" not in text


def random_file() -> File:
    """Kernels that draw: one a number at any offset, four a block in one and in two dimensions."""
    file = File()
    writer = file.writer
    text = writer.op("philox_uniform", ["tl.load(seed_ptr)", "offset"], torch.float32, torch.int64)
    file.kernel("singly", {"offset": torch.int64}, text, torch.float32)
    head = "(seed_ptr, base_ptr, out_ptr, n):"
    file.kernels["singly"] = file.kernels["singly"].replace("(offset_ptr,", "(seed_ptr, offset_ptr,")
    block = "tl.load(base_ptr) + tl.arange(0, 16)"
    file.kernels["by_four"] = "\n".join(
        ["@triton.jit", f"def by_four{head}",
         f"    u = {writer.philox_uniform4('tl.load(seed_ptr)', block)}",
         "    tl.store(out_ptr + tl.arange(0, 64), u)"]
    )  # fmt: skip
    many = "tl.load(base_ptr) + tl.arange(0, 256)"
    file.kernels["many"] = "\n".join(
        ["@triton.jit", f"def many{head}",
         f"    u = {writer.philox_uniform4('tl.load(seed_ptr)', many)}",
         "    tl.store(out_ptr + tl.arange(0, 1024), u)"]
    )  # fmt: skip
    rows = "(8 * tl.arange(0, 4)[:, None] + tl.arange(0, 8)[None, :])"
    file.kernels["in_two_dimensions"] = "\n".join(
        ["@triton.jit", f"def in_two_dimensions{head}",
         f"    u = {writer.philox_uniform4('tl.load(seed_ptr)', rows)}",
         "    tl.store(out_ptr + 32 * tl.arange(0, 4)[:, None] + tl.arange(0, 32)[None, :], u)"]
    )  # fmt: skip
    columns = "(tl.arange(0, 4)[:, None] + 4 * tl.arange(0, 8)[None, :])"
    drawn = writer.philox_uniform4("tl.load(seed_ptr)", columns, down=True)
    coins = writer.philox_below4("tl.load(seed_ptr)", columns, 1 << 31, down=True)
    for name, call in (("down", drawn), ("coins_down", f"{coins}.to(tl.float32)")):
        file.kernels[name] = "\n".join(
            ["@triton.jit", f"def {name}{head}", f"    u = {call}",
             "    tl.store(out_ptr + tl.arange(0, 16)[:, None] + 16 * tl.arange(0, 8)[None, :], u)"]
        )  # fmt: skip
    signature = {"seed_ptr": "*i64", "base_ptr": "*i64", "out_ptr": "*fp32", "n": "i32"}
    names = ("by_four", "many", "in_two_dimensions", "down", "coins_down")
    file.signatures |= dict.fromkeys(names, signature)
    file.signatures["singly"] = {"seed_ptr": "*i64", "offset_ptr": "*i64", "out_ptr": "*fp32", "n": "i32"}
    return file


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", [0, 42, -5, 2**63 - 1])
def test_random_numbers_are_those_of_the_reference(seed, device, tmp_path):
    key, first = torch.tensor([seed]), 2**34 - 3
    offsets = torch.cat([torch.arange(40), torch.arange(2**36 - 20, 2**36 + 20), torch.tensor([2**62 + 1])])
    places = {
        "singly": offsets,
        "by_four": 4 * first + torch.arange(64),
        "many": 4 * first + torch.arange(1024),
        "in_two_dimensions": torch.arange(128),
        "down": torch.arange(128),
        "coins_down": torch.arange(128),
    }
    inputs = {name: [key, offsets if name == "singly" else torch.tensor([first])] for name in places}
    file = random_file()
    moved = {name: [item.to(device) for item in args] for name, args in inputs.items()}
    sizes = {name: place.numel() for name, place in places.items()}
    got = file.run(tmp_path, "random", moved, dict.fromkeys(places, torch.float32), sizes)
    for name, place in places.items():
        expected = uniform(key, place)
        assert torch.equal(got[name], (expected < 0.5).float() if name == "coins_down" else expected), name
    assert float(got["many"].min()) >= 0 and float(got["many"].max()) < 1


@pytest.mark.nightly
@pytest.mark.parametrize("target", CHIPS)
def test_random_numbers_compile(target, tmp_path):
    made = random_file().compile(tmp_path, "random", target)
    if target == "cuda:90":  # 8 numbers a thread are two calls of 10 rounds; they stay in registers
        products = re.findall(r"mul\.(?:hi|wide)\.u32", made["many"])
        assert "st.global.v4" in made["many"] and "shared" not in made["many"]
        assert 30 < len(products) <= 40


def test_helpers_name_what_they_call():
    for name, entry in HELPERS.items():
        used = set(re.findall(r"(?<![.\w])(\w+)\(", entry.text)) | set(re.findall(r", (\w+)\)", entry.text))
        assert used & HELPERS.keys() - {name} == set(entry.needs), name
        assert f"def {name}(" in entry.text
    assert {"tl", "libdevice", "sigmoid", "philox"} <= reserved_names()


ROWS_OF_INFINITIES = {
    "the maximum itself": lambda x, m: (x - m).exp(),
    "0 for -inf": lambda x, m: (x - torch.where(m == -math.inf, 0.0, m)).exp(),
    "0 for both": lambda x, m: (x - torch.where(m.isinf(), 0.0, m)).exp(),
    "0 for another number": lambda x, m: (x - torch.where(m == 3.0, 0.0, m)).exp(),
}
"""A program's own ways to take the maximum from what it raises e to."""


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("name", ROWS_OF_INFINITIES)
def test_a_maximum_is_left_out_where_the_program_leaves_it_out(name: str, kept: bool) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raised = ROWS_OF_INFINITIES[name](x, x.amax(1, keepdim=True))
        return (raised.sum(1), raised) if kept else (raised.sum(1),)

    x = torch.randn(6, 200).clamp_(max=2.9)
    x[0] = -math.inf
    x[1, :100] = -math.inf
    x[2, 100:] = -math.inf
    x[3, 7] = math.inf
    x[4, 190] = 3.0
    graph = aten_of(function, x)
    with small_chip(**(SHORT | {"LONGEST_ROW": 64, "WALK_BLOCK": 64})):
        _, source = generated(graph)
    assert titles(source) == ["looped rows"]
    for candidate in range(len(source.launches[0].configs)):
        got = run_interpreted(source, graph, [x], candidate=candidate)
        torch.testing.assert_close(got, list(function(x)), rtol=1e-5, atol=1e-6, equal_nan=True)
