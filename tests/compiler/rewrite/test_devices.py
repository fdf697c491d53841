"""CPU nodes of graphs that work on a GPU: which go there, which stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from nbcompile.compiler import other_devices
from nbcompile.compiler.codegen.wrapper import uses_out_variant
from nbcompile.compiler.loop_ir.nodes import LibraryCall, Loop, LoopProgram
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.rewrite import devices
from nbcompile.compiler.stages import AtenGraph
from nbcompile.errors import LoweringError
from nbcompile.options import Options

GPU = torch.device("cuda:0")
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def constants_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """There need be no GPU for a graph that is only looked at."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(devices, "_moved", lambda constant, device: constant)


def graph(function: Callable[..., Any], *inputs: tuple[tuple[int, ...], torch.dtype, str]) -> fx.GraphModule:
    """What AOTAutograd would make of ``function`` for inputs of these shapes, dtypes and devices."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        fakes = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in inputs]
    made = make_fx(torch.func.functionalize(function), tracing_mode="real")
    with mode:
        return made(*fakes)


def places(module: fx.GraphModule) -> dict[str, str]:
    return {
        node.name: value.device.type
        for node in module.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor)
    }


def lowered(module: fx.GraphModule) -> LoopProgram:
    return aten_to_loops(AtenGraph("g0.fw", "forward", module, {}), Options(target="cuda:90"))


def called(program: LoopProgram) -> list[str]:
    """What is called as itself for the devices of its tensors."""
    return [item.name for item in program.statements if isinstance(item, LibraryCall) and item.elsewhere]


def rows(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """``x[at]``, which Python's own indexing would ask a real GPU for."""
    found: torch.Tensor = aten.index.Tensor(x, [at])
    return found


