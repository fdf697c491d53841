"""A step's nodes as one jitted function, compiled by XLA for given shapes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from nbcompile.backends.xla.exchange import Order, device_for, inverse, memory_order, wide_types
from nbcompile.backends.xla.operators.pointwise import converted
from nbcompile.backends.xla.registry import Traced, dtype_name, lowerings
from nbcompile.backends.xla.split import XlaStep, unsupported
from nbcompile.compiler.stages import AtenGraph
from nbcompile.errors import BackendError, LoweringError, NbcompileError


@dataclass(frozen=True)
class XlaProgram:
    """A step compiled for one set of shapes. ``run`` takes the arrays of ``arrays`` in order, each with its
    axes in the order beside it, and returns a tuple of the step's results in theirs. ``numbers`` are the
    results that are Python numbers, known once the shapes are."""

    run: Any
    arrays: tuple[tuple[fx.Node, Order], ...]
    returned: tuple[tuple[fx.Node, Order], ...]
    numbers: Mapping[fx.Node, Any]
    stablehlo: str
    hlo: str


def compile_step(
    aten: AtenGraph,
    step: XlaStep,
    shapes: Mapping[fx.Node, tuple[int, ...]],
    numbers: Mapping[fx.Node, Any],
    device: torch.device,
    options: Mapping[str, Any],
) -> XlaProgram:
    """Trace and compile a step for ``shapes`` of the tensors it reads and these ``numbers``.

    BackendError, with the operator and its line, where a lowering has no form for its arguments or XLA
    refuses the program.
    """
    import jax

    place = device_for(device)
    arrays = tuple((node, _order(node)) for node in step.reads)
    step_traced = _StepFunction(aten, step, arrays, numbers)

    def function(*given: Any) -> tuple[Any, ...]:
        return step_traced(*given)

    function.__name__ = aten.id.replace(".", "_")
    sharding = jax.sharding.SingleDeviceSharding(place)
    with wide_types(), jax.default_device(place):
        given = [
            jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
                tuple(shapes[node][axis] for axis in order), _dtype_of(node), sharding=sharding
            )
            for node, order in arrays
        ]
        # XLA is not to skip the roundings to half types that the program asks for.
        flags = {"xla_allow_excess_precision": False, **options}
        try:
            lowered = jax.jit(function).lower(*given)
            compiled = lowered.compile(compiler_options=flags)
        except NbcompileError:
            raise
        except Exception as error:
            said = (str(error) or type(error).__name__).strip().splitlines()[0]
            raise BackendError(f"XLA refuses {aten.id}: {said}") from error
        return XlaProgram(
            compiled,
            arrays,
            tuple(step_traced.returned),
            step_traced.numbers,
            lowered.as_text(),
            compiled.as_text() or "",
        )


@dataclass
class _StepFunction:
    """What jax traces of a step: its arrays in, the arrays that it returns out. Tracing says which these are
    (``returned``, with their orders), and which results are numbers."""

    aten: AtenGraph
    step: XlaStep
    arrays: tuple[tuple[fx.Node, Order], ...]
    given: Mapping[fx.Node, Any]
    returned: list[tuple[fx.Node, Order]] = field(default_factory=list)
    numbers: dict[fx.Node, Any] = field(default_factory=dict)

    def __call__(self, *given: Any) -> tuple[Any, ...]:
        import jax.numpy as jnp

        known: dict[fx.Node, Any] = dict(self.given)
        for (node, order), array in zip(self.arrays, given, strict=True):
            known[node] = jnp.transpose(array, inverse(order))
        for node in self.step.xla:
            known[node] = _lowered(self.aten, node, known)
        out = []
        self.returned.clear()
        for node in self.step.returns:
            value = known[node]
            if isinstance(value, bool | int | float):
                self.numbers[node] = value
                continue
            order = _order(node)
            self.returned.append((node, order))
            out.append(jnp.transpose(value, order))
        return tuple(out)


def _lowered(aten: AtenGraph, node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    """The value of one node, in the scope of its name: XLA's texts carry it along."""
    import jax

    if node.op == "get_attr":
        return known[node]
    args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
    if node.target is operator.getitem:
        return operator.getitem(*args)
    lower = lowerings().get(node.target)
    if lower is None:  # arithmetic on sizes, in Python
        return _number(node, args)
    values = fx.map_arg(node.args, lambda each: each.meta.get("val"))
    try:
        with jax.named_scope(node.name):
            return _conformed(lower(Traced(node.meta["val"], values), *args, **kwargs), node.meta["val"])
    except LoweringError as error:
        raise unsupported(aten, node, error.message) from error
    except NbcompileError:
        raise
    except Exception as error:
        said = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise unsupported(aten, node, f"jax refuses it: {said}") from error


def _number(node: fx.Node, args: Sequence[Any]) -> Any:
    """A size of an array, or Python's own function of numbers."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is torch.ops.aten.sym_size:
        return args[0].shape[args[1]]
    if packet is torch.ops.aten.sym_numel:
        return args[0].size
    return node.target(*args)  # type: ignore[operator]


def _conformed(made: Any, recorded: Any) -> Any:
    """Results in the dtypes that the capture recorded of them."""
    if isinstance(recorded, tuple | list):
        return tuple(
            None if item is None or like is None else _conformed(item, like)
            for item, like in zip(made, recorded, strict=True)
        )
    return converted(made, dtype_name(recorded.dtype))


def _dtype_of(node: fx.Node) -> Any:
    import jax.numpy as jnp

    return jnp.dtype(dtype_name(node.meta["val"].dtype))


def _order(node: fx.Node) -> Order:
    value = node.meta["val"]
    return memory_order([_hint(step) for step in value.stride()], [_hint(n) for n in value.shape])


def _hint(value: Any) -> int:
    if type(value) is int:
        return value
    known = getattr(value.node, "hint", None)
    return int(known) if known is not None else 1
