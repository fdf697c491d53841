"""Which captured graphs are looked for in the cache of whole graphs, and what its key holds beside torch's
own.

Torch's key has the captured graph's code, its inputs' dtypes, shapes and strides, the sources that Dynamo
names them by, torch's version and the settings of AOTAutograd and Inductor. What it leaves out, and this
compiler or the tracing goes by, is either in :func:`facts` or a reason in :func:`why_not`: a graph that is
not looked for is compiled as ever.
"""

from __future__ import annotations

import importlib.util
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _python_dispatch
from torch.utils._sympy.symbol import SymT, symbol_is_type

from nbcompile import tf32
from nbcompile.compiler.lower.registry import any_from_outside
from nbcompile.compiler.runtime.c.binary import BUILT
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.runtime.cache import key
from nbcompile.compiler.runtime.graph_cache import code_version
from nbcompile.compiler.stages import device_of, hint_of
from nbcompile.options import Options

_KNOWN = frozenset({"aten", "prims", "prim", "nbcompile"})
_BODIES = frozenset({"tag_activation_checkpoint"})
"""Higher-order operators whose graphs are a part of the code that torch makes its key of, and of nothing
else."""


def why_not(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> str:
    """Why a graph is not looked for, as the rest of a sentence; empty if it is."""
    if not options.cache or torch.compiler.config.force_disable_caches:
        return "no cache is wanted"
    if options.verify or options.rules:
        return "its passes are to run"
    if options.linear_cross_entropy == "always":
        return "it is rewritten before AOTAutograd sees it"
    if options.chip.is_gpu or options.interpret or device_of(module, inputs).type != "cpu":
        return "it is for a GPU"
    if any_from_outside():
        return "operators have lowerings of the program's own"
    return _of_inputs(inputs) or _of_code(module) or _of_sizes(inputs) or _around()


def facts(module: fx.GraphModule, inputs: Sequence[Any], options: Options) -> str:
    """A hash of what torch's key does not tell. ToolchainError without a C compiler."""
    toolchain = find_toolchain()
    return key(
        "whole graph", code_version(), importlib.util.MAGIC_NUMBER, torch.__version__, options.to_dict(),
        toolchain.fingerprint, toolchain.vector_math, toolchain.widest, BUILT,
        _memory(inputs), _sizes(), _settings(), [_annotated(node) for node in _nodes(module)],
    )  # fmt: skip


def _of_inputs(inputs: Sequence[Any]) -> str:
    """What comes in has to be plain: of other tensors the class decides what is traced, and no key knows its
    code."""
    for each in inputs:
        if isinstance(each, torch.Tensor):
            if type(each) not in (torch.Tensor, torch.nn.Parameter):
                return f"it is given a {type(each).__name__}"
            if each.layout != torch.strided or each.is_quantized or each.is_inference():
                return "it is given a tensor that is not an ordinary one"
        elif not isinstance(each, int | float | bool | torch.SymInt) and each is not None:
            return f"it is given a {type(each).__name__}"
    shown = _shown(inputs)
    often = Counter(shown)
    for place, each in zip(shown, inputs, strict=True):
        if isinstance(each, torch.Tensor) and often[place] > 1:
            pairs = zip(each.shape, each.stride(), strict=True)
            if any(stride == 0 and extent != 1 for extent, stride in pairs):
                return "it is given an expanded tensor whose memory another shows"
    return ""


def _of_code(module: fx.GraphModule) -> str:
    """A key is made of a graph's code: what it only names has to be torch's or ours."""
    if next(iter((*module.parameters(), *module.buffers())), None) is not None:
        return "it holds tensors"
    for node in _nodes(module):
        if node.meta.get("is_wrapped"):  # torch takes the program's word for what it does
            return "it calls a function of the program's own"
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            if str(node.target) not in _BODIES:
                return f"it calls {node.target}"
        elif isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            name = str(node.target).partition(".")[0]
            if name not in _KNOWN:
                return f"it calls an operator of {name}"
        elif node.op == "get_attr":
            held: Any = operator.attrgetter(str(node.target))(module)
            if not isinstance(held, fx.GraphModule):
                return "it holds what is no graph"
    return ""


def _of_sizes(inputs: Sequence[Any]) -> str:
    symbols = list(_symbols())
    if any(symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)) for symbol, _ in symbols):
        return "a size depends on data"
    shown = [place for place in _shown(inputs) if place >= 0]
    if symbols and len({*shown}) < len(shown):
        return "inputs of symbolic sizes show one memory"
    return ""


