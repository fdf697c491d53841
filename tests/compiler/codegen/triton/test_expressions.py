"""Every scalar operation in Triton: run in the interpreter against torch, and compiled for three chips."""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest
import torch

from nbcompile.compiler.codegen.triton.expressions import (
    LIBDEVICE,
    POINTER_TYPES,
    TRITON_TYPES,
    TritonWriter,
    constant,
)
from nbcompile.compiler.codegen.triton.tile_expression import Operand, named
from nbcompile.compiler.loop_ir.expr import COMPARISONS, SCALAR_OPS
from nbcompile.compiler.loop_ir.interpret import REFERENCE
from nbcompile.compiler.runtime.interpreter.interpret import interpreted
from nbcompile.compiler.stages import Argument, Config, KernelSource, Launch
from tests.compiler.codegen.c.test_expressions import (
    EITHER_ZERO,
    INTEGERS,
    NO_ZERO,
    OPERATIONS,
    STORED,
    pairs,
)
from tests.compiler.codegen.running import same_zeros
from tests.compiler.lower.harness import compare
from tests.nightly import few, one_in

triton = pytest.importorskip("triton")

BLOCK = 512
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]


class File:
    """A generated file of elementwise kernels, one an expression."""

    def __init__(self) -> None:
        self.writer = TritonWriter()
        self.kernels: dict[str, str] = {}
        self.signatures: dict[str, dict[str, str]] = {}

    def kernel(self, name: str, inputs: dict[str, torch.dtype], text: Operand, out: torch.dtype) -> None:
        """A kernel that stores ``text`` of its loaded inputs; half types are loaded as float32."""
        lines = ["@triton.jit", f"def {name}({', '.join(f'{item}_ptr' for item in inputs)}, out_ptr, n):"]
        lines.append(f"    i = tl.arange(0, {BLOCK})")
        for item, dtype in inputs.items():
            wide = ".to(tl.float32)" if TRITON_TYPES[dtype] == "tl.float32" else ""
            lines.append(f"    {item} = tl.load({item}_ptr + i, i < n){wide}")
        lines.append(f"    tl.store(out_ptr + i, {text}, i < n)")
        self.kernels[name] = "\n".join(lines)
        pointers = {f"{item}_ptr": POINTER_TYPES[dtype] for item, dtype in inputs.items()}
        self.signatures[name] = {**pointers, "out_ptr": POINTER_TYPES[out], "n": "i32"}

    def text(self) -> str:
        head = "\n".join(["import triton", "import triton.language as tl", *self.writer.imports.values()])
        return "\n\n\n".join([head, *self.writer.helpers.values(), *self.kernels.values()]) + "\n"

    def load(self, folder: Path, name: str) -> ModuleType:
        path = folder / f"{name}.py"
        path.write_text(self.text())
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def compile(self, folder: Path, name: str, target: str, only: list[str] | None = None) -> dict[str, str]:
        """Assembly of every kernel for one chip, by name."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        backend, _, arch = target.partition(":")
        chip = GPUTarget(backend, int(arch) if arch.isdigit() else arch, 32 if backend == "cuda" else 64)
        module = self.load(folder, name)
        made = {}
        for kernel in only or self.kernels:
            types = self.signatures[kernel]
            pointers = [n for n, kind in enumerate(types.values()) if kind.startswith("*")]
            aligned = {(n,): [["tt.divisibility", 16]] for n in pointers}
            source = ASTSource(getattr(module, kernel), types, {}, aligned)
            made[kernel] = triton.compile(source, target=chip).asm["ptx" if backend == "cuda" else "amdgcn"]
        return made

    def run(
        self,
        folder: Path,
        name: str,
        inputs: dict[str, list[torch.Tensor]],
        outputs: dict[str, torch.dtype],
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[str, torch.Tensor]:
        """Results of every kernel, in the interpreter or where the inputs are: as long as the last input
        unless ``sizes`` says otherwise."""
        if next(iter(inputs.values()))[0].is_cuda:
            module = self.load(folder, name)
            programs = {kernel: getattr(module, kernel)[(1,)] for kernel in self.kernels}
        else:
            launches = [
                Launch(
                    kernel,
                    "k0",
                    tuple(Argument(*item) for item in self.signatures[kernel].items()),
                    ("1",),
                    (Config({}),),
                )
                for kernel in self.kernels
            ]
            source = KernelSource("g0.fw", "triton", (self.text(),), (), "", (), launches=tuple(launches))
            programs = dict(interpreted(source))
        results = {}
        for kernel in self.kernels:
            like = inputs[kernel][-1]
            size = sizes.get(kernel, like.numel())
            result = torch.empty(size, dtype=outputs[kernel], device=like.device)
            programs[kernel](*inputs[kernel], result, size)
            results[kernel] = result.cpu()
        return results


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))


@functools.cache
def operations(dtype: torch.dtype) -> tuple[File, dict[str, torch.dtype]]:
    """A kernel for every operation of a type, and the types of their results."""
    file, outputs = File(), {}
    for name in OPERATIONS[dtype]:
        names = ["x", "y"][: SCALAR_OPS[name]]
        outputs[f"{name}_"] = torch.bool if name in COMPARISONS else dtype
        text = file.writer.op(name, names, outputs[f"{name}_"], dtype)
        file.kernel(f"{name}_", dict.fromkeys(names, dtype), text, outputs[f"{name}_"])
    return file, outputs


@few(6)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", OPERATIONS, ids=str)
def test_operations_agree_with_torch(dtype, device, tmp_path):
    x, y = pairs(dtype)
    safe = torch.where(y == 0, torch.ones_like(y), y)
    file, outputs = operations(dtype)
    inputs = {
        name: [x, safe if name in NO_ZERO and not dtype.is_floating_point else y][: SCALAR_OPS[name]]
        for name in OPERATIONS[dtype]
    }
    moved = {f"{name}_": [item.to(device) for item in args] for name, args in inputs.items()}
    got = file.run(tmp_path, "kernels", moved, outputs)
    wrong = []
    for name, args in inputs.items():
        mine, want = got[f"{name}_"], outputs[f"{name}_"]
        expected = REFERENCE[name](*args).to(want)
        wide = expected
        if dtype == torch.float32 and want == dtype:
            wide = REFERENCE[name](*(item.double() for item in args))
        try:
            compare([mine], [expected], [wide.to(torch.float64) if wide.is_floating_point() else wide])
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
            continue
        if want.is_floating_point and name not in EITHER_ZERO and not same_zeros(mine, expected):
            wrong.append(f"{name}: the sign of a zero")
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", OPERATIONS, ids=str)
def test_operations_compile_for_hopper(dtype, tmp_path):
    file, _ = operations(dtype)
    made = file.compile(tmp_path, "kernels", "cuda:90")
    assert made.keys() == file.kernels.keys()
    assert not [name for name, text in made.items() if ".target sm_90a" not in text]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("dtype", "target"), one_in(2, [torch.float32, torch.float64, torch.int64], ["cuda:80", "hip:gfx942"])
)
def test_operations_compile_for_other_chips(dtype, target, tmp_path):
    file, _ = operations(dtype)
    # NaN, rounding, helpers, and all that libdevice gives under another symbol on each vendor's chip
    wanted = {*LIBDEVICE, "exp", "maximum", "sqrt", "floordiv", "shr", "i0", "ndtri", "log_ndtr", "digamma"}
    chosen = [f"{name}_" for name in OPERATIONS[dtype] if name in wanted]
    made = file.compile(tmp_path, "kernels", target, chosen)
    mark = {"cuda:80": ".target sm_80", "hip:gfx942": "gfx942"}[target]
    assert all(mark in text for text in made.values())


def cast_inputs(source: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All edges, and those of them that every integer type converts the same way everywhere."""
    if not source.is_floating_point:
        values = torch.tensor([*INTEGERS, 255, 256, 40000, 70000, 2**31, 2**40 + 1]).to(source)
        return values, values
    halfway = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11]
    exact = [0.0, -0.0, 0.5, 1.0, -1.0, 2.5, 100.7, -100.7, *halfway]
    special = [math.nan, math.inf, -math.inf, 65519.0, 65520.0, 3.3895e38, 1e-7, 6e-8, 2e-8, 1e-40]
    every = torch.tensor(exact + special, dtype=torch.float64).to(source)
    return every, torch.tensor(exact + [0.0] * len(special), dtype=torch.float64).to(source)


