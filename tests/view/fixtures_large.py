"""A record of a deep network, for the limits of the views."""

from __future__ import annotations

from nbcompile.record.compilation import Compilation, Decision, Graph, Guard, Kernel, Node, Span
from tests.view.fixtures_base import ENVIRONMENT, KERNEL_C


def large(count: int = 1000) -> Compilation:
    """A deep network: ``count`` captured ops in 24 blocks, most of them fused in twos, no cell."""
    fx = [Node("g0.fx.n0", "l_x_", "placeholder", "input", shape=(64, 256), dtype="float32", bytes=65536)]
    loops = [Node("g0.fw.l0", "x", "placeholder", "input", bytes=65536)]
    fused = [Node("g0.fw.i0", "x", "placeholder", "input", bytes=65536)]
    kernels, decisions = [], []
    per_block = max(1, count // 24)
    for i in range(1, count + 1):
        block, step = divmod(i - 1, per_block)
        part = ("attn", "attn.proj", "mlp.up", "mlp.act", "mlp.down", "norm")[step * 6 // per_block]
        module = f"model.layers.{block}.{part}"
        before = [f"g0.fx.n{i - 1}", *([f"g0.fx.n{i - 9}"] if i > 9 and i % 8 == 0 else [])]
        library = i % 6 == 0
        spans = (Span(10 + i % 30, file="model.py"),)
        fx.append(
            Node(
                f"g0.fx.n{i}",
                f"op_{i}",
                "torch.relu" if not library else "torch.nn.functional.linear",
                "compute",
                tuple(before),
                (),
                spans,
                (64, 256),
                "float32",
                None,
                65536,
                module,
            )
        )
        loops.append(
            Node(
                f"g0.fw.l{i}",
                f"op_{i}",
                "aten.addmm.default" if library else "relu",
                "library" if library else "pointwise",
                tuple(b.replace("fx.n", "fw.l") for b in before),
                (f"g0.fx.n{i}",),
                bytes=65536,
                module=module,
            )
        )
    owner, group = {"g0.fw.l0": "g0.fw.i0"}, []

    def flush() -> None:
        if group:
            id = f"g0.fw.k{len(kernels)}"
            sources = dict.fromkeys(owner[i] for n in group for i in n.inputs if i in owner)
            owner.update({n.id: id for n in group})
            fused.append(
                Node(
                    id,
                    f"relu_{len(kernels)}",
                    "relu",
                    "kernel",
                    tuple(sources),
                    tuple(n.id for n in group),
                    bytes=65536,
                    module=group[0].module,
                )
            )
            kernels.append(
                Kernel(
                    id,
                    f"relu_{len(kernels)}",
                    "g0.fw.fused",
                    tuple(n.id for n in group),
                    "pointwise",
                    {"c": KERNEL_C},
                    bytes_read=65536,
                    bytes_written=65536,
                )
            )
            group.clear()

    for node in loops[1:]:
        if node.kind == "library":
            flush()
            id = f"g0.fw.c{node.id.rsplit('l', 1)[-1]}"
            sources = dict.fromkeys(owner[i] for i in node.inputs if i in owner)
            owner[node.id] = id
            fused.append(
                Node(
                    id,
                    "addmm",
                    node.op,
                    "library",
                    tuple(sources),
                    (node.id,),
                    bytes=65536,
                    module=node.module,
                )
            )
        else:
            group.append(node)
            if len(group) == 2:
                flush()
        if len(loops) > 2 and node.inputs:
            decisions.append(
                Decision(
                    f"g0.fw.d{len(decisions)}",
                    "g0.fw.fused",
                    node.inputs[0],
                    node.id,
                    "producer-consumer",
                    len(decisions) % 2 == 0,
                    "same-shape",
                    "same shape, read once",
                    131072,
                )
            )
    flush()
    return Compilation(
        id="l1",
        environment=ENVIRONMENT,
        graphs=(
            Graph("g0.fx", "fx", "captured", tuple(fx), text="\n".join(f"{n.name} = {n.op}()" for n in fx)),
            Graph("g0.fw.loops", "loops", "loops", tuple(loops), text="\n".join(n.name for n in loops)),
            Graph("g0.fw.fused", "fused", "fused", tuple(fused)),
        ),
        kernels=tuple(kernels),
        decisions=tuple(decisions),
        compile_seconds=1.9,
        guards=tuple(Guard("g0", "TENSOR_MATCH", f"L['p{i}']", ("check",)) for i in range(1240)),
    )
