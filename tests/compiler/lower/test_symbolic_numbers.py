"""Symbolic sizes as operands, fill values and bounds: one program, many sizes."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import nbcompile
from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import LibraryCall
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options

aten = torch.ops.aten

FUNCTIONS = {
    "add": lambda x: x + x.shape[0],
    "alpha": lambda x: torch.add(x, x, alpha=x.shape[0]),
    "divide": lambda x: x / x.shape[1],
    "reversed": lambda x: x.shape[0] - x,
    "compare": lambda x: x < x.shape[0] - 4,
    "clamp": lambda x: aten.clamp(x, -1, x.shape[1] - 3),
    "full": lambda x: aten.full([x.shape[1]], x.shape[0]),
    "full_like": lambda x: aten.full_like(x, x.shape[0]),
    "arange": lambda x: aten.arange.start_step(0, x.shape[0] * 2, 2),
    "from_size": lambda x: aten.arange.start_step(x.shape[0], 0, -1),
    "real_arange": lambda x: aten.arange.start_step(0, x.shape[1], 1, dtype=torch.float32),
    "masked": lambda x: aten.masked_fill(x, x > 0, x.shape[1]),
    "eye": lambda x: aten.eye.m(x.shape[0], x.shape[1]),
    "power": lambda x: aten.pow.Scalar(x.shape[0], x),
    "empty": lambda x: aten.zeros([x.shape[0], 2 * x.shape[1]]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_symbolic_numbers(name):
    function = FUNCTIONS[name]
    module = make_fx(function, decompositions(Options()), tracing_mode="symbolic")(torch.randn(5, 6))
    ids = {node.name: f"g0.fw.n{n}" for n, node in enumerate(module.graph.nodes)}
    program = verify(aten_to_loops(AtenGraph("g0.fw", "forward", module, ids), Options()))
    assert not any(isinstance(item, LibraryCall) for item in program.statements)
    for shape in ((5, 6), (3, 11)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 5
        [got] = interpret(program, [x])
        torch.testing.assert_close(got, function(x))


def test_a_power_that_is_a_size():
    def function(x):
        return aten.pow.Tensor_Scalar(x, x.shape[0])

    module = make_fx(function, decompositions(Options()), tracing_mode="symbolic")(torch.randn(5, 6))
    ids = {node.name: f"g0.fw.n{n}" for n, node in enumerate(module.graph.nodes)}
    program = verify(aten_to_loops(AtenGraph("g0.fw", "forward", module, ids), Options()))
    x = torch.rand(3, 4)
    torch.testing.assert_close(interpret(program, [x])[0], x**3)


TRUTHS = {
    "a_tensor": lambda x: torch.tensor(x.shape[0] > 4),
    "chosen": lambda x: torch.where(x > 0, x.shape[0] > 4, False),
    "and": lambda x: (x > 0) & (x.shape[0] > 4),
    "filled": lambda x: torch.full((2,), x.shape[0] > 4),
    "in_a_list": lambda x: torch.tensor([x.shape[0] > 4, True]),
    "even": lambda x: torch.tensor(x.shape[0] % 2 == 0),
    "a_factor": lambda x: x * (x.shape[0] > 4),
    "of_data": lambda x: torch.full((2,), (x * 2).long().sum().item() > 9),
    "of_data_as_a_tensor": lambda x: torch.tensor((x * 2).long().sum().item() > 9),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_a_comparison_of_sizes_is_true_where_it_is(name):
    """It was true as any object is."""
    function = TRUTHS[name]
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run = nbcompile.compile(function, dynamic=True, options={"cache": False})
        for size in (3, 4, 5, 6, 7):
            assert torch.equal(run(torch.ones(size)), function(torch.ones(size)))
    assert run.ran_compiled, run.eager_reason