@pytest.mark.parametrize("device", DEVICES)
def test_casts_agree_with_torch(device, tmp_path):
    file, inputs, outputs = File(), {}, {}
    for source in STORED:
        every, plain = cast_inputs(source)
        for target in STORED:
            name = f"{source}_to_{target}".replace("torch.", "")
            register = source if TRITON_TYPES[source] != "tl.float32" else torch.float32
            file.kernel(name, {"x": source}, file.writer.cast("x", register, target), target)
            inputs[name] = [(every if target.is_floating_point or target == torch.bool else plain).to(device)]
            outputs[name] = target
    got = file.run(tmp_path, "casts", inputs, outputs)
    wrong = []
    for name, mine in got.items():
        expected = inputs[name][0].cpu().to(outputs[name])
        if not torch.equal(mine.nan_to_num(7.0), expected.nan_to_num(7.0)) or not same_zeros(mine, expected):
            wrong.append(f"{name}: {inputs[name][0].tolist()} gave {mine.tolist()}, not {expected.tolist()}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_rounding_to_half_types(half, tmp_path):
    file = File()
    name = "round_f16" if half == torch.float16 else "round_bf16"
    text = file.writer.op(name, ["x"], torch.float32, torch.float32)
    file.kernel("rounded", {"x": torch.float32}, text, torch.float32)
    x = torch.cat([cast_inputs(torch.float32)[0], torch.linspace(-3, 3, 200)])
    got = file.run(tmp_path, "rounding", {"rounded": [x]}, {"rounded": torch.float32})["rounded"]
    torch.testing.assert_close(got, x.to(half).float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool], ids=str)
