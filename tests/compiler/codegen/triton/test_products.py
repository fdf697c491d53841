"""Matrix products of ours: against eager in the interpreter, compiled for four chips, and chosen by time."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from nbcompile import targets
from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.codegen.triton.groups_to_triton import groups_to_triton
from nbcompile.compiler.fuse import matmul_fusion as fusion
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.loop_ir.fused import FusedProgram
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.products import _random, _with
from nbcompile.compiler.runtime import bind as source_to_module
from nbcompile.compiler.runtime import gpu_module
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.schedule.products import configs_of, persistent_configs, templates
from nbcompile.compiler.stages import AtenGraph, Config, KernelSource
from nbcompile.errors import CodegenError
from nbcompile.options import Options
from tests.compiler.codegen.running import aten_of
from tests.nightly import few

pytest.importorskip("triton")
F = torch.nn.functional
TUNED = Options(mode="max-autotune", target="cuda:90", cache=False)
CHIP = targets.parse("cuda:90")
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def fused(fn, *inputs, options=TUNED) -> FusedProgram:
    return loops_to_groups(aten_to_loops(aten_of(fn, *inputs), options), options)


def with_ours(program: FusedProgram, template: str, precision="ieee", config: Config | None = None):
    """The program with every product in a kernel of ours."""
    found, pairs = fusion.candidates(program, TUNED, precision)
    program = fusion.refused(program, pairs)
    for item in found:
        able = templates(item.group, program.program.buffers(), CHIP)
        group = _with(item.group, template if template in able else "tiles", (config,) if config else ())
        program = fusion.accepted(program, item, group)
    return program


def run(source: KernelSource, inputs):
    return gpu_module.interpreted(source, {}).call(list(inputs))


def tensors(*shapes, dtype=BF16):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def heads(x, w):
    return (F.linear(x, w).view(3, 17, 4, 16).transpose(1, 2) * 2).contiguous()


def two(x, w, b):
    y = F.linear(x, w, b)
    return y, F.relu(y)


def bias_column(x, w, b):
    return torch.addmm(b, x, w, beta=0.5, alpha=2.0) * b


CASES = {
    "mm": (lambda x, w: x @ w, [(50, 40), (40, 72)], 1),
    "mm of transposed": (lambda x, w: (x.t() @ w.t()).relu(), [(40, 50), (72, 40)], 1),
    "linear gelu residual": (
        lambda x, w, b, r: F.gelu(F.linear(x, w, b)) + r,
        [(3, 17, 40), (64, 40), (64,), (3, 17, 64)],
        1,
    ),
    "heads": (heads, [(3, 17, 40), (64, 40)], 1),
    "kept for the backward": (two, [(33, 48), (80, 48), (80,)], 1),
    "addmm with numbers": (bias_column, [(33, 48), (48, 40), (33, 1)], 1),
    "gate": (
        lambda x, w, v: F.silu(x @ w) * (x @ v),
        [(33, 64), (64, 48), (64, 48)],
        2,
    ),
    "bmm": (lambda x, w: torch.bmm(x, w.transpose(1, 2)) * 3 + 1, [(3, 33, 40), (3, 50, 40)], 1),
    "baddbmm": (
        lambda r, x, w: torch.baddbmm(r, x, w).tanh(),
        [(3, 1, 50), (3, 33, 40), (3, 40, 50)],
        1,
    ),
    "cast": (lambda x, w: (x @ w).float() * 0.125, [(32, 32), (32, 64)], 1),
    "causal mask": (
        lambda x, w: torch.where(torch.ones(33, 33, dtype=torch.bool).tril(), x @ w.t(), -1e4),
        [(33, 64), (33, 64)],
        1,
    ),
}


@few(4)
@pytest.mark.parametrize("template", ["tiles", "persistent"])
@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_products_agree_with_eager(name, dtype, template):
    fn, shapes, products = CASES[name]
    inputs = tensors(*shapes, dtype=dtype)
    program = fused(fn, *inputs)
    ours = with_ours(program, template)
    groups = [group for group in ours.groups if group.product is not None]
    assert len(groups) == products
    got = run(groups_to_triton(ours, CHIP), inputs)
    apart = run(groups_to_triton(program, CHIP), inputs)
    expected = fn(*inputs)
    for mine, separate, theirs in zip(got, apart, expected if isinstance(expected, tuple) else (expected,)):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        tolerance = {BF16: 2e-2, F16: 2e-3, F32: 1e-5}[dtype]
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=10 * tolerance)
        # but for sums in another order: what the separate kernel gives, rounding of the product included
        same = (mine == separate).float().mean()
        assert dtype == F32 or same > 0.97, f"only {same:.3f} of the elements are those of separate kernels"


def test_a_block_may_be_larger_or_smaller_than_the_product():
    x, w, b = tensors((70, 90), (45, 90), (45,))
    for m, n, k in ((16, 16, 16), (32, 64, 32), (128, 64, 128)):
        config = Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 2}, 4, 2)
        program = with_ours(fused(lambda x, w, b: F.linear(x, w, b).relu(), x, w, b), "tiles", config=config)
        (got,) = run(groups_to_triton(program, CHIP), [x, w, b])
        torch.testing.assert_close(got, F.linear(x, w, b).relu(), rtol=2e-2, atol=2e-2)


def test_an_offset_and_the_strides_of_slices():
    x, w = tensors((40, 130), (130, 64))

    def fn(x, w):
        return (x[3:35, 10:74] @ w[::2][:64]).sigmoid()

    program = with_ours(fused(fn, x, w), "tiles")
    (got,) = run(groups_to_triton(program, CHIP), [x, w])
    torch.testing.assert_close(got, fn(x, w), rtol=2e-2, atol=2e-2)


def test_the_kernel_reads_well():
    x, w, b = tensors((64, 64), (64, 64), (64,))
    config = Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8}, 4, 3)
    program = with_ours(
        fused(lambda x, w, b: F.linear(x, w, b).relu(), x, w, b), "persistent",
        config=Config({**config.constants, "FLATTEN": 1, "WARP_SPECIALIZE": 0, "PROGRAMS": 2}, 4, 3),
    )  # fmt: skip
    source = groups_to_triton(program, CHIP)
    (kernel,) = source.kernels
    assert kernel.name == "addmm_relu" and kernel.schedule == "matrix product, persistent"
    body = kernel.text.split("):\n", 1)[1]
    assert body.splitlines()[:4] == [
        "    gdc_wait()",
        "    x_tiles = tl.make_tensor_descriptor(x_ptr, [64, 64], [64, 1], [BLOCK_M, BLOCK_K])",
        "    w_tiles = tl.make_tensor_descriptor(w_ptr, [64, 64], [64, 1], [BLOCK_N, BLOCK_K])",
        "    rows, columns = tl.cdiv(64, BLOCK_M), tl.cdiv(64, BLOCK_N)",
    ]
    assert "mask" not in body  # every block divides
    assert source.launches[0].grid == ("min(cdiv(64, BLOCK_M) * cdiv(64, BLOCK_N), 132 * PROGRAMS)",)
    linked = {origin for _, origins in kernel.lines for origin in origins}
    assert linked == {"g0.fw.c0", "g0.fw.l1"}


def graph_of(fn, *inputs, options, mode="fake") -> AtenGraph:
    """As ``aten_of``, with random numbers and sizes as a GPU's graphs have them."""
    make = make_fx(fn, decompositions(options), tracing_mode=mode, _allow_non_fake_inputs=True)
    module = make(*inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            node._rename(str(node.target).removesuffix("_1"))
    module.recompile()
    ids = {node.name: f"g0.fw.n{place}" for place, node in enumerate(module.graph.nodes)}
    return AtenGraph("g0.fw", "forward", module, ids)


@few(1)
@pytest.mark.parametrize("template", ["tiles", "persistent"])
def test_dropout_draws_the_numbers_of_the_separate_kernel(template):
    options = Options(mode="max-autotune", target="cuda:90", random="philox", cache=False)
    x, w = tensors((40, 64), (96, 64))
    aten = graph_of(
        lambda x, w: torch.ops.aten.native_dropout(F.linear(x, w), 0.3, True), x, w, options=options
    )
    program = loops_to_groups(aten_to_loops(aten, options), options)
    results = []
    for item in (program, with_ours(program, template)):
        torch.manual_seed(3)
        results.append(run(groups_to_triton(item, CHIP), [x, w]))
    assert 0.6 < float(results[0][1].float().mean()) < 0.8
    assert torch.equal(results[0][1], results[1][1])
    torch.testing.assert_close(results[0][0], results[1][0], rtol=2e-2, atol=2e-2)


@few(1)
@pytest.mark.parametrize("template", ["tiles", "persistent"])
def test_symbolic_sizes(template):
    x, w, b = tensors((4, 10, 64), (96, 64), (96,))
    aten = graph_of(lambda x: F.gelu(F.linear(x, w, b)), x, options=TUNED, mode="symbolic")
    program = loops_to_groups(aten_to_loops(aten, TUNED), TUNED)
    (candidate,) = fusion.candidates(program, TUNED, "ieee")[0]
    assert candidate.epilogue is not None
    ours = with_ours(program, template)
    source = groups_to_triton(ours, CHIP)
    assert source.kernels[0].schedule.endswith("persistent") == (template == "persistent")
    call = gpu_module.interpreted(source, source_to_module.graph_constants(aten, source.constants)).call
    for shape in ((4, 10), (3, 7), (1, 33)):
        (y,) = tensors((*shape, 64))
        torch.testing.assert_close(call([y])[0], F.gelu(F.linear(y, w, b)), rtol=2e-2, atol=2e-2)
    # cut out of its graph, for a measurement
    small = fusion.trial(program, candidate, candidate.items())
    buffers, sizes = fusion.trial_inputs(small)
    given = [*(_random(buffer, torch.device("cpu")) for buffer in buffers), *sizes]
    apart = run(groups_to_triton(small, CHIP), given)
    together = run(groups_to_triton(fusion.trial(ours, candidate, (candidate.group,)), CHIP), given)
    torch.testing.assert_close(apart[0], together[0], rtol=2e-2, atol=2e-2)


def test_results_of_over_two_billion_elements_have_wide_indices():
    x, w = (torch.empty((65_536, 64), dtype=BF16, device="meta") for _ in range(2))
    source = groups_to_triton(with_ours(fused(lambda x, w: F.linear(x, w).relu(), x, w), "persistent"), CHIP)
    text = source.kernels[0].text
    assert "m = row.to(tl.int64) + " in text and "n = column.to(tl.int64) + " in text
    assert triton_build.build(source, CHIP)


# -- which pairs may be one kernel ----------------------------------------------------------------------


def reasons(fn, *inputs, options=TUNED):
    program = fused(fn, *inputs, options=options)
    found, pairs = fusion.candidates(program, options, "ieee")
    return found, {group.name: refusal.code for _, group, refusal in pairs}


def test_refusals_say_why():
    x, w = tensors((64, 64), (64, 64))
    assert reasons(lambda x, w: torch.softmax(x @ w, -1), x, w)[1] == {"softmax": "whole-rows"}
    assert reasons(lambda x, w: (x @ w)[:, :32] * 2, x, w)[1] == {"mul": "other-points"}
    assert reasons(lambda x, w: (lambda y: y + y.t())(x @ w), x, w)[1] == {"add": "other-points"}
    off = Options(mode="max-autotune", target="cuda:90", fuse=False)
    assert set(reasons(lambda x, w: (x @ w).relu(), x, w, options=off)[1].values()) == {"fusion-off"}
    user = Options(mode="max-autotune", target="cuda:90", no_fuse=(("mm", "relu"),))
    assert reasons(lambda x, w: (x @ w).relu(), x, w, options=user)[1] == {"relu": "user"}


def test_what_is_no_product_of_ours():
    x, w = tensors((64, 8), (8, 64))
    assert not reasons(lambda x, w: (x @ w).relu(), x, w)[0]  # the sum is too short
    assert not reasons(lambda x, w: (x @ w).relu(), *tensors((64, 64), (64, 64), dtype=torch.float64))[0]
    v, u = tensors((1, 64), (64, 64))
    assert not reasons(lambda v, u: v @ u, v, u)[0]


def test_an_overwritten_operand_is_read_before():
    """The product may not run as late as a reader that follows a kernel overwriting its operand."""
    x, w, r = tensors((64, 64), (64, 64), (64, 64))

    def fn(x, w, r):
        y = x @ w
        out = y * r
        x.copy_(y.sum(0).expand(64, 64) + 1)
        return out

    program = fused(fn, x, w, r)
    ours = with_ours(program, "tiles")
    given = [item.clone() for item in (x, w, r)]
    got = run(groups_to_triton(ours, CHIP), given)
    torch.testing.assert_close(got[0], (x @ w) * r, rtol=2e-2, atol=2e-2)


def test_decisions_follow_the_choice():
    x, w = tensors((64, 64), (64, 64))
    program = fused(lambda x, w: (x @ w).relu(), x, w)
    (before,) = [item for item in program.decisions if item.producer == "g0.fw.c0"]
    assert not before.accepted and before.code == "library-call"
    (candidate,) = fusion.candidates(program, TUNED, "ieee")[0]
    assert candidate.saved == 2 * 64 * 64 * 2
    after = fusion.accepted(program, candidate, candidate.group, "it is faster")
    (decision,) = [item for item in after.decisions if item.producer == "g0.fw.c0"]
    assert decision.accepted and (decision.code, decision.reason) == ("epilogue", "it is faster")
    assert [type(item).__name__ for item in after.items] == ["Group"]
    assert "matrix product" in after.as_text()


# -- compiled for chips -----------------------------------------------------------------------------------


@few(1)
@pytest.mark.parametrize(
    ("chip", "expected"),
    [("cuda:90", "wgmma"), ("cuda:80", "mma.sync"), ("cuda:100", "tcgen05"), ("hip:gfx942", "v_mfma")],
)
def test_compiles_for(chip, expected):
    target = targets.parse(chip)
    inputs = [torch.empty(shape, dtype=BF16) for shape in ((512, 512), (512, 512), (512,))]
    program = fused(lambda x, w, b: F.relu(F.linear(x, w, b)), *inputs)
    (candidate,) = fusion.candidates(program, TUNED, "ieee")[0]
    able = templates(candidate.group, program.program.buffers(), target)
    assert able == (("tiles", "persistent") if chip in ("cuda:90", "cuda:100") else ("tiles",))
    for template in able:
        source = groups_to_triton(
            fusion.accepted(program, candidate, _with(candidate.group, template)), target
        )
        (built,) = triton_build.build(source, target).values()
        code = built.texts["ptx" if target.kind == "cuda" else "amdgcn"]
        assert expected in code
        assert built.shared_bytes <= target.shared_bytes
        if template == "persistent":
            assert "cp.async.bulk.tensor" in code and built.scratch_bytes > 0


def test_float32_is_multiplied_as_torch_is_told():
    inputs = [torch.empty(shape) for shape in ((256, 256), (256, 256))]
    program = fused(lambda x, w: F.relu(x @ w), *inputs)
    codes = {}
    for precision in ("ieee", "tf32"):
        source = groups_to_triton(with_ours(program, "tiles", precision), CHIP)
        (built,) = triton_build.build(source, CHIP).values()
        codes[precision] = built.texts["ptx"]
    assert "tf32" in codes["tf32"] and "tf32" not in codes["ieee"]


def test_tma_wants_aligned_rows():
    x, w = tensors((64, 60), (60, 64))  # rows of 120 bytes
    program = fused(lambda x, w: (x @ w).relu(), x, w)
    (candidate,) = fusion.candidates(program, TUNED, "ieee")[0]
    buffers = program.program.buffers()
    assert templates(candidate.group, buffers, CHIP) == ("tiles",)
    with pytest.raises(CodegenError, match="multiples of 16 bytes"):
        groups_to_triton(fusion.accepted(program, candidate, _with(candidate.group, "persistent")), CHIP)


def test_tma_gets_tensors_that_begin_at_16_bytes():
    x, w = tensors((64, 64), (64, 64))
    source = groups_to_triton(with_ours(fused(lambda x, w: (x @ w).relu(), x, w), "persistent"), CHIP)
    assert "k0_mm_relu(aligned(x), aligned(w), relu)" in source.wrapper
    off = torch.empty(64 * 64 + 3, dtype=BF16)[3:].view(64, 64).copy_(x)
    assert off.data_ptr() % 16
    moved = source_to_module.aligned(off)
    assert moved.data_ptr() % 16 == 0 and torch.equal(moved, x) and moved.stride() == x.stride()
    assert source_to_module.aligned(x) is x
    wide = torch.arange(200.0)[1:].as_strided((3, 5), (20, 2))  # with gaps
    assert torch.equal(source_to_module.aligned(wide), wide)
    assert source_to_module.aligned(wide).stride() == (20, 2)
    assert torch.equal(run(source, [off, w])[0], run(source, [x, w])[0])


@pytest.mark.parametrize("chip", ["cuda:90", "cuda:80", "hip:gfx942"])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_configs_fit_the_chip_and_the_product(chip, dtype):
    target = targets.parse(chip)
    for sizes in ((1, 4096, 4096, 4096), (1, 16, 8192, 4096), (64, 128, 64, 128)):
        found = configs_of(sizes, dtype, target)
        assert len(set(map(repr, found))) == len(found) >= 5
        for config in found:
            m, n, k = (config.constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
            stages = config.stages - (target.kind == "hip")
            assert stages * (m + n) * k * dtype.itemsize <= target.shared_bytes
    assert configs_of((1, 16, 8192, 4096), BF16, CHIP)[0].constants["BLOCK_M"] <= 32
    assert configs_of((1, 8192, 8192, 4096), BF16, CHIP)[0].constants["BLOCK_M"] >= 128
    assert persistent_configs((1, 8192, 8192, 4096), BF16, CHIP)[0].constants["BLOCK_N"] >= 128
