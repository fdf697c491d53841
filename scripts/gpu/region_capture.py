"""A net's forward and backward ATen graphs at full size, without any memory: weights are made on the
meta device, tracing runs on fake tensors.

The fake tensors are on the CPU, for autograd needs a device that this build of torch knows. What would be
different on a GPU is put right: attention is one flash-attention call, automatic mixed precision follows
the rules of CUDA's, and dropout stays one operator that draws inside the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from corpus_nets import Net, Spec
from regions import DTYPES, Region
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from nbcompile.compiler import passes
from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.capture.fx_to_aten import JOINT_PASSES
from nbcompile.compiler.rewrite.index_tensors import make_again, split
from nbcompile.compiler.stages import AtenGraph
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder

CPU = torch.device("cpu")
OPTIONS = Options(random="philox", target="cuda:90")

# What CUDA's autocast runs in the half type, and what in float32.
_HALF = {
    F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, torch.matmul, torch.bmm,
    torch.mm, torch.addmm, torch.baddbmm, torch.einsum, torch.Tensor.matmul, torch.Tensor.__matmul__,
    torch.Tensor.__rmatmul__, torch.Tensor.bmm, torch.Tensor.mm, F.prelu,
}  # fmt: skip
_WIDE = {
    F.layer_norm, F.group_norm, F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, F.cross_entropy,
    F.nll_loss, F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.kl_div, F.softplus, F.normalize, torch.exp,
    torch.log, torch.pow, torch.cumsum, torch.rsqrt, torch.norm, torch.prod, torch.Tensor.softmax,
    torch.Tensor.exp, torch.Tensor.log, torch.Tensor.pow, torch.Tensor.norm, torch.Tensor.sum, torch.sum,
}  # fmt: skip


class GpuAutocast(TorchFunctionMode):
    """Mixed precision by CUDA's rules, on whatever device the tensors are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _HALF:
            args, kwargs = _cast((args, kwargs), torch.bfloat16)
        elif func in _WIDE:
            args, kwargs = _cast((args, kwargs), torch.float32)
        return func(*args, **kwargs)


def _cast(values: Any, dtype: torch.dtype) -> Any:
    from torch.utils import _pytree

    def one(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.bfloat16)
        return value.to(dtype) if floating else value

    return _pytree.tree_map(one, values)


def _flash(q, k, v, mask=None, dropout_p=0.0, is_causal=False, scale=None, **more):  # type: ignore[no-untyped-def]
    """Any attention as the call of the library that a GPU makes; the mask does not change the graph."""
    call = torch.ops.aten._scaled_dot_product_flash_attention.default
    if k.shape[1] != q.shape[1]:  # grouped heads
        k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for each in (k, v))
    return call(q, k, v, dropout_p, is_causal, False, scale=scale)[0]


class as_compiled_on_a_gpu:  # noqa: N801 - a context manager, used as a word
    """Attention is flash attention, and models that look (for values, before they build a mask) are told
    that they are being compiled."""

    def __enter__(self) -> None:
        self.before = F.scaled_dot_product_attention, torch.compiler.is_compiling
        F.scaled_dot_product_attention = _flash
        torch.compiler.is_compiling = lambda: True

    def __exit__(self, *error: object) -> None:
        F.scaled_dot_product_attention, torch.compiler.is_compiling = self.before


def graphs_of_net(net: Net, mode: str) -> Iterator[AtenGraph]:
    """The ATen graphs of one net in one of its modes."""
    variant, _, precision = mode.rpartition(":")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    with torch.device("meta"):
        module = net.build().to(dtype)
        inputs = tuple(_input(spec, dtype) for spec in net.inputs)
    if variant == "last":
        module = module.to(memory_format=torch.channels_last)
        inputs = tuple(
            each.to(memory_format=torch.channels_last) if each.dim() == 4 else each for each in inputs
        )
    yield from graphs_of(
        f"{net.name}, {mode}", module, inputs, train=variant != "eval", autocast=precision == "amp"
    )


def _input(spec: Spec, dtype: torch.dtype) -> torch.Tensor:
    *shape, word = spec
    if word.startswith("int"):
        return torch.empty(shape, dtype=torch.int64)
    return torch.empty(shape, dtype={"bool": torch.bool, "f32": torch.float32}.get(word, dtype))


def graphs_of(
    name: str, module: nn.Module, inputs: tuple[torch.Tensor, ...], *, train: bool, autocast: bool = False
) -> Iterator[AtenGraph]:
    """The forward and (``train``) backward graphs of a module on the meta device that returns a loss."""
    from functorch.compile import aot_function, make_boxed_func

    mode = FakeTensorMode()
    module.train(train)

    def fake(tensor: torch.Tensor, wants_gradient: bool = False) -> torch.Tensor:
        made: torch.Tensor = FakeTensor(mode, tensor.detach().to("meta"), CPU)
        return made.requires_grad_() if wants_gradient else made

    parameters = {key: fake(each, train) for key, each in module.named_parameters()}
    buffers = {key: fake(each) for key, each in module.named_buffers()}
    arguments = [fake(each) for each in inputs]
    found: list[tuple[str, fx.GraphModule]] = []

    def keep(stage: str) -> Callable[..., Any]:
        def compiler(graph: fx.GraphModule, _: Any) -> Any:
            found.append((stage, graph))
            return make_boxed_func(graph)

        return compiler

    def partition(joint: fx.GraphModule, inputs: Any, **keywords: Any) -> Any:
        passes.run(JOINT_PASSES, joint, "g0.joint", passes.Setting(OPTIONS, Recorder(OPTIONS)))
        again = make_again(joint, keywords["num_fwd_outputs"])
        return split(joint, inputs, again, **keywords)

    def call(parameters: Any, buffers: Any, arguments: Any) -> Any:
        return torch.func.functional_call(module, {**parameters, **buffers}, tuple(arguments))

    compiled = aot_function(
        call, fw_compiler=keep("fw"), bw_compiler=keep("bw"), inference_compiler=keep("fw"),
        partition_fn=partition, decompositions=decompositions(OPTIONS),
        keep_inference_input_mutations=True,
    )  # fmt: skip
    with mode, as_compiled_on_a_gpu(), torch.set_grad_enabled(train):
        if autocast:
            with GpuAutocast():
                loss = compiled(parameters, buffers, arguments)
        else:
            loss = compiled(parameters, buffers, arguments)
        if train:
            loss.backward()
    for stage, graph in found:
        yield AtenGraph(
            id=f"g0.{stage}",
            stage="forward" if stage == "fw" else "backward",
            module=graph,
            ids={node.name: node.name for node in graph.graph.nodes},
            names={"": name},
        )


def graphs_of_region(region: Region) -> Iterator[AtenGraph]:
    """The graph of one region of the corpus at its own size, as our pipeline would get it."""
    function = region.function("cpu")
    with torch.device("meta"):
        inputs = tuple(
            torch.empty(shape, dtype=DTYPES[dtype])
            if strides is None
            else torch.empty_strided(shape, strides, dtype=DTYPES[dtype])
            for _, dtype, shape, strides, _ in region.inputs
        )

    yield from graphs_of(region.id, _Called(function), inputs, train=False)


class _Called(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)
