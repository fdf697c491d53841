"""A large file is compiled in parts, and the library is the same."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from nbcompile.api import compile as nbcompile_compile
from nbcompile.compiler.runtime import bind
from nbcompile.compiler.runtime.c import calls
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.stages import CompiledModule, EntryPoint, KernelSource, KernelText
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from tests.compiler.codegen.triton_running import aten_of_fake


def _source(count: int) -> KernelSource:
    head = ("// made by hand", "static inline float twice(float x) { return 2 * x; }")
    kernels = tuple(
        KernelText(
            f"k{n}", f"k{n}", f"void k{n}(float *x) {{\n  x[{n}] = twice(x[{n}]) + {n};\n}}", (), "points"
        )
        for n in range(count)
    )
    entry_points = tuple(EntryPoint(kernel.id, kernel.id, ("x",)) for kernel in kernels)
    return KernelSource("g0.fw", "c", head, kernels, "", entry_points)


def test_each_kernel_is_in_one_part_with_what_stands_above() -> None:
    source = _source(7)
    parts = bind.parts(source, cores=4)
    assert len(parts) == 2
    for part in parts:
        assert part.startswith("// made by hand") and part.count("static inline") == 1
    for kernel in source.kernels:
        assert sum(kernel.text in part for part in parts) == 1
    assert bind.parts(source, cores=1) == [source.source]
    assert bind.parts(_source(3), cores=4) == [_source(3).source]


def test_a_library_of_parts_has_every_kernel(tmp_path) -> None:
    source = _source(9)
    library = bind.build(source, find_toolchain()).result()
    path = tmp_path / "kernel.so"
    path.write_bytes(library)
    functions = calls.load(path, source.entry_points)
    x = torch.ones(9)
    for function in functions.values():
        function(x)
    assert x.tolist() == [2.0 + n for n in range(9)]


def test_an_error_in_one_part_is_reported() -> None:
    source = _source(6)
    broken = dataclasses.replace(source.kernels[4], text="void k4(float *x) { x = nonsense; }")
    kernels = (*source.kernels[:4], broken, source.kernels[5])
    future = bind.build(dataclasses.replace(source, kernels=kernels), find_toolchain())
    assert "nonsense" in str(future.exception())


def test_a_graph_of_many_kernels_agrees_with_eager() -> None:
    def many(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.softmax(x @ x.T, n % 2) * n for n in range(8)]

    compiled = nbcompile_compile(many, options={"cache": False})
    x = torch.randn(32, 32)
    for mine, theirs in zip(compiled(x), many(x), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert compiled.ran_compiled


def test_a_run_that_is_done_again_draws_the_same_numbers() -> None:
    graph = aten_of_fake(lambda x: x + torch.rand(3), lambda: (torch.ones(3),))

    def call(_: list[torch.Tensor]) -> None:
        torch.rand(7)  # as a graph within the graph may
        raise RuntimeError("broken")

    module = bind.with_fallback(CompiledModule("g0.fw", call, False), graph, Recorder(Options()))
    torch.manual_seed(3)
    found = module.call([torch.ones(3)])
    torch.manual_seed(3)
    assert torch.equal(found, torch.ones(3) + torch.rand(3))


def test_an_index_out_of_range_is_the_error_of_its_own_thread() -> None:
    """A kernel runs while other threads do, and its flag is read after it."""

    def gathered(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2)[i]

    compiled = nbcompile_compile(gathered)
    x, good = torch.randn(1 << 15), torch.arange(1 << 15)
    bad, expected = good.clone().fill_(1 << 20), gathered(x, good)
    compiled(x, good)

    def call(place: int) -> int:
        wrong = 0
        for _ in range(60):
            try:
                result = compiled(x, bad if place % 2 else good)
                wrong += place % 2 or not torch.allclose(result, expected)
            except IndexError:
                wrong += not place % 2
        return wrong

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(call, range(6))) == 0


def test_checks_of_linalg_are_called_without_torchs_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(torch.linalg.cholesky(x)) * 2

    good, bad = torch.eye(3) * 4, -torch.eye(3)
    compiled = nbcompile_compile(program)
    torch.testing.assert_close(compiled(good), program(good))

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("80 microseconds")

    monkeypatch.setattr(type(torch.ops.higher_order.with_effects), "__call__", refused)
    torch.testing.assert_close(compiled(good + 1), program(good + 1))
    with pytest.raises(torch.linalg.LinAlgError, match="cholesky"):
        compiled(bad)
