"""Records made by hand for the tests of the views: realistic in shape and size, made without torch."""

from __future__ import annotations

import dataclasses
from typing import Any

from nbcompile.record.compilation import (
    Accuracy,
    AutotuneChoice,
    Cell,
    Compilation,
    Decision,
    Graph,
    GraphBreak,
    Guard,
    Kernel,
    LineLink,
    Measurement,
    Node,
    PassRecord,
    Recompile,
    Span,
)
from tests.view.fixtures_base import ENVIRONMENT, KERNEL_C, MB, samples
from tests.view.fixtures_hostile import HOSTILE, hostile
from tests.view.fixtures_large import large

__all__ = ["HOSTILE", "MB", "failed", "hostile", "large", "samples", "transformer", "with_break"]

CELL = """%%compile --train
a = attn(x, x, x)[0]
h = norm1(x + a)
u = ff[0](h)
u = gelu(u)
u = ff[2](u)
y = norm2(h + u)
loss = y.pow(2).mean()
loss"""


def _span(line: int) -> tuple[Span, ...]:
    return (Span(line, 4, line, 16), Span(112, 8, 112, 30, "torch/nn/modules/transformer.py"))


def transformer(**changes: Any) -> Compilation:
    """A TransformerLayer's forward and backward: 23 captured ops, 4 + 3 kernels, library calls."""
    big, wide = 16 * 64 * 512 * 4, 16 * 64 * 2048 * 4
    row, rows = (16, 64, 512), (16, 64)
    fx_ops = [
        ("linear_qkv", "torch.nn.functional.linear", 2, "attn.in_proj", "library", ("x",)),
        ("unflatten", "torch.unflatten", 2, "attn", "view", ("linear_qkv",)),
        ("q", "operator.getitem", 2, "attn", "view", ("unflatten",)),
        ("k", "operator.getitem", 2, "attn", "view", ("unflatten",)),
        ("v", "operator.getitem", 2, "attn", "view", ("unflatten",)),
        ("sdpa", "torch.nn.functional.scaled_dot_product_attention", 2, "attn", "library", ("q", "k", "v")),
        ("transpose", "torch.transpose", 2, "attn", "view", ("sdpa",)),
        ("a", "torch.nn.functional.linear", 2, "attn.out_proj", "library", ("transpose",)),
        ("add", "operator.add", 3, "", "compute", ("x", "a")),
        ("h", "torch.nn.functional.layer_norm", 3, "norm1", "compute", ("add",)),
        ("u", "torch.nn.functional.linear", 4, "ff.0", "library", ("h",)),
        ("gelu", "torch.nn.functional.gelu", 5, "", "compute", ("u",)),
        ("u_2", "torch.nn.functional.linear", 6, "ff.2", "library", ("gelu",)),
        ("add_1", "operator.add", 7, "", "compute", ("h", "u_2")),
        ("y", "torch.nn.functional.layer_norm", 7, "norm2", "compute", ("add_1",)),
        ("pow_1", "Tensor.pow", 8, "", "compute", ("y",)),
        ("loss", "Tensor.mean", 8, "", "compute", ("pow_1",)),
    ]
    fx = [Node("g0.fx.n0", "l_x_", "placeholder", "input", shape=row, dtype="float32", bytes=big)]
    ids = {"x": "g0.fx.n0"}
    for name in (
        "attn_in_proj_weight",
        "attn_out_proj_weight",
        "norm1_weight",
        "norm1_bias",
        "ff_0_weight",
        "ff_0_bias",
        "ff_2_weight",
        "ff_2_bias",
        "norm2_weight",
        "norm2_bias",
    ):
        fx.append(
            Node(
                f"g0.fx.n{len(fx)}",
                f"l_self_parameters_{name}_",
                "placeholder",
                "input",
                shape=(512,),
                dtype="float32",
                bytes=2048,
            )
        )
    for name, op, line, module, kind, inputs in fx_ops:
        ids[name] = f"g0.fx.n{len(fx)}"
        fx.append(
            Node(
                ids[name],
                name,
                op,
                kind,
                tuple(ids[i] for i in inputs),
                (),
                _span(line),
                row,
                "float32",
                None,
                big,
                module,
                f"{name}: f32[16,64,512] = {op}({', '.join(inputs)})",
            )
        )
    aten = tuple(
        dataclasses.replace(
            n,
            id=n.id.replace("fx", "fw"),
            origins=(n.id,),
            spans=(),
            inputs=tuple(i.replace("fx", "fw") for i in n.inputs),
        )
        for n in fx
    )
    plan = [  # name, op, kind, inputs, origin, bytes, shape
        ("qkv", "aten.addmm.default", "library", ("x",), "linear_qkv", 3 * big, row),
        (
            "sdpa",
            "aten._scaled_dot_product_flash_attention_for_cpu.default",
            "library",
            ("qkv",),
            "sdpa",
            big,
            row,
        ),
        ("a", "aten.addmm.default", "library", ("sdpa",), "a", big, row),
        ("add", "add", "pointwise", ("x", "a"), "add", big, row),
        ("mean", "mean", "reduction", ("add",), "h", 4096, rows),
        ("var", "var", "reduction", ("add", "mean"), "h", 4096, rows),
        ("rsqrt", "rsqrt", "pointwise", ("var",), "h", 4096, rows),
        ("h", "mul, add", "pointwise", ("add", "mean", "rsqrt"), "h", big, row),
        ("u", "aten.addmm.default", "library", ("h",), "u", wide, (16, 64, 2048)),
        ("gelu", "gelu", "pointwise", ("u",), "gelu", wide, (16, 64, 2048)),
        ("u_2", "aten.addmm.default", "library", ("gelu",), "u_2", big, row),
        ("add_1", "add", "pointwise", ("h", "u_2"), "add_1", big, row),
        ("mean_1", "mean", "reduction", ("add_1",), "y", 4096, rows),
        ("var_1", "var", "reduction", ("add_1", "mean_1"), "y", 4096, rows),
        ("y", "mul, add", "pointwise", ("add_1", "mean_1", "var_1"), "y", big, row),
        ("pow_1", "pow", "pointwise", ("y",), "pow_1", big, row),
        ("loss", "mean", "reduction", ("pow_1",), "loss", 4, ()),
    ]
    loop_ids = {"x": "g0.fw.l0"}
    loops = [Node("g0.fw.l0", "x", "placeholder", "input", shape=row, dtype="float32", bytes=big)]
    for name, op, kind, inputs, origin, size, shape in plan:
        loop_ids[name] = f"g0.fw.l{len(loops)}"
        loops.append(
            Node(
                loop_ids[name],
                name,
                op,
                kind,
                tuple(loop_ids[i] for i in inputs),
                (ids[origin].replace("fx", "fw"),),
                (),
                shape,
                "float32",
                None,
                size,
            )
        )
    groups = [
        ("c0", "library", ("qkv",), ("x",)),
        ("c1", "library", ("sdpa",), ("c0",)),
        ("c2", "library", ("a",), ("c1",)),
        ("k0", "add_layer_norm", ("add", "mean", "var", "rsqrt", "h"), ("x", "c2")),
        ("c3", "library", ("u",), ("k0",)),
        ("k1", "bias_gelu", ("gelu",), ("c3",)),
        ("c4", "library", ("u_2",), ("k1",)),
        ("k2", "add_layer_norm_1", ("add_1", "mean_1", "var_1", "y"), ("k0", "c4")),
        ("k3", "pow_mean", ("pow_1", "loss"), ("k2",)),
    ]
    place = {"x": "g0.fw.i0"} | {short: f"g0.fw.{short}" for short, *_ in groups}
    fused = [Node("g0.fw.i0", "x", "placeholder", "input", shape=row, dtype="float32", bytes=big)]
    by_name = {name: (op, size) for name, op, _, _, _, size, _ in plan}
    kernels = []
    for short, name, members, inputs in groups:
        op, size = by_name[members[-1]]
        kind = "library" if name == "library" else "kernel"
        held = tuple(loop_ids[m] for m in members)
        fused.append(
            Node(
                place[short],
                op if kind == "library" else name,
                op if kind == "library" else name,
                kind,
                tuple(place[i] for i in inputs),
                held,
                (),
                row,
                "float32",
                None,
                size,
            )
        )
        if kind == "kernel":
            links = tuple(
                LineLink(line, (loop_ids[members[min(k, len(members) - 1)]],))
                for line, k in [(9, 0), (10, 1), (13, 1), (14, 2), (15, 3), (17, 4)]
            )
            kernels.append(
                Kernel(
                    place[short],
                    name,
                    "g0.fw.fused",
                    held,
                    "rows" if "norm" in name else "pointwise",
                    {"c": KERNEL_C},
                    links,
                    (),
                    inputs,
                    (name,),
                    2 * big,
                    size,
                    12 * big // 4,
                )
            )
    decisions = [
        ("add", "mean", True, "same-rows", "same rows; the sum never leaves the cache", big),
        ("mean", "var", True, "same-rows", "row kept on chip: one read instead of two", big),
        ("var", "rsqrt", True, "pointwise", "read where it is made", 8192),
        ("rsqrt", "h", True, "same-rows", "row kept on chip", 2 * big),
        ("add_1", "mean_1", True, "same-rows", "same rows; the sum never leaves the cache", big),
        ("mean_1", "var_1", True, "same-rows", "row kept on chip: one read instead of two", big),
        ("var_1", "y", True, "same-rows", "row kept on chip", 2 * big),
        ("gelu", "u_2", False, "library", "a library call reads it; no epilogue on this target", 2 * wide),
        ("y", "pow_1", False, "rows", "reduces over both axes; would serialise 1,024 rows", big),
        ("u", "gelu", False, "user", "asked for with --no-fuse u:gelu", wide),
    ]
    texts = {
        "fx": "\n".join(n.text for n in fx if n.text),
        "loops": "\n".join(
            f"{n.name}[i,j] = {n.op}({', '.join(i.split('.')[-1] for i in n.inputs)})" for n in loops[1:]
        ),
    }
    values: dict[str, Any] = {
        "id": "t1",
        "options": {"fuse": True, "no_fuse": [["u", "gelu"]]},
        "environment": ENVIRONMENT,
        "cell": Cell(CELL, "<ipython-input-7>", 7),
        "graphs": (
            Graph("g0.fx", "fx", "captured", tuple(fx), text=texts["fx"]),
            Graph("g0.fw", "forward", "forward", aten, saved=("add", "h"), parent="g0.fx", text=texts["fx"]),
            Graph("g0.fw.loops", "loops", "loops", tuple(loops), parent="g0.fw", text=texts["loops"]),
            Graph(
                "g0.fw.fused",
                "fused",
                "fused",
                tuple(fused),
                parent="g0.fw.loops",
                text="kernel add_layer_norm",
            ),
        ),
        "guards": tuple(
            Guard("g0", "TENSOR_MATCH", f"L['{n}']", (f"check_tensor(L['{n}'])",)) for n in "xwb"
        ),
        "decisions": tuple(
            Decision(
                f"g0.fw.d{i}",
                "g0.fw.fused",
                loop_ids[p],
                loop_ids[c],
                "producer-consumer",
                ok,
                code,
                why,
                saved,
                code == "user",
            )
            for i, (p, c, ok, code, why, saved) in enumerate(decisions)
        ),
        "kernels": tuple(kernels),
        "passes": (
            PassRecord("capture", "", "g0.fx", 61.2),
            PassRecord("autograd", "g0.fx", "g0.fw", 58.0),
            PassRecord("lower", "g0.fw", "g0.fw.loops", 9.1),
            PassRecord("fuse", "g0.fw.loops", "g0.fw.fused", 4.2),
            PassRecord("codegen", "g0.fw.fused", "g0.fw.source", 3.0),
            PassRecord("build", "g0.fw.source", "g0.fw.module", 55.4),
        ),
        "measurements": (
            Measurement("forward+backward", "eager", steady=samples(1, 2.26e-3), threads=2),
            Measurement(
                "forward+backward",
                "inductor",
                cold=3.3,
                warm=0.9,
                first=4e-3,
                steady=samples(2, 1.31e-3),
                threads=2,
            ),
            Measurement(
                "forward+backward",
                "nbcompile",
                cold=0.19,
                warm=0.02,
                first=1.4e-3,
                steady=samples(3, 0.98e-3),
                threads=2,
                graphs=1,
                kernels=4,
            ),
        ),
        "accuracy": (
            Accuracy("nbcompile", "loss", 4.0e-8, 5.0e-8, 1.2e-7),
            Accuracy("nbcompile", "grad x", 2.1e-7, 2.6e-7, 9.5e-7),
            Accuracy("inductor", "loss", 6.0e-8, 5.0e-8, 1.2e-7),
        ),
        "compile_seconds": 0.19,
    }
    return Compilation(**(values | changes))


