"""Compiling Triton functions for chips that are not here."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import nbcompile
from nbcompile import targets
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu import compile as triton_compile
from nbcompile.compiler.runtime.gpu import tools as triton_tools
from nbcompile.compiler.runtime.gpu.build import (
    artifacts,
    assumptions,
    begin,
    build,
    cache_key,
    find_or_build,
    launched,
)
from nbcompile.compiler.runtime.gpu.grid import hints_of
from nbcompile.compiler.stages import Argument, Config, Launch
from nbcompile.errors import CodegenError, ToolchainError
from nbcompile.options import Options
from nbcompile.record.compilation import PassRecord
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target, parse
from nbcompile.view.text import to_text
from tests.compiler.runtime.gpu.samples import LAUNCHES, TEXT, sample
from tests.nightly import few

pytest.importorskip("triton")
HOPPER = parse("cuda:90")


@few(2)
@pytest.mark.parametrize("name", ["cuda:80", "cuda:90", "hip:gfx942"])
def test_a_source_is_compiled_for_a_chip_that_is_not_here(name: str) -> None:
    chip = parse(name)
    built = build(sample("pointwise", "softmax"), chip)
    assert list(built) == ["pointwise", "softmax"]
    one = built["softmax"]
    assert one.symbol == "softmax"
    assert one.binary.startswith(b"\x7fELF")
    assert one.registers is not None and 8 <= one.registers <= 256
    assert one.spill_bytes == 0
    assert one.warps == 8
    assert one.shared_bytes > 0  # what the warps of a row tell each other
    assert one.assumed == ((0, 16), (1, 16), (2, 16))
    texts = artifacts(one, chip)
    assembly = {"cuda": {"ptx", "sass"}, "hip": {"amdgcn"}}[chip.kind]
    assert set(texts) == {"ttir", "ttgir", "llir"} | assembly
    assert "tt.func public @softmax" in texts["ttir"]
    assert "#ttg.blocked" in texts["ttgir"]
    assert "define" in texts["llir"]
    if chip.kind == "cuda":
        assert ".visible .entry softmax" in texts["ptx"]
        assert "EXIT" in texts["sass"] and "kernels.py" in texts["sass"]
    else:
        assert ".vgpr_count" in texts["amdgcn"]


def test_subnormal_numbers_are_not_taken_for_0() -> None:
    """What eager computes of them is no 0, no infinity and no NaN (seen on a card: tests/gpu)."""
    call = nbcompile.compile(torch.rsqrt, options={"target": "cuda:90", "cache": False})
    call(torch.ones(8))
    (kernel,) = call.compilation.kernels
    assert "rsqrt.approx.f32" in kernel.sources["ptx"]


def test_spills_are_read_from_the_binary() -> None:
    tight = replace(LAUNCHES["softmax"], configs=(Config({"BLOCK": 8192}, warps=1),))
    one = build(sample(launches=(tight,)), HOPPER)["softmax"]
    assert (one.registers, one.spill_bytes) > (254, 0)
    text = "    .private_segment_fixed_size: 2068\n    .sgpr_count: 106\n    .vgpr_count:     512\n"
    assert triton_tools.amdgcn_resources(text) == triton_tools.Resources(512, 2068)
    assert triton_tools.cubin_resources(b"\x7fELF, but no more") == triton_tools.Resources(None, None)


WALK = """import triton
import triton.language as tl


@triton.jit
def walk(x, y, n, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    total = tl.full([RBLOCK], 0.0, tl.float64)
    for start in tl.range(0, n, RBLOCK, num_stages=STAGES):
        at = start + tl.arange(0, RBLOCK)
        total += tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y, tl.sum(total))
