"""Records of code for a GPU, made by hand around texts that Triton compiled (or canned ones)."""

from __future__ import annotations

import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

from nbcompile.record.compilation import (
    AutotuneChoice,
    Cell,
    Compilation,
    Decision,
    Graph,
    Kernel,
    Launched,
    LineLink,
    Node,
    PassRecord,
    Span,
)
from nbcompile.record.roofline import predicted_seconds
from nbcompile.targets import parse
from tests.view.fixtures_base import ENVIRONMENT

CELL = """%%compile --target cuda:90
y = x @ w
z = torch.softmax(y, -1) * 2
z"""

TRITON = """import triton
import triton.language as tl


# cell line 3: z = torch.softmax(y, -1) * 2
@triton.jit
def softmax_mul(y, z, cols: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, block)
    inside = j < cols
    values = tl.load(y + row * cols + j, mask=inside, other=float("-inf")).to(tl.float32)
    m = tl.max(values, 0)
    e = tl.exp(values - m)
    s = tl.sum(e, 0)
    tl.store(z + row * cols + j, (e / s * 2).to(tl.bfloat16), mask=inside)
"""

PTX = """//
.version 8.7
.visible .entry softmax_mul(
\t.param .u64 .ptr .global .align 1 softmax_mul_param_0
)
{
$L__func_begin0:
\t.loc\t1 7 0                           // kernels.py:7:0
// %bb.0:
\tld.param.b64 \t%rd33, [softmax_mul_param_0];
\t.loc\t1 8 24                          // kernels.py:8:24
\tmov.u32 \t%r9, %ctaid.x;
$L__tmp1:
\t.loc\t2 170 27                        // standard.py:170:27 @[ standard.py:191:40 @[ kernels.py:12:23 ] ]
\tmax.f32 \t%r1, %r2, %r3;
\tret;
}
\t.section\t.debug_abbrev
\t{
.b8 1
\t}
"""

SASS = """
\tcode for sm_90a
\t\tFunction : softmax_mul
\t.headerflags\t@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;          /* 0x00000a00ff017b82 */
                                                                   /* 0x000e220000000800 */
        /*0010*/                   EXIT ;                          /* 0x000000000000794d */
"""

TTIR = """#loc = loc("kernels.py":7:0)
module {
  tt.func public @softmax_mul(%y: !tt.ptr<bf16> loc("y"(#loc))) attributes {noinline = false} {
    %row = tt.get_program_id x : i32 loc(#loc31)
    ^bb0(%m_10: f32 loc(callsite(#loc1 at #loc38)), %m_11: f32 loc(callsite(#loc1 at #loc38))):
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""

LLIR = """; ModuleID = 'LLVMDialectModule'
source_filename = "LLVMDialectModule"

define ptx_kernel void @softmax_mul(ptr addrspace(1) %0) #0 !dbg !4 {
  %2 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !7
  ret void, !dbg !33
}

; Function Attrs: nounwind
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #1

attributes #0 = { nounwind }

