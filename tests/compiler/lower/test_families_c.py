"""Views, assembly, gathers and scatters beyond their samples: no loops for views, affine forms, symbolic
sizes, and cases that are left to ATen in the open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.loop_ir.expr import Guarded
from nbcompile.compiler.loop_ir.index import Axis, FloorDiv, Mod, Size, index
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, View
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.lower.operators.joining import MOST_PIECES
from nbcompile.compiler.lower.operators.shape import regroup
from nbcompile.compiler.lower.registry import registry
from nbcompile.compiler.lower.strides import contiguous_strides
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options
from tests.compiler.lower.harness import call_graph, check_sample, compare, fresh
from tests.nightly import few

aten = torch.ops.aten
VIEWS = [
    pytest.param(entry, sample, id=f"{target}-{sample.name}")
    for target, entry in registry().lowerings.items()
    if entry.lower.__module__ == "nbcompile.compiler.lower.operators.shape" and "_copy" not in str(target)
    for sample in entry.samples
]


def divisions(program: LoopProgram) -> list[Any]:
    """Every quotient and remainder in the program's loops and in the views it returns."""
    places = [place for item in program.outputs if isinstance(item, View) for place in item.index]
    for loop in program.statements:
        if isinstance(loop, Loop):
            places += [place for node in loop.body.walk() for place in node.indices()]
    return [atom for place in places for atom in place.atoms() if isinstance(atom, FloorDiv | Mod)]


def loops_of(target: Any, *args: Any, **kwargs: Any) -> tuple[LoopProgram, list[torch.Tensor]]:
    graph, inputs = call_graph(target, args, kwargs)
    return verify(aten_to_loops(graph, Options())), inputs


@pytest.mark.parametrize(("entry", "sample"), VIEWS)
def test_views_make_no_loops_and_stay_strided(entry, sample):
    if "lift.default" in str(entry.target):
        pytest.skip("fake tensors may say that its result has memory of its own")
    if "reshape.default" in str(entry.target):
        pytest.skip("reshape copies where no view can show the result")
    program = check_sample(entry, sample)
    computed = [item for item in program.statements if "bitcast" not in str(getattr(item, "body", ""))]
    assert computed == [], "but for the bits of another type"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((24, 5), (4, 6, 5)), ((24, 5), (2, 3, 4, 5)), ((4, 6, 5), (1, 4, 1, 6, 5)), ((120,), (4, 6, 5)),
        ((7, 24, 5), (7, 4, 6, 5)),
    ],
)  # fmt: skip
def test_splitting_and_keeping_dimensions_is_affine(old, new):
    new_axes = tuple(index(Axis(f"v{n}", size)) for n, size in enumerate(new))
    places = regroup(tuple(map(index, old)), tuple(map(index, new)), new_axes)
    assert not [atom for place in places for atom in place.atoms() if isinstance(atom, FloorDiv | Mod)]


def test_a_merge_divides_only_the_merged_dimensions():
    new = (index(7), index(24), index(5))
    places = regroup(
        tuple(map(index, (7, 4, 6, 5))), new, tuple(index(Axis(f"v{n}", e)) for n, e in enumerate(new))
    )
    assert [str(place) for place in places] == ["v0", "(v1//6)", "(v1%6)", "v2"]