"""


def test_a_walk_keeps_no_more_under_way_than_there_is_room_for() -> None:
    arguments = (Argument("x", "*fp64"), Argument("y", "*fp64", ours=True), Argument("n", "i32", hint=99999))
    config = Config({"RBLOCK": 2048, "STAGES": 4})
    launch = Launch("walk", "g0.fw.k0", arguments, ("1",), (config,))
    roomy = build(sample(text=WALK, launches=(launch,)), HOPPER)["walk"]
    assert roomy.config.constants["STAGES"] == 4 and roomy.shared_bytes > 2 * 2048 * 8
    small = replace(HOPPER, shared_bytes=roomy.shared_bytes - 1)
    less = build(sample(text=WALK, launches=(launch,)), small)["walk"]
    assert less.config.constants["STAGES"] < 4 and less.shared_bytes <= small.shared_bytes


def test_a_loop_that_a_pass_of_tritons_breaks_is_built_with_fewer_warps() -> None:
    """Triton 3.6: "operand #0 does not dominate this use" in its own remove-layout-conversions."""

    def pooled(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        smooth = torch.logaddexp(x.gather(0, index), x.gather(0, index))
        pool = functional.max_pool1d(smooth, 1, stride=1)
        return pool.mean(0, True), torch.vstack([pool, smooth])

    run = nbcompile.compile(pooled, options={"cache": False, "target": "cuda:90"})
    run(torch.randn(8, 8, 8, requires_grad=True), torch.randint(0, 8, (8, 8, 8)))
    assert run.eager_reason and "which is not here" in run.eager_reason
    warps = [launch.warps for kernel in run.compilation.kernels for launch in kernel.launches]
    assert warps and min(warps) < 8


def test_tensors_on_the_cpu_beside_the_chip_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "is_here", lambda name: name == "cuda:90")
    for target, says in (("cuda:90", "and its tensors are on the CPU"), ("cuda:80", "which is not here")):
        torch._dynamo.reset()
        run = nbcompile.compile(lambda x: x.sin() * 2, options={"target": target})
        run(torch.randn(8))
        assert run.eager_reason and says in run.eager_reason
        assert says in to_text(run.compilation).splitlines()[0]


def test_registers_agree_with_nvidias_own_tool() -> None:
    tool = triton_tools.find_disassembler()
    dump = Path(tool or "").with_name("cuobjdump")
    if tool is None or not dump.exists():
        pytest.skip("no cuobjdump")
    one = build(sample("pointwise"), parse("cuda:100"))["pointwise"]
    file = Path(triton_compile.load_file(TEXT).__file__ or "").parent.parent / "one.cubin"
    file.write_bytes(one.binary)
    told = subprocess.run(
        [dump, "--dump-resource-usage", file], capture_output=True, text=True, check=True
    ).stdout
    assert f"REG:{one.registers} STACK:{one.spill_bytes} " in told


def test_what_was_compiled_is_found_again_but_not_after_a_change() -> None:
    source = sample("pointwise", "row_sum")
    options = Options()
    cold = Recorder(options)
    first = find_or_build(source, HOPPER, options, cold)
    built = first.built()
    assert not first.from_cache
    assert [type(item) for item in cold.parts(PassRecord)] == [PassRecord]
    warm = Recorder(options)
    again = find_or_build(source, HOPPER, options, warm)
    assert again.from_cache
    assert again.built() == built
    assert warm.parts(PassRecord)[0].note == "from cache"

    def key_of(text: str, function: str = "row_sum", chip: Target = HOPPER) -> str:
        return cache_key(sample(function, text=text), LAUNCHES[function], LAUNCHES[function].configs[0], chip)

    same = key_of(TEXT)
    assert key_of(TEXT.replace("one block of elements", "cell 4")) == same  # a comment
    assert key_of(TEXT.replace("* SCALE", "/ SCALE")) == same  # another function
    assert key_of(TEXT, chip=parse("cuda:80")) != same
    assert key_of(TEXT.replace("other=0.0).to", "other=1.0).to")) != same
    helper = key_of(TEXT, "pointwise")
    assert key_of(TEXT.replace("1.0 + tl.exp", "2.0 + tl.exp"), "pointwise") != helper  # what it calls
    assert (
        key_of(TEXT.replace("SCALE = tl.constexpr(2.0)", "SCALE = tl.constexpr(3.0)"), "pointwise") != helper
    )


@pytest.mark.nightly
def test_a_warm_load_does_not_import_triton(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from samples import sample\n"
        "from nbcompile.options import Options\n"
        "from nbcompile.record.recorder import Recorder\n"
        "from nbcompile.compiler.runtime.gpu.build import find_or_build\n"
        "from nbcompile.targets import parse\n"
        "found = find_or_build(sample('row_sum'), parse('cuda:90'), Options(), Recorder(Options()))\n"
        "print(found.from_cache, found.built()['row_sum'].registers, 'triton' in sys.modules)\n"
    )
    built = begin(sample("row_sum"), LAUNCHES["row_sum"], LAUNCHES["row_sum"].configs[0], HOPPER).result()
    run = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == ["True", str(built.registers), "False"]


def test_a_size_is_assumed_a_multiple_only_of_what_it_was_one_of() -> None:
    arguments = (
        Argument("x", "*fp32"), Argument("a", "i32", hint=1), Argument("b", "i64", hint=48),
        Argument("c", "i32"), Argument("d", "i32", hint=17), Argument("e", "i32", hint=1000),
        Argument("f", "i32", hint=20), Argument("g", "i32", hint=6),
    )  # fmt: skip
    launch = Launch("f", "k", arguments, ("1",), (Config({}),))
    assert assumptions(launch) == ((0, 16), (2, 16), (5, 8), (6, 4))
    free = begin(sample("pointwise"), LAUNCHES["pointwise"], Config({"BLOCK": 1024}), HOPPER, ()).result()
    assumed = begin(sample("pointwise"), LAUNCHES["pointwise"], Config({"BLOCK": 1024}), HOPPER).result()
    assert "ld.global.v4.b32" in assumed.texts["ptx"] or "ld.global.v4" in assumed.texts["ptx"]
    assert "ld.global.v4" not in free.texts["ptx"]


def test_another_config_may_be_chosen_and_is_recorded() -> None:
    launch = LAUNCHES["pointwise"]
    built = build(sample("pointwise"), HOPPER, {"pointwise": launch.configs[1]})["pointwise"]
    told = launched(launch, built, hints_of(launch))
    assert (told.grid, told.constants, told.warps) == ((2, 1, 1), {"BLOCK": 2048}, 8)
    assert told.registers == built.registers


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"BLOCK": 1000}, r"refuses kernel pointwise for cuda:90: arange's range must be a power of 2"),
        ({"OTHER": 8}, r"pointwise has the parameters x, y, n, BLOCK, and its launch gives x, y, n, OTHER"),
    ],
)
def test_a_function_that_triton_refuses_is_named(change: dict[str, int], says: str) -> None:
    launch = replace(LAUNCHES["pointwise"], configs=(Config(change),))
    with pytest.raises(CodegenError, match=says):
        build(sample(launches=(launch,)), HOPPER)


def test_what_is_no_python_or_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(CodegenError, match="no Python, line 2"):
        find_or_build(
            sample("pointwise", text="import triton\ndef ("), HOPPER, Options(), Recorder(Options())
        )
    with pytest.raises(CodegenError, match="no function pointwise"):
        build(sample("pointwise", text="import triton\n"), HOPPER)


def test_ptxas_tells_which_kernel_it_refuses(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from triton.backends.nvidia.compiler import CUDAOptions

    with pytest.raises(ToolchainError, match=r"ptxas refuses kernel f for cuda:90: .*syntax error"):
        triton_compile._assemble(
            ".version 8.0\n.target sm_90\nnonsense here;\n", CUDAOptions(arch="sm90"), 90, "f"
        )
    assert "nonsense" not in capfd.readouterr().out  # Triton's own stage prints the whole file


def test_without_triton_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(triton_tools, "is_installed", lambda: False)
    with pytest.raises(ToolchainError, match="pip install triton"):
        triton_tools.triton_module()


def test_starting_early_warms_triton() -> None:
    triton_build._prestarted.cache_clear()
    triton_build.prestart(HOPPER)
    triton_build.prestart(parse("cpu"))  # nothing to do
    assert triton_build._prestarted.cache_info().currsize == 1


def test_two_vendors_code_is_never_made_at_once() -> None:
    inside: list[str] = []
    met: set[frozenset[str]] = set()

    def compile_for(vendor: str) -> None:
        for _ in range(20):
            with triton_compile._VENDOR.of(vendor):
                inside.append(vendor)
                time.sleep(0.0005)
                met.add(frozenset(inside))
                inside.remove(vendor)

    threads = [threading.Thread(target=compile_for, args=(name,)) for name in ("cuda", "cuda", "hip", "hip")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert met == {frozenset({"cuda"}), frozenset({"hip"})}
