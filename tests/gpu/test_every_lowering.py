"""Every registered lowering, on all of its samples, as Triton kernels on a GPU of this machine.

Skipped where there is none: the same kernels run through the interpreter in tests/compiler/codegen.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils._pytree import tree_map

from nbcompile.compiler.lower.registry import registry
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options
from tests.compiler.codegen.c.test_every_lowering import graph_of_samples
from tests.compiler.codegen.running import compile_aten
from tests.compiler.lower.harness import compare

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
DEVICE = Options(cache=False, verify=True, random="eager")
DRAWN = {t for t in registry().lowerings if torch.Tag.nondeterministic_seeded in t.tags}


def on_gpu(graph: AtenGraph) -> AtenGraph:
    """The graph with every tensor of its metadata on the GPU."""

    def moved(value: object) -> object:
        if isinstance(value, torch.Tensor) and value._is_zerotensor():  # which torch 2.11 cannot move
            return torch._efficientzerotensor(value.shape, dtype=value.dtype, device="cuda")
        return value.to("cuda") if isinstance(value, torch.Tensor) else value

    for node in graph.module.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = tree_map(moved, node.meta["val"])
        if node.kwargs.get("device") is not None:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda")}
    return replace(graph, id=graph.id)


# Where several points name one element, which of them stays is left open, in torch as here; and what no
# integer can hold becomes the nearest one on a GPU, not the least as on the CPU.
OPEN = {
    torch.ops.aten.scatter.src, torch.ops.aten.index_put.default, torch.ops.aten._unsafe_index_put.default,
    torch.ops.aten.sum.dim_IntList,
}  # fmt: skip


@pytest.mark.parametrize(
    "target", [t for t, e in registry().lowerings.items() if e.samples and t not in DRAWN | OPEN], ids=str
)
def test_kernels_agree_with_eager(target):
    aten, inputs, eager, wide = graph_of_samples(registry().lowerings[target])
    aten = on_gpu(aten)
    run = compile_aten(aten, DEVICE)
    got = _on_cpu(run([item.cuda() for item in inputs]))
    for n, mine in enumerate(got):
        right = None if wide is None else wide[n : n + 1]
        try:
            compare([mine], eager[n : n + 1], right)
        except AssertionError:
            if right is None:
                raise
            # where numbers cancel, eager on the GPU is as far off as we may be
            theirs = _on_cpu(aten.module(*(item.cuda() for item in inputs)))
            theirs = theirs[n].double()
            off = (theirs - right[0]).abs().nan_to_num(0, 0, 0)
            most = 2 * float(off.max()) if off.numel() else 0.0
            # and what becomes of NaN is left open (gradients of elu): as eager's on the GPU
            wanted = torch.where(theirs.isnan() != right[0].isnan(), theirs, right[0])
            torch.testing.assert_close(mine.double(), wanted, rtol=2e-5, atol=most, equal_nan=True)


def _on_cpu(results):
    return [item.cpu() if isinstance(item, torch.Tensor) else item for item in results]
