"""Convolutions channels-last: numbers, strides that a user sees, layouts inside, and the record."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import fx, nn

import nbcompile
from nbcompile import errors
from nbcompile.api import Compiled
from nbcompile.compiler.rewrite.images import channels_last as layout
from nbcompile.compiler.rewrite.images.convolutions import groups_of, is_convolution
from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from tests.compiler.capture.helpers import compiled, run_aten
from tests.compiler.rewrite.layout_nets import NETS, ConvNext, Residual
from tests.nightly import few

aten = torch.ops.aten
ALWAYS = {"channels_last": "always"}


class Graphs:
    """Compiles nothing, and keeps the graphs that came."""

    def __init__(self) -> None:
        self.seen: list[AtenGraph] = []

    def __call__(self, graph: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        self.seen.append(graph)
        return run_aten(graph, options, recorder)

    def nodes(self) -> Iterator[fx.Node]:
        for graph in self.seen:
            yield from graph.module.graph.nodes

    def convolutions(self) -> list[fx.Node]:
        return [node for node in self.nodes() if is_convolution(node)]

    def copies(self) -> list[fx.Node]:
        return [node for node in self.nodes() if node.target is aten.clone.default]

    def images(self, node: fx.Node) -> list[torch.Tensor]:
        """All 4-d and 5-d operands and results of a node."""
        values = [item.meta["val"] for item in node.all_input_nodes]
        result = node.meta["val"]
        values += result if isinstance(result, tuple) else [result]
        return [item for item in values if isinstance(item, torch.Tensor) and item.dim() > 3]


def _outputs(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, tuple) else [value]


def _close(got: torch.Tensor | None, wanted: torch.Tensor | None, tolerance: float) -> None:
    assert got is not None and wanted is not None
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)
    assert got.stride() == wanted.stride()


def _check(
    net: nn.Module, x: torch.Tensor, tolerance: float = 1e-8, grad: bool = True, **keywords: Any
) -> Compiled:
    """Hold a compiled net against eager: outputs, gradients, buffers, and all their strides."""
    net, other = copy.deepcopy(net), copy.deepcopy(net)
    run = compiled(other, **keywords)
    y = x.detach().clone().requires_grad_(grad)
    x = x.detach().clone().requires_grad_(grad)
    with torch.set_grad_enabled(grad):
        wanted, got = _outputs(net(x)), _outputs(run(y))
    for left, right in zip(got, wanted, strict=True):
        _close(left, right, tolerance)
    if grad:
        torch.manual_seed(3)
        weights = [torch.randn_like(item) for item in wanted]
        torch.autograd.backward(wanted, weights)
        torch.autograd.backward(got, weights)
        _close(y.grad, x.grad, tolerance)
        for left, right in zip(other.parameters(), net.parameters(), strict=True):
            _close(left.grad, right.grad, tolerance)
    for left, right in zip(other.buffers(), net.buffers(), strict=True):
        _close(left, right, tolerance)
    return run


@few(2)
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_numbers_and_strides_are_those_of_eager(name: str, grad: bool) -> None:
    torch.manual_seed(0)
    make, shape = NETS[name]
    graphs = Graphs()
    x, net, tolerance = torch.randn(shape), make(), 1e-4
    if name != "volume":  # ATen has no channels-last kernel for volumes of float64 on the CPU
        x, net, tolerance = x.double(), net.double(), 1e-8
    run = _check(net, x, tolerance, grad=grad, options=ALWAYS, compile_aten=graphs)
    assert run.ran_compiled, run.eager_reason
    found = graphs.convolutions()
    assert found
    for node in found:
        for value in graphs.images(node):
            assert layout._is_channels_last(value), (node.format_node(), value.stride())
    count = sum(node.target is aten.convolution.default for node in found)
    assert f"{count} convolutions run channels-last" in run.compilation.notes


@few(2)
@pytest.mark.parametrize("name", [name for name in NETS if name != "volume"])
def test_no_result_between_convolutions_is_copied(name: str) -> None:
    # Converted are: what comes in, a weight with several channels and pixels each, and what goes out.
    torch.manual_seed(0)
    make, shape = NETS[name]
    graphs = Graphs()
    never = Graphs()
    net = make().double().eval()
    for each, options in ((graphs, ALWAYS), (never, {"channels_last": "never"})):
        _check(net, torch.randn(shape).double(), grad=False, options=options, compile_aten=each)
    weights = [
        node for node in graphs.copies()
        if node.args[0].op == "placeholder"  # type: ignore[union-attr]
    ]  # fmt: skip
    # four corners that interpolation reads, each in the kernel that reads it
    others = [node.name for node in graphs.copies() if node not in weights and node.name[:5] != "index"]
    modules = [each for each in net.modules() if isinstance(each, nn.Conv2d | nn.ConvTranspose2d)]
    assert len(weights) <= len(modules) + 1
    assert len(others) <= len(never.copies()) + 1, others


def test_residual_net_has_exactly_the_copies_that_it_needs() -> None:
    graphs = Graphs()
    _check(Residual().double(), torch.randn(2, 3, 16, 16).double(), options=ALWAYS, compile_aten=graphs)
    names = [[node.name for node in graph.module.graph.nodes if node.target is aten.clone.default]
             for graph in graphs.seen]  # fmt: skip
    forward, backward = names
    assert sorted(forward) == [
        "primals_1_channels_last", "primals_2_channels_last", "primals_8_channels_last", "relu_1_as_traced",
    ]  # fmt: skip
    # the gradients of the image and of two weights; what they are made of was saved channels-last
    assert len(backward) == 3 and all(name.endswith("_as_traced") for name in backward)


def test_nothing_is_converted_that_is_channels_last_already() -> None:
    graphs = Graphs()
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3)).double()
    net.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).double().to(memory_format=torch.channels_last)
    _check(net, x, options=ALWAYS, compile_aten=graphs)
    assert not graphs.copies()


def test_auto_converts_small_images_for_a_gpu_only() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3))
    for options, converted in (
        ({}, False),
        ({"target": "cuda:90"}, True),
        ({"interpret": True}, True),
        ({"target": "cuda:90", "channels_last": "never"}, False),
        ({"target": "hip:gfx942"}, False),
        ({"channels_last": "always"}, True),
    ):
        graphs = Graphs()
        run = _check(net, torch.randn(2, 3, 8, 8), 1e-4, grad=False, options=options, compile_aten=graphs)
        assert bool(graphs.copies()) == converted, options
        record = run.compilation
        assert ("2 convolutions run channels-last" in record.notes) == converted
        steps = [step.note for step in record.passes if step.name == "channels last" and step.note]
        assert steps == (["2 convolutions run channels-last"] if converted else [])


def test_auto_leaves_groups_of_several_channels_and_float64() -> None:
    graphs = Graphs()
    net = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8)
    )
    options = {"target": "cuda:90"}
    x = torch.randn(2, 4, 10, 10)
    run = _check(net, x, 1e-4, options=options, compile_aten=graphs)
    assert "2 of 3 convolutions run channels-last" in run.compilation.notes
    for node in graphs.convolutions():
        grouped = groups_of(node)[0] == 2
        shapes = [value for value in graphs.images(node) if value.shape[1] > 1]
        assert all(value.is_contiguous() == grouped for value in shapes), node.format_node()
    graphs = Graphs()
    _check(net.double(), x.double(), options=options, compile_aten=graphs)
    assert not graphs.copies()


def test_groups_may_be_a_symbolic_number() -> None:
    """As many as an image has channels; the graph had run eagerly."""

    def blurred_twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        window = w.expand(x.size(1), 1, 5, 5).contiguous()
        once = torch.nn.functional.conv2d(x, window, padding=2, groups=x.size(1))
        return torch.nn.functional.conv2d(once.relu(), window, padding=2, groups=x.size(1)) + 1

    torch._dynamo.reset()
    compiled = nbcompile.compile(blurred_twice, dynamic=True)
    for channels in (3, 4):
        x, w = torch.randn(2, channels, 128, 128), torch.randn(5, 5)
        torch.testing.assert_close(compiled(x, w), blurred_twice(x, w), rtol=1e-4, atol=1e-4)
    assert compiled.compilation.kernels and not compiled.eager_reason


def test_never_and_graphs_without_convolutions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: Any) -> Any:
        raise AssertionError("a rewrite was begun")

    monkeypatch.setattr(layout, "_Rewrite", unwanted)
    x = torch.randn(2, 3, 8, 8).double()
    net = nn.Conv2d(3, 4, 3).double()
    run = _check(net, x, options={"channels_last": "never", "target": "cuda:90"})
    assert run.ran_compiled and not run.compilation.notes
    run = _check(nn.Linear(8, 4).double(), x, options=ALWAYS)
    assert run.ran_compiled and not run.compilation.notes
    run = _check(nn.Conv1d(3, 4, 3).double(), x[:, :, 0], options=ALWAYS)
    assert run.ran_compiled and not run.compilation.notes


@pytest.mark.nightly
def test_batches_of_any_size_share_one_graph() -> None:
    torch.manual_seed(0)
    graphs = Graphs()
    net = Residual().double()
    other = copy.deepcopy(net)
    run = compiled(other, options=ALWAYS, compile_aten=graphs, dynamic=True)
    for batch, side in ((2, 16), (5, 16), (3, 20)):
        x = torch.randn(batch, 3, side, side).double()
        left, right = (x.clone().requires_grad_() for _ in range(2))
        got, wanted = run(left), net(right)
        for each, expected in zip(got, wanted, strict=True):
            _close(each, expected, 1e-8)
        for pair in (got, wanted):
            (pair[0].square().sum() + pair[1].square().sum()).backward()
        _close(left.grad, right.grad, 1e-8)
    assert len(graphs.seen) == 2, "one forward and one backward graph"
    for node in graphs.convolutions():
        assert all(map(layout._is_channels_last, graphs.images(node))), node.format_node()


def _double(*modules: nn.Module) -> list[nn.Module]:
    return [module.double() for module in modules]


def test_outputs_that_share_memory_still_do() -> None:
    (conv,) = _double(nn.Conv2d(3, 4, 3))

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = conv(x)
        first, second = y.relu().split(2, 1)
        return y, y[:, 1:3], y.flatten(2), first, second

    x = torch.randn(2, 3, 6, 6).double()
    with torch.no_grad():
        wanted = f(x)
        got = compiled(f, options=ALWAYS)(x)
    for left, right in zip(got, wanted, strict=True):
        _close(left, right, 1e-8)
    got[0].zero_()
    assert not got[1].any() and not got[2].any()
    got[3].zero_()
    assert got[4].any()


def test_operators_that_see_strides_see_those_of_eager() -> None:
    (conv,) = _double(nn.Conv2d(3, 4, 3, bias=False))

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = conv(x)
        return y.relu().as_strided((3, 5), (7, 2), 1) * 2, y.clone().view(torch.int64)[:, :, 0].sum()

    x = torch.randn(2, 3, 6, 6).double()
    with torch.no_grad():
        got = compiled(f, options=ALWAYS)(x)
        wanted = f(x)
    _close(got[0], wanted[0], 1e-8)
    assert got[1].shape == wanted[1].shape


def test_sizes_that_depend_on_data_stay_the_same_symbols() -> None:
    (conv,) = _double(nn.Conv2d(3, 4, 3))

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = conv(x)
        places = torch.nonzero(y > 0)
        return places * 2, conv(y[:, :3])

    x = torch.randn(2, 3, 6, 6).double()
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = compiled(f, options=ALWAYS)
        for left, right in zip(run(x), f(x), strict=True):
            _close(left, right, 1e-8)
    assert run.ran_compiled, run.eager_reason
    assert any("channels-last" in note for note in run.compilation.notes)


def test_inputs_that_are_overwritten() -> None:
    (conv,) = _double(nn.Conv2d(3, 3, 1))

    def f(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        before = x.clone()
        x.mul_(2)
        state.copy_(conv(x))
        return conv(before).sum() + state.relu()

    x, state = torch.randn(2, 3, 4, 4).double(), torch.zeros(2, 3, 4, 4).double()
    y, other = x.clone(), state.clone()
    with torch.no_grad():
        _close(compiled(f, options=ALWAYS)(y, other), f(x, state), 1e-8)
    _close(y, x, 1e-8)
    _close(other, state, 1e-8)


def test_random_numbers_are_those_of_eager() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5), nn.Conv2d(4, 4, 3), nn.Dropout2d(0.5)).double()
    x = torch.randn(2, 3, 8, 8).double()
    run = compiled(copy.deepcopy(net), options=ALWAYS)
    torch.manual_seed(1)
    got = run(x)
    torch.manual_seed(1)
    _close(got.detach(), net(x).detach(), 1e-8)


def test_new_nodes_come_from_those_that_need_them() -> None:
    record = _check(Residual().double(), torch.randn(2, 3, 16, 16).double(), options=ALWAYS).compilation
    above = {"g0.joint": "g0.fx.", "g0.fw": "g0.joint.", "g0.bw": "g0.joint."}
    fx_ops = {node.id: node.op for node in record.graph("g0.fx").nodes}
    for id, prefix in above.items():
        ends = ("_channels_last", "_as_traced")
        new = [node for node in record.graph(id).nodes if node.name.endswith(ends)]
        assert new
        for node in new:
            assert node.origins and all(origin.startswith(prefix) for origin in node.origins), node
        if id == "g0.joint":
            made = {node.name: {fx_ops[origin] for origin in node.origins} for node in new}
            assert made["primals_1_channels_last"] == {"torch.conv2d"}
            assert made["relu_1_as_traced"] == {"torch.nn.functional.relu"}


def test_half_precision_under_autocast() -> None:
    graphs = Graphs()
    net = Residual()
    other = copy.deepcopy(net)
    run = compiled(other, options=ALWAYS, compile_aten=graphs)
    x = torch.randn(2, 3, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        (got, image), (wanted, other_image) = run(x), net(x)
    assert got.stride() == wanted.stride() and image.stride() == other_image.stride()
    torch.testing.assert_close(got, wanted, atol=0.1, rtol=0.1)
    got.float().sum().backward()
    for node in graphs.convolutions():
        assert all(map(layout._is_channels_last, graphs.images(node))), node.format_node()


def test_what_is_recomputed_for_backward_has_the_layout_of_what_was_thrown_away() -> None:
    from torch.utils.checkpoint import checkpoint

    class Thrifty(ConvNext):  # without running statistics, which eager updates twice
        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint(super().forward, x, use_reentrant=False)

    graphs = Graphs()
    net = Thrifty().double()
    run = _check(net, torch.randn(2, 3, 16, 16).double(), options=ALWAYS, compile_aten=graphs)
    assert run.ran_compiled, run.eager_reason
    assert sum(node.target is aten.convolution.default for node in graphs.convolutions()) > 3
    for node in graphs.convolutions():
        assert all(map(layout._is_channels_last, graphs.images(node))), node.format_node()


def test_an_operand_that_is_not_channels_last_comes_first() -> None:
    (first, second) = _double(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 3))

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = first, second
            self.mask = nn.Parameter(torch.rand(2, 4, 6, 6).double())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.mask * self.first(x)
            return self.second(
                x.permute(0, 2, 3, 1).reshape(-1, 4).relu().view(2, 6, 6, 4).permute(0, 3, 1, 2)
            )

    graphs = Graphs()
    _check(Masked(), torch.randn(2, 3, 6, 6).double(), options=ALWAYS, compile_aten=graphs)
    forward = graphs.seen[0].module.graph
    copies = [node.name for node in forward.nodes if node.target is aten.clone.default]
    # the product is channels-last for all who read it, so flattening its pixels copies nothing
    assert copies[2:] == ["mul_channels_last", "primals_5_channels_last"] and len(copies) == 4, copies


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["residual", "convnext", "unet"])
def test_kernels_agree_in_the_interpreter(name: str) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    make, shape = NETS[name]
    x = torch.randn(2, shape[1], 4, 4) if name == "unet" else torch.randn(2, 3, 8, 8)
    run = _check(make(), x, 1e-3, options={"interpret": True}, compile_aten=None)
    assert run.ran_compiled, run.eager_reason
    assert any("channels-last" in note for note in run.compilation.notes)
    assert run.compilation.kernels


def test_an_option_that_is_no_choice_is_refused() -> None:
    with pytest.raises(errors.OptionError, match="channels_last"):
        Options(channels_last="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", ["auto", "always"])
def test_a_weight_that_cudnn_finds_no_gradient_of_stays(choice: str) -> None:
    """Channels-last images and a transposed convolution of one pixel to one channel: on an H200 the weight's
    gradient was another number."""
    graphs = Graphs()
    options = {"target": "cuda:90", "channels_last": choice}
    net = nn.ConvTranspose2d(2, 1, 1, stride=2, bias=False)
    _check(net, torch.randn(3, 2, 4, 9), 1e-4, options=options, compile_aten=graphs)
    assert not graphs.copies()
    _check(nn.ConvTranspose2d(2, 1, 3), torch.randn(3, 2, 4, 9), 1e-4, options=options, compile_aten=graphs)
    assert graphs.copies()