def _around() -> str:
    """What is at work around the compile, and has a say in what is traced or run."""
    context = torch._guards.TracingContext.try_get()
    if context is None:
        return "Dynamo is not tracing"
    if getattr(context, "ddp_optimizer_ctx", None) is not None:
        return "DDPOptimizer splits it"
    if _python_dispatch._get_current_dispatch_mode_stack() or torch._C._len_torch_function_stack():
        return "a mode watches operators"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "it is within a transform"
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "hooks take what is saved for backward"
    if torch._dynamo.compiled_autograd.compiled_autograd_enabled:
        return "autograd is compiled"
    if torch._functorch.config.bundled_autograd_cache or torch._dynamo.config.caching_precompile:
        return "torch keeps what is compiled itself"
    return ""


def _nodes(module: fx.GraphModule) -> Iterator[fx.Node]:
    for each in module.modules():
        if isinstance(each, fx.GraphModule):
            yield from each.graph.nodes


def _annotated(node: fx.Node) -> str:
    """What a program says of a part of itself (``torch.fx.traceback.annotate``)."""
    return repr(node.meta["custom"]) if "custom" in node.meta else ""


def _shown(inputs: Sequence[Any]) -> list[int]:
    """For each input the place of the first that shows the same memory; -1 for what is no tensor."""
    first: dict[int, int] = {}
    return [
        first.setdefault(each.untyped_storage()._cdata, place) if isinstance(each, torch.Tensor) else -1
        for place, each in enumerate(inputs)
    ]


def _memory(inputs: Sequence[Any]) -> list[Any]:
    """Which inputs show one memory, and where; how autograd sees each."""
    return [
        (place, repr(each))
        if not isinstance(each, torch.Tensor)
        else (
            place, type(each).__name__, each.storage_offset(), each.untyped_storage().nbytes(), each.is_leaf,
            each.requires_grad, each._is_view(), each.is_conj(), each.is_neg(), each.retains_grad,
            hasattr(each, "_dynamo_static_input_type"), _whole(each._base),
        )
        for place, each in zip(_shown(inputs), inputs, strict=True)
    ]  # fmt: skip


def _whole(base: torch.Tensor | None) -> Any:
    """How the tensor lies that one is a view of: of views that overlap AOTAutograd reads that tensor."""
    if base is None or base.layout != torch.strided or base.is_nested:
        return None
    return base.storage_offset(), tuple(base.shape), base.stride()


def _env() -> Any:
    context = torch._guards.TracingContext.try_get()
    return context.fake_mode.shape_env if context is not None and context.fake_mode is not None else None


def _symbols() -> Iterable[tuple[Any, Any]]:
    env = _env()
    return () if env is None else env.var_to_range.items()


def _sizes() -> list[str]:
    """The symbolic sizes that there are, what they may be and are now, and what is known of them: code is
    made for what they may be, and where there is a choice for what they are."""
    env = _env()
    if env is None:
        return []
    known = [
        f"{symbol} {bounds.lower} {bounds.upper} {hint_of(symbol, env)}" for symbol, bounds in _symbols()
    ]
    known += [str(guard.expr) for guard in env.guards]
    known += [f"{symbol} = {value}" for symbol, value in env.replacements.items()]
    return sorted(known)


def _settings() -> list[Any]:
    """Switches of torch that decide what is traced, beside those in its own key."""
    backends: Any = torch.backends
    deterministic: Any = torch.utils.deterministic
    autocast = [(device, torch.is_autocast_enabled(device)) for device in ("cpu", "cuda")]
    return [
        torch.get_num_threads(), tf32.products(), tf32.products_on_cuda(),
        torch.get_deterministic_debug_mode(),
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(), autocast,
        [str(torch.get_autocast_dtype(device)) for device, _ in autocast], torch.is_autocast_cache_enabled(),
        str(torch.get_default_dtype()), str(torch.get_default_device()),
        deterministic.fill_uninitialized_memory,
        backends.cuda.flash_sdp_enabled(), backends.cuda.mem_efficient_sdp_enabled(),
        backends.cuda.math_sdp_enabled(), backends.cuda.cudnn_sdp_enabled(),
        repr(torch._C._get_sdp_priority_order()), backends.mha.get_fastpath_enabled(),
        backends.mkldnn.enabled, backends.cudnn.enabled, backends.cpu.get_cpu_capability(),
    ]  # fmt: skip