X = ((4, 3), torch.float32, "cuda:0")
GOING: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "index": (lambda x: rows(x, torch.tensor([2, 0])), (X,)),
    "mask": (lambda x: x * (torch.arange(3) > 1).to(x.device), (X,)),
    "of a size": (lambda x: x + torch.linspace(0, 1, 3, device="cpu").to(x.device), (X,)),
    "input": (lambda x, at: rows(x, at), (X, ((2,), torch.int64, "cpu"))),
    "of an input": (lambda x, at: rows(x, at + 1), (X, ((2,), torch.int64, "cpu"))),
    "of a number": (lambda x, n: x * (torch.arange(3) > n).to(x.device), (X, ((), torch.int64, "cpu"))),
    "number": (lambda x, n: x * n, (X, ((), torch.float32, "cpu"))),
}
STAYING: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "returned": (lambda x: (x + 1, torch.arange(3)), (X,), ["aten.arange"]),
    "random": (lambda x: x + torch.rand(3, device="cpu").to(x.device), (X,), ["aten.rand", "aten._to_copy"]),
    "from the GPU": (
        lambda x: x.sin().cpu() + torch.arange(3), (X,), ["aten._to_copy", "aten.arange", "aten.add.Tensor"],
    ),
    "input returned": (
        lambda x, at: (rows(x, at).exp(), at + 1), (X, ((2,), torch.int64, "cpu")),
        ["aten.index.Tensor", "aten.add.Tensor"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOING)
def test_what_goes_to_the_gpu(name: str) -> None:
    module = graph(*_spread(GOING[name]))
    devices.gather(module)
    module.graph.lint()
    left = {key for key, place in places(module).items() if place == "cpu"}
    assert all(node.op == "placeholder" for node in module.graph.nodes if node.name in left), module.code
    assert not called(lowered(module))


@pytest.mark.parametrize("name", STAYING)
def test_what_stays_is_called_as_itself(name: str) -> None:
    function, inputs, calls = STAYING[name]
    module = graph(function, *inputs)
    results = [node.meta["val"].device for node in _returned(module)]
    devices.gather(module)
    assert [node.meta["val"].device for node in _returned(module)] == results
    program = lowered(module)
    assert called(program) == calls
    assert any(isinstance(item, Loop) for item in program.statements), "the GPU's part has loops"


def test_what_is_overwritten_elsewhere_leaves_the_graph_to_eager() -> None:
    module = graph(lambda x, at: (at.add_(1), rows(x, at))[1], X, ((2,), torch.int64, "cpu"))
    devices.gather(module)
    with pytest.raises(
        LoweringError, match="changes its argument self in place, and works with tensors of two"
    ):
        lowered(module)


def test_another_gpu_is_elsewhere_too() -> None:
    module = graph(
        lambda x, y: (x.sin() + y.to(x.device).cos(), y.exp()), X, ((4, 3), torch.float32, "cuda:1")
    )
    program = lowered(module)
    assert called(program) == ["aten._to_copy", "aten.exp"]
    assert [item.op for item in program.statements if isinstance(item, Loop)] == ["sin", "cos", "add"]


def test_products_elsewhere_are_no_kernels_and_have_memory_of_their_own() -> None:
    module = graph(lambda x: ((x.cpu() @ x.cpu().t()), x + 1), ((64, 64), torch.float16, "cuda:0"))
    program = lowered(module)
    call = next(
        item for item in program.statements if isinstance(item, LibraryCall) and item.name == "aten.mm"
    )
    assert call.elsewhere and not uses_out_variant(call)


def test_an_input_with_gaps_stays() -> None:
    """A copy on the GPU would have none, and kernels read by the strides of the input."""
    module = graph(lambda x, y: x + y.to(x.device), X, ((4, 3), torch.float32, "cpu"))
    node = [node for node in module.graph.nodes if node.op == "placeholder"][1]
    with node.meta["val"].fake_mode:
        node.meta["val"] = torch.empty_strided((4, 3), (6, 1))
    devices.gather(module)
    assert called(lowered(module)) == ["aten._to_copy"]


def test_a_graph_of_the_cpu_is_left_alone() -> None:
    module = graph(lambda x: rows(x, torch.tensor([2, 0])), ((4, 3), torch.float32, "cpu"))
    before = module.code
    devices.gather(module)
    assert module.code == before


def _spread(item: tuple[Callable[..., Any], tuple[Any, ...]]) -> tuple[Any, ...]:
    return item[0], *item[1]


def _returned(module: fx.GraphModule) -> list[fx.Node]:
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    found = output.args[0]
    return list(found) if isinstance(found, tuple | list) else [found]  # type: ignore[list-item]


def test_what_is_written_into_an_input_elsewhere_is_written_after_the_call() -> None:
    def step(x: torch.Tensor, count: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor]:
        count.add_(1)
        table.copy_(x.sum(0).cpu())
        return (x * count,)

    f32 = torch.float32
    module = graph(step, ((8, 4), f32, "cuda"), ((), f32, "cpu"), ((4,), f32, "cpu"))
    with pytest.raises(LoweringError, match="in place"):
        lowered(module)
    before = AtenGraph("g0.fw", "forward", module, {})
    after, written = other_devices.writing_last(before, GPU)
    assert written == (1, 2)
    assert [node.name for node in after.module.graph.nodes if "copy_" in str(node.target)] == []
    program = lowered(after.module)
    assert len(program.outputs) == 3 and called(program) and not program.updates
    assert other_devices.writing_last(after, GPU) == (after, ())

    x, count, table = torch.ones(8, 4), torch.tensor(2.0), torch.zeros(4)
    call = other_devices.writes(lambda args: (args[0] * 3, args[1] + 1, args[0].sum(0)), written)
    (result,) = call([x, count, table])
    assert torch.equal(result, x * 3) and count.item() == 3.0 and torch.equal(table, torch.full((4,), 8.0))


def test_a_number_that_is_used_on_both_devices_is_copied_for_the_gpu_alone() -> None:
    """One copy was given to all that reads it (fuzzer's seed 8060072): a call raised for its devices."""

    def function(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x / (n.abs() + 1), n.unsqueeze(-1).eq(torch.arange(6))

    module = graph(function, ((65,), torch.int64, "cuda"), ((), torch.int64, "cpu"))
    devices.gather(module)
    lies = places(module)
    read = {node.name: {lies[item.name] for item in node.all_input_nodes} for node in module.graph.nodes}
    assert read["abs_1"] == {"cuda"} and lies["abs_1"] == "cuda"
    assert read["unsqueeze"] == read["eq"] == {"cpu"} and lies["eq"] == "cpu"
