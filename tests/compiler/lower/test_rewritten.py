"""Each operator is made into loops in one place: torch rewrites it, or we lower it, and not both."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import LibraryCall
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.lower.registry import Sample, registry
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options
from tests.compiler.lower.harness import _wide, as_list, compare, fresh
from tests.compiler.lower.rewritten import SAMPLES
from tests.nightly import few, spaced

aten = torch.ops.aten
OPTIONS = Options()
TABLES = [
    decompositions(options) for options in (OPTIONS, Options(random="philox"), Options(target="cuda:90"))
]

# Rewritten by torch, and lowered all the same: one of several overloads of one lowering, what its copying
# form is made of, what a rewrite of ours puts in, or
# what torch composes on the CPU alone.
BOTH = {
    aten._unsafe_view.default, aten.detach.default, aten.reshape.default, aten.narrow.default,
    aten.unbind.int, aten.split.Tensor, aten.special_log_ndtr.default, aten._fused_rms_norm.default,
}  # fmt: skip
BY_US = {aten.native_dropout_backward.default}  # our rewrites of others leave some calls as they are


def rewritten_by_torch(target: Any) -> bool:
    """Whether no graph that AOTAutograd gives us can hold ``target``."""
    composed, *of_its_own = (
        torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), key)
        for key in ("CompositeImplicitAutograd", "CPU", "CUDA")
    )
    rewrites = [table.get(target) for table in TABLES]
    ours = any(getattr(each, "func", each).__module__.startswith("nbcompile") for each in rewrites if each)
    return (composed and not any(of_its_own)) or (all(rewrites) and (not ours or target in BY_US))


def test_what_torch_rewrites_has_no_lowering_of_ours() -> None:
    lowered = {target for target in registry().lowerings if rewritten_by_torch(target)}
    assert lowered <= BOTH, sorted(map(str, lowered - BOTH))


def traced(target: Any, sample: Sample) -> tuple[AtenGraph, list[torch.Tensor], Any, dict[str, Any]]:
    """(the graph of one call as torch rewrites it, its inputs, the arguments of the call)."""
    args, kwargs = sample.make(torch.Generator().manual_seed(0))
    flat, spec = tree_flatten((args, kwargs))
    places = [n for n, item in enumerate(flat) if isinstance(item, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> Any:
        given = dict(zip(places, tensors, strict=True))
        args, kwargs = tree_unflatten([given.get(n, item) for n, item in enumerate(flat)], spec)
        return target(*args, **kwargs)

    inputs = [flat[n] for n in places]
    module = make_fx(function, decompositions(OPTIONS), tracing_mode="fake")(*inputs)
    ids = {node.name: f"g0.fw.n{place}" for place, node in enumerate(module.graph.nodes)}
    return AtenGraph("g0.fw", "forward", module, ids), inputs, args, kwargs


@few(16)
@pytest.mark.parametrize("target", SAMPLES, ids=str)
def test_what_torch_rewrites_becomes_loops(target: Any, nightly: bool) -> None:
    assert rewritten_by_torch(target)
    for sample in SAMPLES[target] if nightly else spaced(SAMPLES[target], 6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph, inputs, args, kwargs = traced(target, sample)
            eager = as_list(target(*args, **kwargs))
            try:
                wide = as_list(
                    target(*map(_wide, args), **{key: _wide(item) for key, item in kwargs.items()})
                )
            except RuntimeError:  # the operator has no float64 version
                wide = None
        program = verify(aten_to_loops(graph, OPTIONS))
        called = [item for item in program.statements if isinstance(item, LibraryCall)]
        # an index into one number is read by no kernel, so only a library checks it
        assert not called or (target is torch.ops.aten.take.default and inputs[0].numel() == 1), sample.name
        compare(list(interpret(program, [fresh(item) for item in inputs])), eager, wide)