def test_symbolic_dimensions_are_matched():
    rows, width = index(Size("s0", 7)), index(Size("s1", 6))
    old, new = (rows, width * 4, index(3)), (rows, width, index(4), index(3))
    axes = tuple(index(Axis(f"v{n}", extent)) for n, extent in enumerate(new))
    assert regroup(old, new, axes) == (axes[0], axes[1] * 4 + axes[2], axes[3])
    # sizes whose hints suggest a match that does not hold in general
    s = index(Size("s0", 4))
    old, new = (s, index(4)), (index(4), s)
    axes = tuple(index(Axis(f"v{n}", extent)) for n, extent in enumerate(new))
    linear = axes[0] * s + axes[1]
    assert regroup(old, new, axes) == (linear // 4, linear % 4)


def test_a_merged_view_of_memory_is_affine_again():
    x = Buffer(
        "x", tuple(map(index, (7, 4, 6))), contiguous_strides(tuple(map(index, (7, 4, 6)))), torch.float32
    )
    new = (index(28), index(6))
    axes = tuple(Axis(f"v{n}", extent) for n, extent in enumerate(new))
    merged = View(x, axes, regroup(x.shape, new, tuple(map(index, axes))))
    assert merged.strided() == ((index(6), index(1)), index(0))


@pytest.mark.parametrize(
    ("old", "new"), [((4, 6, 5), (6, 20)), ((4, 6, 5), (8, 15)), ((3, 8, 5), (4, 6, 5)), ((12, 10), (10, 12))]
)
def test_any_other_shape_of_contiguous_memory_is_affine(old, new):
    shape, axes = tuple(map(index, old)), tuple(Axis(f"v{n}", size) for n, size in enumerate(new))
    x = Buffer("x", shape, contiguous_strides(shape), torch.float32)
    shown = View(x, axes, regroup(shape, tuple(map(index, new)), tuple(map(index, axes))))
    assert shown.strided() == (contiguous_strides(tuple(map(index, new))), index(0))


def test_dimensions_of_one_element_have_the_strides_that_torch_gives():
    x = torch.randn(5, 3, 4)
    for target, args in (
        (aten.unsqueeze.default, (x, 0)),
        (aten.unsqueeze.default, (x, 1)),
        (aten.unsqueeze.default, (x.transpose(0, 2), 3)),
        (aten.slice.Tensor, (x, 2, 1, 2)),
        (aten.view.default, (x, [5, 1, 12, 1])),
        (aten.expand.default, (x[:, :1], [2, 5, 1, 4])),
    ):
        program, inputs = loops_of(target, *args)
        assert interpret(program, inputs)[0].stride() == target(*args).stride()


# -- regions --------------------------------------------------------------------------------------


def test_regions_are_guards_with_affine_indices():
    x, y = torch.randn(3, 5), torch.randn(4, 5)
    for target, args in (
        (aten.cat.default, ([x, y],)),
        (aten.constant_pad_nd.default, (x, [1, 2])),
        (aten.roll.default, (x, [1], [0])),
        (aten.tril.default, (x,)),
        (aten.slice_scatter.default, (x, y[:2], 0, 1, 3)),
        (aten.repeat.default, (x, [2, 3])),
        (aten.flip.default, (x, [0])),
    ):
        program, _ = loops_of(target, *args)
        (loop,) = program.statements
        assert not divisions(LoopProgram("g0", (), (loop,), (), {}, {})), target
        guards = [node for node in loop.body.walk() if isinstance(node, Guarded)]
        assert bool(guards) == (target.__name__.split(".")[0] not in ("repeat", "flip"))


def test_a_crop_has_no_guard():
    (loop,) = loops_of(aten.constant_pad_nd.default, torch.randn(4, 6), [-1, -2])[0].statements
    assert str(loop.body) == "x0[i, j + 1]"


# -- symbolic sizes -------------------------------------------------------------------------------


def split_and_join(x: torch.Tensor) -> torch.Tensor:
    left, right = x.split([1, x.shape[1] - 1], 1)
    return torch.cat([right, left * 2, x[:, ::2]], 1)


def attend(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2)
    return heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1)


