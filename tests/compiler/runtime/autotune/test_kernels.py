"""Candidates of generated kernels: each computes what the first does, in the interpreter; and a search
with real compiles for a chip that is not here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nbcompile.compiler.codegen.triton.groups_to_triton import groups_to_triton
from nbcompile.compiler.fuse.limits import limits_of
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.fuse.storage import with_storage
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.runtime.autotune.configs import config_text, free_constants, neighbours
from nbcompile.compiler.runtime.autotune.copies import written
from nbcompile.compiler.runtime.autotune.tuner import Bench, Tuner
from nbcompile.compiler.runtime.bind import bind
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.compile import Built
from nbcompile.compiler.runtime.gpu_module import allocator
from nbcompile.compiler.runtime.interpreter import interpret as triton_interpret
from nbcompile.compiler.stages import Config, KernelSource, Launch
from nbcompile.options import Options
from nbcompile.record.compilation import AutotuneChoice
from nbcompile.record.recorder import Recorder
from nbcompile.targets import parse
from tests.compiler.codegen.running import aten_of
from tests.compiler.runtime.autotune.host_stopwatch import HostStopwatch
from tests.nightly import few

pytest.importorskip("triton")

CHIP = parse("cuda:90")
CPU = torch.device("cpu")
OPTIONS = Options(target="cuda:90")

# name → (function, shapes): each schedule, with blocks that divide its extents and that do not
CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "points": (lambda x: x.relu() * 2, ((5000,),)),
    "square tiles": (lambda x, y: x.t() + y, ((128, 96), (96, 128))),
    "persistent rows": (lambda x: torch.softmax(x, -1), ((16, 96),)),
    "norm": (lambda x, w: F.layer_norm(x, (128,), w), ((10, 128), (128,))),
    "walked rows": (lambda x: torch.softmax(x, -1), ((1, 50_000),)),
    "columns": (lambda x: x.sum(0), ((256, 128),)),
    "odd columns": (lambda x: x.sum(0), ((150, 77),)),
    "two directions": (lambda x: (x.sum(0), x.amax(1)), ((64, 128),)),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(tmp_path))
    yield


def inputs_of(name: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in CASES[name][1]]


def source_of(name: str) -> KernelSource:
    aten = aten_of(CASES[name][0], *inputs_of(name))
    fused = loops_to_groups(aten_to_loops(aten, OPTIONS), OPTIONS)
    return groups_to_triton(with_storage(fused, limits_of(CHIP)), CHIP)


def expected(name: str) -> tuple[torch.Tensor, ...]:
    found = CASES[name][0](*inputs_of(name))
    return found if isinstance(found, tuple) else (found,)


@few(3)
@pytest.mark.parametrize("name", CASES)
def test_every_candidate_computes_the_same(name: str) -> None:
    source = source_of(name)
    tried = 0
    for launch in source.launches:
        assert written(launch), "every launch writes something"
        found = {config_text(config): config for config in launch.configs}
        for config in launch.configs:
            found |= {config_text(item): item for item in neighbours(config, launch)}
        # warps mean nothing to the interpreter
        distinct = {tuple(sorted(config.constants.items())): config for config in found.values()}
        assert len(found) > len(launch.configs) or not free_constants(launch) or launch.together
        for config in distinct.values():
            functions = triton_interpret.interpreted(source, chosen={launch.function: config})
            module = bind(source, functools.partial(dict, functions), {}, False, allocator(CPU))
            for got, want in zip(module.call(inputs_of(name)), expected(name), strict=True):
                told = functools.partial("{}: {}".format, config_text(config))
                torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-4, msg=told)
            tried += 1
    assert tried >= 1


@pytest.mark.nightly
def test_a_search_with_real_compiles() -> None:
    """Compiled for Hopper, launched in the interpreter: all but the GPU's own time."""
    source = source_of("persistent rows")
    options = Options(target="cuda:90", mode="max-autotune", autotune_seconds=20.0)
    recorder = Recorder(options)

    def begin(launch: Launch, config: Config) -> Future[Built]:
        return triton_build.begin(source, launch, config, CHIP)

    def launcher(launch: Launch, built: Built) -> Callable[..., None]:
        return triton_interpret.interpreted(source, chosen={launch.function: built.config})[launch.function]

    tuner = Tuner(source, CHIP, options, recorder)
    module = tuner.module(
        lambda use: bind(source, use, {}, False, allocator(CPU)),
        lambda: triton_interpret.interpreted(source),
        CPU,
        Bench(begin, launcher, lambda built: 1000, HostStopwatch()),
    )
    for _ in range(3):
        (result,) = module.call(inputs_of("persistent rows"))
        torch.testing.assert_close(result, expected("persistent rows")[0])
    assert tuner.settled and not recorder.parts(str)
    choices = recorder.parts(AutotuneChoice)
    listed = {config_text(config) for config in source.launches[0].configs}
    assert listed <= {item.candidate for item in choices} and sum(item.chosen for item in choices) == 1
    assert sum(item.seconds is not None for item in choices) >= len(listed)
