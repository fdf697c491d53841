"""What samples of single operators cannot show: declared library calls, symbolic sizes, mixed dtypes,
and how many loops a composite becomes."""

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import LibraryCall, Loop
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.lower.registry import overload, registry
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options
from tests.compiler.lower.harness import as_list, call_graph

aten = torch.ops.aten


def lowered(target, *args, **kwargs):
    graph, inputs = call_graph(target, args, kwargs)
    return verify(aten_to_loops(graph, Options())), inputs


def symbolic(target, x, *rest):
    """The program of ``target(x, *rest)`` with every size of ``x`` symbolic."""
    graph = fx.Graph()
    mode = FakeTensorMode(shape_env=ShapeEnv())
    node = graph.placeholder("x")
    node.meta["val"] = mode.from_tensor(x, static_shapes=False)
    call = graph.call_function(target, (node, *rest))
    with mode:
        call.meta["val"] = target(node.meta["val"], *rest)
    graph.output((call,))
    module = fx.GraphModule(torch.nn.Module(), graph)
    ids = {item.name: item.name for item in graph.nodes}
    return verify(aten_to_loops(AtenGraph("g0.fw", "forward", module, ids), Options()))


def test_a_library_operator_has_a_reason_and_no_lowering():
    library = registry().library
    assert overload("mm") in library and overload("convolution") in library
    assert None not in library
    assert not [str(target) for target in library if target in registry().lowerings]
    assert all(library.values())


def test_a_library_call_is_not_a_fallback():
    program, _ = lowered(aten.mm.default, torch.ones(2, 30), torch.ones(30, 2))
    (call,) = program.statements
    assert isinstance(call, LibraryCall) and not call.fallback
    assert call.reason.startswith("matrix product")


def test_an_overload_no_torch_has_is_skipped():
    assert overload("this_is_not_an_operator") is None
    assert overload("add.ThisIsNotAnOverload") is None


@pytest.mark.parametrize(
    ("target", "rest"),
    [
        (aten.sum.dim_IntList, ([0],)),
        (aten.mean.dim, ([-1], True)),
        (aten.var.correction, ([1],)),
        (aten.argmax.default, ()),
        (aten._softmax.default, (-1, False)),
        (aten.linalg_vector_norm.default, (2, [0])),
    ],
    ids=str,
)
def test_one_program_serves_every_size(target, rest):
    program = symbolic(target, torch.randn(4, 6), *rest)
    assert not [s for s in program.statements if isinstance(s, LibraryCall)]
    for shape in ((4, 6), (3, 9)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(interpret(program, [x])[0], target(x, *rest))


def test_layer_norm_of_bfloat16_with_float32_weights():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 8, generator=g).bfloat16()
    weight, bias = torch.randn(8, generator=g), torch.randn(8, generator=g)
    program, inputs = lowered(aten.native_layer_norm.default, x, [8], weight, bias, 1e-5)
    got = interpret(program, inputs)
    want = aten.native_layer_norm(x, [8], weight, bias, 1e-5)
    assert got[0].dtype == torch.bfloat16
    torch.testing.assert_close(got[0], want[0], rtol=2e-2, atol=2e-2)
    # torch's own tracing says bfloat16 for the statistics that eager keeps in float32
    torch.testing.assert_close(got[1].float(), want[1], rtol=1e-2, atol=1e-2)


def test_batch_norm_of_bfloat16_keeps_running_statistics_in_float32():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 5, generator=g).bfloat16()
    running = [torch.randn(4, generator=g), torch.rand(4, generator=g)]
    args = (x, None, None, *running, True, 0.1, 1e-5)
    program, inputs = lowered(aten._native_batch_norm_legit_functional.default, *args)
    got, want = interpret(program, inputs), as_list(aten._native_batch_norm_legit_functional(*args))
    for mine, theirs in zip(got[3:], want[3:], strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_softmax_is_four_loops_with_the_names_a_person_would_give():
    program, _ = lowered(aten._softmax.default, torch.randn(4, 5), -1, False)
    assert [s.name for s in program.statements][:3] == ["max", "exp", "sum"]
    assert len(program.statements) == 4
    assert all(isinstance(s, Loop) for s in program.statements)


def test_a_window_too_large_to_unroll_is_a_visible_fallback():
    program, _ = lowered(aten.avg_pool2d.default, torch.randn(1, 1, 40, 40), [30, 30])
    (call,) = program.statements
    assert isinstance(call, LibraryCall) and call.fallback and "window of 30" in call.reason