!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1)
"""
CANNED = {"triton": TRITON, "ttir": TTIR, "ttgir": TTIR, "llir": LLIR, "ptx": PTX, "sass": SASS}


@functools.cache
def compiled_texts(target: str, folder: str) -> dict[str, str]:
    """What Triton makes of :data:`TRITON` for a chip, by kind. ``folder`` is for the source file."""
    import importlib.util

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    chip = parse(target)
    path = Path(folder) / "softmax_kernels.py"
    path.write_text(TRITON)
    spec = importlib.util.spec_from_file_location("softmax_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    signature = {"y": "*bf16", "z": "*bf16", "cols": "constexpr", "block": "constexpr"}
    source = ASTSource(fn=module.softmax_mul, signature=signature, constexprs={"cols": 4000, "block": 4096})
    arch: Any = int(chip.arch) if chip.kind == "cuda" else chip.arch
    made = triton.compile(source, target=GPUTarget(chip.kind, arch, chip.warp), options={"num_warps": 8})
    texts = {name: text for name, text in made.asm.items() if isinstance(text, str) and name != "source"}
    return {"triton": TRITON, **texts}


def gpu(texts: dict[str, str] | None = None, target: str = "cuda:90", **changes: Any) -> Compilation:
    """A product and a softmax, compiled for a chip that is not here."""
    size = 8192 * 4000 * 2
    kernel = Kernel(
        "g0.fw.k0", "softmax_mul", "g0.fw.fused", ("g0.fw.l0", "g0.fw.l1", "g0.fw.l2", "g0.fw.l3"), "rows",
        CANNED if texts is None else texts,
        tuple(LineLink(line, ("g0.fw.l0",)) for line in range(11, 16)),
        (), ("y",), ("z",), size, size, 8192 * 4000 * 5, target,
        (Launched("softmax_mul", (8192,), {"cols": 4000, "block": 4096}, 8, 1, 40, 64, 0),),
        predicted_seconds(2 * size, 8192 * 4000 * 5, parse(target)),
    )  # fmt: skip
    spans = (Span(3, 4, 3, 20),)
    loops = tuple(
        Node(f"g0.fw.l{n}", name, "loop", "reduction" if n in (0, 2) else "pointwise",
             (f"g0.fw.l{n - 1}",) if n else ("g0.fw.c0",), ("g0.fx.n1",), spans, (8192, 4000), "float32",
             None, size)
        for n, name in enumerate(("m", "e", "s", "z"))
    )  # fmt: skip
    product = Node("g0.fw.c0", "mm", "aten.mm.default", "library", (), ("g0.fx.n0",), (Span(2, 4, 2, 9),),
                   (8192, 4000), "bfloat16", None, size)  # fmt: skip
    fx = (
        Node("g0.fx.n0", "matmul", "operator.matmul", "compute", (), (), (Span(2, 4, 2, 9),), (8192, 4000),
             "bfloat16", None, size),
        Node("g0.fx.n1", "softmax", "torch.softmax", "compute", ("g0.fx.n0",), (), spans, (8192, 4000),
             "bfloat16", None, size),
    )  # fmt: skip
    fused = (product, Node("g0.fw.k0", "softmax_mul", "softmax_mul", "kernel", ("g0.fw.c0",),
                           tuple(loop.id for loop in loops), spans, (8192, 4000), "bfloat16", None,
                           size))  # fmt: skip
    fields: dict[str, Any] = {
        "id": "gpu",
        "options": {"target": target},
        "environment": dataclasses.replace(ENVIRONMENT, triton="3.6.0", compiler=""),
        "cell": Cell(CELL, "<cell>", 5),
        "graphs": (
            Graph("g0.fx", "fx", "captured", fx),
            Graph("g0.fw.loops", "loops", "loops", (product, *loops), parent="g0.fw"),
            Graph("g0.fw.fused", "fused", "kernels", fused, parent="g0.fw.loops"),
        ),
        "decisions": tuple(
            Decision(f"g0.fw.d{n}", "g0.fw.fused", f"g0.fw.l{n}", f"g0.fw.l{n + 1}", "producer-consumer",
                     True, "same-rows", "same rows", size) for n in range(3)
        ),
        "kernels": (kernel,),
        "passes": (
            PassRecord("capture", "", "g0.fx", 21.0), PassRecord("lower", "g0.fw", "g0.fw.loops", 1.2),
            PassRecord("fuse", "g0.fw.loops", "g0.fw.fused", 0.8),
            PassRecord("codegen", "g0.fw.fused", "g0.fw.source", 1.9),
            PassRecord("build", "g0.fw.source", "g0.fw", 310.0),
        ),
        "compile_seconds": 0.335,
        "execution": "eager",
    }  # fmt: skip
    return Compilation(**{**fields, **changes})


def many(count: int, *, measured: bool = False, target: str = "cuda:90") -> Compilation:
    """``count`` kernels of many sizes and intensities, the last one with no operations; no texts."""
    draw = random.Random(count)
    kernels = []
    for n in range(count):
        moved = int(10 ** draw.uniform(4, 9))
        flops = 0 if n == count - 1 else int(moved * 10 ** draw.uniform(-1.3, 1.2))
        limit = predicted_seconds(moved, flops, parse(target), launches=1)
        assert limit is not None
        kernels.append(
            Kernel(f"g0.fw.k{n}", f"kernel_{n}", "g0.fw.fused", (), "rows", {}, bytes_read=moved // 2,
                   bytes_written=moved - moved // 2, flops=flops, target=target, predicted_seconds=limit,
                   seconds=limit * draw.uniform(1.0, 2.5) if measured else None)
        )  # fmt: skip
    return Compilation("many", options={"target": target}, kernels=tuple(kernels), execution="compiled")


def searched(count: int) -> Compilation:
    """A record whose kernel was chosen among ``count`` candidates, one of which failed."""
    choices = [
        AutotuneChoice("g0.fw.k0", f"block={64 << n % 7} warps={1 << n % 5}", 1e-5 * (1 + n * 0.1), n == 2)
        for n in range(count - 1)
    ]
    failed = AutotuneChoice("g0.fw.k0", "block=65536 warps=32", None, note="out of shared memory")
    return gpu(autotune=(failed, *reversed(choices)), execution="compiled")