SYMBOLIC: dict[str, Callable[..., Any]] = {
    "view": lambda x: x.view(-1, 4).t(),
    "heads": attend,
    "flatten": lambda x: x.transpose(0, 1).flatten(),
    "expand": lambda x: x.sum(0, keepdim=True).expand(x.shape) + x,
    "slices": lambda x: (x[1:, -2], x[:, 1:-1], x[-2:], x[: x.shape[0] - 1, 0, 2:]),
    "last": lambda x: x[-1, :, -1],
    "split": split_and_join,
    "stack": lambda x: torch.stack([x, x * 2], -1).view(x.shape[0], -1),
    "pad": lambda x: torch.nn.functional.pad(x, (1, x.shape[0], -1, 2), value=3.0),
    "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll((1, -1), (0, 2)) + x.roll(1, 1),
    "repeat": lambda x: x.repeat(2, 1, x.shape[0]),
    "interleave": lambda x: x.repeat_interleave(3, 1),
    "triangle": lambda x: x.tril(1) + x.triu(-1),
    "unfold": lambda x: x.unfold(0, 2, 1).unfold(1, 3, 2),
    "overwrite": lambda x: torch.slice_scatter(x, x[1:] * 2, 0, 1).select_scatter(x[:, 0], 1, -1),
    "index": lambda x: x[torch.arange(x.shape[0] - 1), :, -2],
    "gather": lambda x: x.gather(1, torch.zeros_like(x[:, :1], dtype=torch.int64)),
    "take": lambda x: x.take(torch.arange(5) * 2 - 6),
    "index_put": lambda x: x.index_put((torch.arange(2) - 2,), torch.ones(x.shape[2]), accumulate=True),
    "index_add": lambda x: x.index_add(1, torch.tensor([0, 2, 0]), x[:, :3], alpha=2),
    "scatter": lambda x: x.scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x),
}  # fmt: skip


def traced(function: Callable[..., Any], x: torch.Tensor) -> AtenGraph:
    """``function`` with symbolic sizes, as torch rewrites it for us."""
    rewrites = decompositions(Options())
    module = make_fx(torch.func.functionalize(function), rewrites, tracing_mode="symbolic")(x)
    return AtenGraph("g0.fw", "forward", module, {node.name: node.name for node in module.graph.nodes})


@few(6)
@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name):
    function = SYMBOLIC[name]
    graph = traced(function, torch.randn(5, 6, 4))
    program = verify(aten_to_loops(graph, Options()))
    fallbacks = [item for item in program.statements if isinstance(item, LibraryCall) and item.fallback]
    assert not fallbacks, fallbacks[0].reason
    for rows, columns in ((5, 6), (3, 9), (8, 5)):
        x = torch.randn(rows, columns, 4)
        expected = function(x)
        got = interpret(program, [x])
        compare(list(got), list(expected) if isinstance(expected, tuple) else [expected], None)


# -- left to ATen, in the open --------------------------------------------------------------------

X = torch.arange(24.0).reshape(4, 6)
MASK = X > 11
LEFT: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "mask-values": (aten.index_put.default, (X, [MASK], torch.zeros(12)), "mask"),
    "many-pieces": (
        aten.cat.default,
        ([X[:1] for _ in range(MOST_PIECES + 1)],),
        f"{MOST_PIECES + 1} tensors",
    ),
    "bits": (aten.view.dtype, (X.bfloat16(), torch.int16), "bits"),
    "gaps": (aten.as_strided.default, (X[:, ::2], [3, 2], [6, 2]), "gaps"),
    "beyond": (aten.as_strided.default, (X[:2], [3, 6], [6, 1]), "outside"),
    "frequency": (
        aten.embedding_dense_backward.default,
        (X, torch.tensor([1, 1, 0, 1]), 3, -1, True),
        "frequency",
    ),
    "complex": (aten.polar.default, (X, X), "no lowering"),
}


@pytest.mark.parametrize("name", LEFT)
def test_left_to_aten_with_a_reason_and_the_right_result(name):
    target, args, reason = LEFT[name]
    program, inputs = loops_of(target, *args)
    (call,) = [item for item in program.statements if isinstance(item, LibraryCall)]
    assert call.fallback and reason in call.reason
    results = interpret(program, [fresh(item) for item in inputs])
    compare(list(results), [target(*args)], None)
    # what a call returns has memory of its own: a view would outlive the buffer it shows
    assert not any(
        got.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
        for got in results
        for given in inputs
    )