def with_break() -> Compilation:
    """Two graphs around a print, a fallback op, and a recompile."""
    source = """%%compile
h = model.inp(x)
print(h.shape, h.mean().item())
z = torch.linalg.lu_factor(h @ h.T)[0]
z.sum()"""
    graphs: list[Graph] = []
    kernels = []
    for g, line in (("g0", 2), ("g1", 4)):
        fx = (
            Node(f"{g}.fx.n0", "l_x_", "placeholder", "input", shape=("s0", 256), dtype="float32"),
            Node(
                f"{g}.fx.n1",
                "mul",
                "operator.mul",
                "compute",
                (f"{g}.fx.n0",),
                (),
                (Span(line),),
                ("s0", 256),
                "float32",
                None,
                4096,
            ),
            Node(
                f"{g}.fx.n2",
                "lu",
                "torch.linalg.lu_factor",
                "compute",
                (f"{g}.fx.n1",),
                (),
                (Span(4 if g == "g1" else 2),),
                ("s0", 256),
                "float32",
                None,
                4096,
            ),
        )
        loops = (
            Node(f"{g}.fw.l0", "x", "placeholder", "input", shape=("s0", 256), bytes=4096),
            Node(f"{g}.fw.l1", "mul", "mul", "pointwise", (f"{g}.fw.l0",), (f"{g}.fx.n1",), bytes=4096),
            Node(
                f"{g}.fw.l2",
                "lu",
                "aten.linalg_lu_factor.default",
                "fallback" if g == "g1" else "library",
                (f"{g}.fw.l1",),
                (f"{g}.fx.n2",),
                bytes=4096,
                note="no lowering for linalg_lu_factor",
            ),
        )
        fused = (
            Node(f"{g}.fw.k0", "mul", "mul", "kernel", (), (f"{g}.fw.l1",), bytes=4096),
            Node(
                f"{g}.fw.c0",
                "lu",
                "aten.linalg_lu_factor.default",
                loops[2].kind,
                (f"{g}.fw.k0",),
                (f"{g}.fw.l2",),
                bytes=4096,
            ),
        )
        graphs += [
            Graph(f"{g}.fx", "fx", "captured", fx, text="mul = x * 2"),
            Graph(f"{g}.fw.loops", "loops", "loops", loops, parent=f"{g}.fx"),
            Graph(f"{g}.fw.fused", "fused", "fused", fused, parent=f"{g}.fw.loops"),
        ]
        kernels.append(
            Kernel(
                f"{g}.fw.k0",
                "mul",
                f"{g}.fw.fused",
                (f"{g}.fw.l1",),
                "pointwise",
                {"c": KERNEL_C},
                bytes_read=4096,
                bytes_written=4096,
            )
        )
    return Compilation(
        id="b1",
        environment=ENVIRONMENT,
        cell=Cell(source, execution_count=3),
        graphs=tuple(graphs),
        kernels=tuple(kernels),
        breaks=(
            GraphBreak(
                "Tensor.item() needs the value while tracing",
                "print h.mean() itself, or move the print after the cell",
                "data-dependent",
                "g0",
                (Span(3, 15, 3, 30),),
            ),
        ),
        recompiles=(Recompile("size of x at dim 0 changed: 32, then 64", "cell", "g0", (Span(2),)),),
        autotune=(
            AutotuneChoice("mul", "block 1024", 1.1e-5, True),
            AutotuneChoice("mul", "block 64", None, False, "failed: out of registers"),
        ),
        measurements=(
            Measurement("cell", "eager", steady=samples(4, 1.0e-3)),
            Measurement("cell", "nbcompile", cold=0.4, steady=samples(5, 1.24e-3)),
            Measurement("cell", "inductor", ran_compiled=False, reason="recompile limit reached"),
        ),
        compile_seconds=0.4,
    )


def failed() -> Compilation:
    """Nothing was compiled; the cell ran eagerly and the record says why."""
    return Compilation(
        id="f1",
        environment=ENVIRONMENT,
        cell=Cell("%%compile\nimport torch\ny = model(x)\ny.sum()", execution_count=9),
        notes=("No C compiler was found (tried cc, gcc, clang). Install one: pip install ziglang.",),
        measurements=(
            Measurement(
                "cell", "nbcompile", ran_compiled=False, reason="no C compiler was found; pip install ziglang"
            ),
        ),
    )