def test_where_and_fma_agree_with_torch(dtype, tmp_path):
    x, y = pairs(dtype)
    choice = torch.arange(x.numel()) % 3 == 0
    file = File()
    types = {"choice": torch.bool, "x": dtype, "y": dtype}
    file.kernel("chosen", types, file.writer.op("where", ["choice", "x", "y"], dtype, dtype), dtype)
    if dtype.is_floating_point:
        file.kernel("fused", types, file.writer.op("fma", ["x", "y", "x"], dtype, dtype), dtype)
    inputs = {name: [choice, x, y] for name in file.kernels}
    outputs = dict.fromkeys(file.kernels, dtype)
    got = file.run(tmp_path, "kernels", inputs, outputs)
    torch.testing.assert_close(got["chosen"], torch.where(choice, x, y), rtol=0, atol=0, equal_nan=True)
    if dtype.is_floating_point:
        torch.testing.assert_close(got["fused"], x * y + x, equal_nan=True)


CONSTANTS = {
    torch.float32: [0.0, -0.0, 1.0, -2.5, 0.1, 1e-40, 3.4e38, 1e300, math.inf, -math.inf, math.nan],
    torch.float64: [0.0, -0.0, 0.1, -1e300, 5e-324, math.inf, -math.inf, math.nan],
    torch.bfloat16: [0.1015625, -1e-40],
    torch.int64: [0, -1, 2**31, 2**40 + 1, -(2**63), 2**63 - 1],
    torch.int32: [0, 7, -1, -(2**31), 2**31 - 1],
    torch.int8: [5, -128, 127],
    torch.uint8: [0, 255],
    torch.bool: [False, True],
}


@few(1)
@pytest.mark.parametrize("device", DEVICES)
def test_constants_have_their_type_wherever_they_stand(device, tmp_path):
    file, inputs, outputs, expected = File(), {}, {}, {}
    writer = file.writer
    for dtype, values in CONSTANTS.items():
        short = str(dtype).removeprefix("torch.")
        register = torch.float32 if TRITON_TYPES[dtype] == "tl.float32" else dtype
        x = torch.tensor([0, 1]).to(register)
        for n, value in enumerate(values):
            text = writer.constant(value, dtype)
            number = torch.tensor(value, dtype=torch.float64 if register.is_floating_point else register)
            number = number.to(register)
            # alone and assigned, beside a tile, both sides of a choice, as an argument, converted
            places = {
                "alone": (text, register, number.expand(2)),
                "beside": (writer.op("add", ["x", text], register, register), register,
                           REFERENCE["add"](x, number)),
                "chosen": (writer.op("where", ["(x != 0)", text, text], register, register), register,
                           number.expand(2)),
                "called": (writer.op("maximum", ["x", text], register, register), register,
                           torch.maximum(x, number)),
                "equal": (writer.op("eq", [text, text], torch.bool, register), torch.bool,
                          (number == number).expand(2)),
                "truth": (writer.cast(text, register, torch.bool), torch.bool, number.bool().expand(2)),
            }  # fmt: skip
            for place, (written, out, result) in places.items():
                name = f"{short}_{n}_{place}"
                file.kernel(name, {"x": register}, written, out)
                if place == "alone":
                    held = f"    held = {text}\n"
                    file.kernels[name] = file.kernels[name].replace(
                        f"    tl.store(out_ptr + i, {text}",
                        held + "    tl.store(out_ptr + i, tl.where(i < n, held, held)",
                    )
                inputs[name], outputs[name], expected[name] = [x.to(device)], out, result
    got = file.run(tmp_path, "constants", inputs, outputs)
    wrong = []
    for name, mine in got.items():
        want = expected[name]
        same = torch.equal(mine.nan_to_num(7.0), want.nan_to_num(7.0)) and mine.dtype == want.dtype
        if not same or ("_called" not in name and not same_zeros(mine, want)):
            wrong.append(f"{name}: {mine.tolist()}, not {want.tolist()}")
    assert not wrong, "\n".join(wrong)
    chosen = [name for name in file.kernels if re.search(r"_[0-9]_(alone|chosen|equal|called)", name)]
    assert len(file.compile(tmp_path, "constants", "cuda:90", chosen[::3])) == len(chosen[::3])


def test_a_double_is_compared_with_a_double() -> None:
    """Beside a comparison Triton takes a bare number for a float32: 0.1 is not 0.10000000149."""
    writer, x = TritonWriter(), named("x")
    for sign, name in (("<", "lt"), ("==", "eq"), (">=", "ge"), ("!=", "ne")):
        text = writer.op(name, [x, constant(0.1, torch.float64)], torch.bool, torch.float64).bare
        assert text == f"x {sign} tl.full((), 0.1, tl.float64)"
    assert writer.op("lt", [x, constant(0.1, torch.float32)], torch.bool, torch.float32).bare == "x < 0.1"
    added = writer.op("add", [x, constant(0.1, torch.float64)], torch.float64, torch.float64).bare
    assert added == "x + 0.1"
