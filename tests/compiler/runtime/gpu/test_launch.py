"""The launcher, against a driver of our own that writes down what it is asked."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.runtime.gpu import launch as triton_launch
from nbcompile.compiler.runtime.gpu.compile import Assumed, Built
from nbcompile.compiler.runtime.gpu.launch import Driver, launchers, resident_programs
from nbcompile.compiler.runtime.gpu.native import native_launcher
from nbcompile.compiler.stages import Argument, Config, KernelSource, Launch
from nbcompile.errors import LaunchError
from nbcompile.targets import parse
from tests.nightly import few

CHIP = parse("cuda:90")

FAKE = """
long long fake_log[64]; int fake_status, fake_parameters, fake_loads;
static void *current = (void *)0;
int cuInit(int f) { return 0; }
int cuDeviceGet(int *d, int n) { *d = n; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)(long long)(100 + d); return 0; }
int cuCtxGetCurrent(void **c) { *c = current; return 0; }
int cuCtxPushCurrent_v2(void *c) { current = c; return 0; }
int cuCtxPopCurrent_v2(void **c) { *c = current; current = 0; return 0; }
int cuModuleLoadData(void **m, const char *b) {
    *m = (void *)(long long)(1000 + ++fake_loads); return fake_status;
}
int cuModuleGetFunction(void **f, void *m, const char *name) { *f = m; return 0; }
int cuFuncSetCacheConfig(void *f, int c) { return 0; }
int cuFuncSetAttribute(void *f, int a, int v) { fake_log[40] = a; fake_log[41] = v; return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, unsigned long shared) {
    *n = 2048 / threads; return 0;
}
int cuGetErrorName(int e, const char **t) { *t = "CUDA_ERROR_TEST"; return 0; }
static int note(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, void *stream, void **p) {
    long long head[] = { (long long)f, x, y, z, bx, by, bz, shared, (long long)stream, (long long)current };
    fake_log[0]++;
    for (int n = 0; n < 10; n++) fake_log[n + 1] = head[n];
    for (int n = 0; n < fake_parameters; n++) fake_log[n + 11] = *(long long *)p[n];
    return fake_status;
}
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **p, void **extra) {
    return note(f, x, y, z, bx, by, bz, shared, stream, p);
}
int cuLaunchKernelEx(const struct config { unsigned grid[3], block[3], shared; void *stream;
                     const struct { int id, padding; long long value[8]; } *attributes; unsigned count; } *c,
                     void *f, void **p, void **extra) {
    fake_log[43] = c->count == 1 ? 100 * c->attributes->id + (int)c->attributes->value[0] : -1;
    return note(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared,
                c->stream, p);
}
int cuLaunchCooperativeKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by,
                              unsigned bz, unsigned shared, void *stream, void **p) {
    fake_log[42]++;
    return note(f, x, y, z, bx, by, bz, shared, stream, p);
}
"""


class Fake:
    """The library, its driver, and what was launched last."""

    def __init__(self, folder: Path) -> None:
        find_toolchain().compile(FAKE, folder / "fake.so")
        self.library = ctypes.CDLL(str(folder / "fake.so"))
        self.log = (ctypes.c_longlong * 64).in_dll(self.library, "fake_log")
        self.driver = Driver(self.library)

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.library, f"fake_{name}").value = value

    @property
    def launches(self) -> int:
        return self.log[0]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.log[2:5])

    def parameters(self, count: int) -> list[int]:
        return list(self.log[11 : 11 + count])


@pytest.fixture(params=["native", "python"])
def fake(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    assert native_launcher() is not None
    monkeypatch.setattr(triton_launch, "stream_of", lambda index: 7000 + index)
    if request.param == "python":
        monkeypatch.setattr(triton_launch, "native_launcher", lambda: None)
    made = Fake(tmp_path)
    made.set("parameters", 6)
    yield made


ARGUMENTS = (
    Argument("x", "*fp32"),
    Argument("y", "*fp32", ours=True),
    Argument("n", "i32", hint=64),
    Argument("m", "i64", hint=3),
)


def _source(grid: tuple[str, ...], **options: Any) -> KernelSource:
    launch = Launch("f", "k0", ARGUMENTS, grid, (Config({"BLOCK": 8}, warps=2),), **options)
    return KernelSource("g0.fw", "triton", (), (), "", (), launches=(launch,))


def _built(assumed: Assumed = ((0, 16), (1, 16), (2, 16)), **other: Any) -> Built:
    facts: dict[str, Any] = {"registers": 32, "spill_bytes": 0, "shared_bytes": 1024} | other
    binary, config = bytes(sum(assumed, ())), Config({"BLOCK": 8}, 2)
    return Built("f", "f_symbol", "cuda:90", "cubin", binary, {}, config, assumed, 2, **facts)


def _launcher(
    fake: Fake, grid: tuple[str, ...], built: Built | None = None, index: int = 1, **options: Any
) -> Any:
    made = launchers(
        _source(grid, **options), {"f": built or _built()}, CHIP, torch.device("cuda", index), fake.driver
    )
    return made["f"]


def test_a_launch_passes_arguments_grid_stream_and_hidden_parameters(fake: Fake) -> None:
    call = _launcher(fake, ("cdiv(n, BLOCK)", "m", "max(1, m - 4)"))
    x, y = torch.zeros(64), torch.zeros(64)
    assert call(x, y, 48, 1 << 9) is None
    assert fake.launches == 1
    assert fake.grid == (6, 512, 508)
    function, threads, shared, stream, context = (fake.log[n] for n in (1, 5, 8, 9, 10))
    assert (function, threads, shared, stream, context) == (1001, 64, 1024, 7001, 101)
    assert fake.parameters(6) == [x.data_ptr(), y.data_ptr(), 48, 1 << 9, 0, 0]
    context_after = ctypes.c_void_p(1)
    fake.library.cuCtxGetCurrent(ctypes.byref(context_after))
    assert context_after.value is None  # as it was


def test_an_empty_grid_launches_nothing(fake: Fake) -> None:
    call = _launcher(fake, ("cdiv(n, BLOCK)",))
    call(torch.zeros(1), torch.zeros(1), 0, 0)
    assert fake.launches == 0


@few(6)
@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ("cdiv(n, BLOCK) * 2 - 1", 3), ("n // 5", 3), ("n % 5 + 1", 2), ("min(n, m)", 3), ("max(n, m)", 16),
        ("(n + m) // 2", 9), ("cdiv(n - 1, m) - (n - 17) // 2", 6),
    ],
)  # fmt: skip
def test_grids_are_evaluated_as_python_does(fake: Fake, grid: str, expected: int) -> None:
    _launcher(fake, (grid,))(torch.zeros(1), torch.zeros(1), 16, 3)
    assert fake.grid == (expected, 1, 1)


def test_a_call_that_breaks_an_assumption_gets_a_variant_made_once(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Assumed] = []

    class Done:
        def __init__(self, built: Built) -> None:
            self.result = lambda: built

    def begin(source: Any, launch: Any, config: Any, chip: Any, assumed: Assumed) -> Done:
        asked.append(assumed)
        return Done(_built(assumed))

    monkeypatch.setattr(triton_launch.triton_build, "begin", begin)
    call = _launcher(fake, ("cdiv(n, BLOCK)",))
    x, y = torch.zeros(65), torch.zeros(64)
    for _ in range(2):
        call(x[1:], y, 48, 1)
        assert fake.log[1] == 1002  # another function
        assert fake.parameters(1) == [x.data_ptr() + 4]
        call(x, y, 47, 1)
        assert fake.log[1] == 1003
        assert fake.grid == (6, 1, 1)
        call(x, y, 48, 1)
        assert fake.log[1] == 1001
    assert asked == [((1, 16), (2, 16)), ((0, 16), (1, 16))]
    for shift in ((1, 0, 17), (1, 1, 17), (0, 1, 16), (1, 1, 16), (0, 1, 17)):
        call(x[shift[0] :], torch.zeros(66)[shift[1] :], shift[2], 1)
    assert asked[-1] == ()  # one that assumes nothing serves all others
    assert len(asked) == triton_launch.MOST_VARIANTS


def test_a_size_of_another_power_of_two_gets_the_code_for_that(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Assumed] = []

    def begin(source: Any, launch: Any, config: Any, chip: Any, assumed: Assumed) -> Any:
        asked.append(assumed)
        return SimpleNamespace(result=lambda: _built(assumed))

    monkeypatch.setattr(triton_launch.triton_build, "begin", begin)
    call = _launcher(fake, ("cdiv(n, BLOCK)",))
    for size in (48, 40, 8, 1000, 44, 46, 47, 45, 48, 24):
        call(torch.zeros(64), torch.zeros(64), size, 1)
        assert fake.parameters(3)[2] == size
    whole = ((0, 16), (1, 16))
    # 47 and 45 are served by what takes 46 for anything
    assert asked == [(*whole, (2, 8)), (*whole, (2, 4)), whole]


def test_programs_that_wait_for_each_other_are_launched_together(fake: Fake) -> None:
    _launcher(fake, ("m",), together=True)(torch.zeros(1), torch.zeros(1), 16, 2)
    assert fake.log[42] == 1


def test_a_function_that_waits_itself_may_start_before_the_last_has_ended(fake: Fake) -> None:
    call = _launcher(fake, ("cdiv(n, BLOCK)", "m"), early=True)
    x, y = torch.zeros(64), torch.zeros(64)
    call(x, y, 48, 2)
    assert fake.grid == (6, 2, 1)
    assert tuple(fake.log[n] for n in (1, 5, 8, 9)) == (1001, 64, 1024, 7001)
    assert fake.parameters(6) == [x.data_ptr(), y.data_ptr(), 48, 2, 0, 0]
    programmatic_stream_serialization = 6
    native = triton_launch.native_launcher() is not None  # the one in Python does without
    assert fake.log[43] == (100 * programmatic_stream_serialization + 1 if native else 0)


def test_large_shared_memory_is_asked_for_and_a_binary_is_loaded_once(fake: Fake) -> None:
    built = _built(shared_bytes=100_000)
    _launcher(fake, ("m",), built)
    _launcher(fake, ("m",), built)
    assert (fake.log[40], fake.log[41]) == (8, 100_000)
    assert ctypes.c_int.in_dll(fake.library, "fake_loads").value == 1
    assert resident_programs(built, CHIP, torch.device("cuda", 1), fake.driver) == 32 * CHIP.multiprocessors


def test_what_goes_wrong_names_the_kernel(fake: Fake) -> None:
    call = _launcher(fake, ("cdiv(n, BLOCK)",))
    x = torch.zeros(1)
    with pytest.raises(LaunchError, match="kernel f takes 4 arguments, got 1"):
        call(x)
    with pytest.raises(LaunchError, match="argument 2 of kernel f does not hold 4294967296"):
        call(x, x, 1 << 32, 1)
    with pytest.raises((TypeError, AttributeError), match="data_ptr"):
        call(3, x, 16, 1)
    fake.set("status", 1)
    with pytest.raises(
        LaunchError, match=r"kernel f cannot be launched with the grid \(2, 1, 1\): CUDA_ERROR_TEST"
    ):
        call(x, x, 16, 1)
    with pytest.raises(LaunchError, match=r"kernel f \(2000 bytes of shared memory\) cannot be loaded"):
        _launcher(fake, ("n",), _built(((0, 16),), shared_bytes=2000))


def test_scratch_memory_is_the_first_hidden_parameter(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.Tensor] = []
    real = torch.empty

    def empty(size: int, **_: Any) -> torch.Tensor:
        made.append(real(size, dtype=torch.uint8))
        return made[-1]

    monkeypatch.setattr(torch, "empty", empty)
    call = _launcher(fake, ("cdiv(n, BLOCK)",), _built(scratch_bytes=128, scratch_align=128))
    x = torch.zeros(64)
    call(x, x, 48, 1)
    assert made[0].numel() == 6 * 128
    assert fake.parameters(6)[4:] == [made[0].data_ptr(), 0]


def test_without_a_driver_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    triton_launch.cuda_driver.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(LaunchError, match="driver cannot be loaded"):
        triton_launch.cuda_driver()
