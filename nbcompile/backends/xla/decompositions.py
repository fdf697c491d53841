"""The ATen graphs that XLA is given: what has no lowering is rewritten with torch's decompositions."""

from __future__ import annotations

import functools

import torch
from torch._decomp import decomposition_table, get_decompositions

from nbcompile.backends.xla.operators.composites import composites
from nbcompile.backends.xla.registry import lowerings, overload
from nbcompile.compiler.capture.decompositions import Table, core_table, drawing_as_eager
from nbcompile.compiler.capture.fx_to_aten import AtenForm
from nbcompile.options import Options

# Of the references in torch._refs those that we need: others come out in prims, which nothing here lowers.
_REFERENCES = (
    "native_layer_norm native_group_norm elu leaky_relu hardtanh prelu unfold diagonal_scatter "
    "as_strided_scatter linalg_vector_norm tril_indices triu_indices ldexp.Tensor"
).split()


@functools.cache
def _table() -> Table:
    literals = (torch.ops.aten.lift, torch.ops.aten.lift_fresh)  # tensors that the graph holds
    rewritten = {
        op: how
        for op, how in decomposition_table.items()
        if how.__module__.startswith("torch._decomp") and getattr(op, "overloadpacket", op) not in literals
    }
    named = [target for name in _REFERENCES if (target := overload(name)) is not None]
    table = core_table() | rewritten | get_decompositions(named) | composites()
    return drawing_as_eager({op: how for op, how in table.items() if op not in lowerings()})


def decompositions(options: Options) -> Table:
    """The table (shared: do not change it). ``options`` are ours, and have no say."""
    return _table()


FORM = AtenForm(decompositions=decompositions, ours=False)
