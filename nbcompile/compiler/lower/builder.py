"""The builder: what lowerings call to add loops and library calls to the program being made.

Lowerings never see memory: they say what each element is. A tensor is a
:class:`~nbcompile.compiler.loop_ir.nodes.View`; reading element ``(i, j)`` of it gives an expression.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

from nbcompile.compiler.loop_ir.computed_sizes import DrawCounter
from nbcompile.compiler.loop_ir.expr import Expr, Number, SizeNumber, as_held, compute_dtype, scalar
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Axis, Index, IndexExpr, floordiv, index, product
from nbcompile.compiler.loop_ir.nodes import (
    Buffer,
    LibraryCall,
    Loop,
    ReductionKind,
    ScanKind,
    ScatterMode,
    Statement,
    View,
)
from nbcompile.compiler.lower.constant_folding import FoldedTensors
from nbcompile.compiler.lower.sizes import SizeTable
from nbcompile.compiler.lower.strides import contiguous_strides, dense_in_order, is_dense
from nbcompile.errors import LoweringError, SymbolicSizeError
from nbcompile.options import Options

NATIVE_DTYPES = frozenset(
    {
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool,
        torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
    }
)  # fmt: skip

Operand = View | Number | IndexExpr | SizeNumber
_NAMES = "ijklmnopqrstuvwxyz"
CPU_DEVICE = torch.device("cpu")


class Builder:
    """Collects the statements of one graph. ``result`` is the fake result of the node being lowered:
    it says which shape, dtype and strides the lowering must produce."""

    def __init__(
        self, graph: str, sizes: SizeTable, options: Options, device: torch.device = CPU_DEVICE
    ) -> None:
        self.graph = graph
        self.device = device  # where the graph works: new tensors are made there
        self.sizes = sizes
        self.options = options
        self.statements: list[Statement] = []
        self.updates: dict[str, str] = {}  # input → the buffer with what it holds afterwards
        self.folded = FoldedTensors()
        self.result: Any = None
        self.origins: tuple[str, ...] = ()
        self.op = ""
        self._hint = ""
        self._names: set[str] = set()
        self._seed: View | None = None
        self._random_blocks, self._draws = ZERO, 0
        self._counter = itertools.count()

    # -- where we are -------------------------------------------------------------------------

    def begin(self, name: str, op: str, origins: tuple[str, ...], result: Any) -> None:
        """Start lowering the node ``name``: following statements are named after it."""
        self._hint, self.op, self.origins, self.result = name, op, origins, result

    def fresh(self, hint: str = "") -> str:
        """A buffer name not used yet, built on ``hint`` or the node's name."""
        base = name = hint or self._hint
        for number in itertools.count(1):
            if name not in self._names:
                break
            name = f"{base}_{number}"
        self._names.add(name)
        return name

    def take_name(self, name: str) -> None:
        self._names.add(name)

    def size(self, value: Any) -> IndexExpr:
        """An int, SymInt or IndexExpr as an IndexExpr."""
        return self.sizes.to_index(value)

    def number(self, value: Any) -> IndexExpr | SizeNumber:
        """A SymInt as an IndexExpr, a SymFloat as what computes it."""
        return self.sizes.to_number(value) if isinstance(value, torch.SymFloat) else self.size(value)

    def shape(self, value: torch.Tensor) -> tuple[IndexExpr, ...]:
        """Shape of a fake tensor."""
        return tuple(self.size(extent) for extent in value.shape)

    def result_dtype(self, output: int = 0) -> torch.dtype:
        """dtype of (output number ``output`` of) the node's result."""
        return self._result(output).dtype

    def result_shape(self, output: int = 0) -> tuple[IndexExpr, ...]:
        return self.shape(self._result(output))

    def _result(self, output: int) -> torch.Tensor:
        value = self.result[output] if isinstance(self.result, tuple | list) else self.result
        if not isinstance(value, torch.Tensor):
            raise LoweringError(f"{self.op} has no tensor result number {output}")
        return value

    # -- axes and buffers ---------------------------------------------------------------------

    def axes(self, shape: Sequence[IndexExpr], skip: int = 0) -> tuple[Axis, ...]:
        """One axis per extent, named i, j, k ...; ``skip`` starts later in the alphabet."""
        names = [_NAMES[n % 18] + (str(n // 18) if n >= 18 else "") for n in range(skip, skip + len(shape))]
        return tuple(Axis(name, extent) for name, extent in zip(names, shape, strict=True))

    def buffer(
        self,
        shape: Sequence[IndexExpr],
        dtype: torch.dtype,
        *,
        name: str = "",
        strides: Sequence[IndexExpr] | None = None,
    ) -> Buffer:
        """A new buffer; contiguous unless ``strides`` are given. Refuses dtypes we have no loops for."""
        check_dtype(dtype)
        if strides is None:
            strides = contiguous_strides(shape)
        return Buffer(self.fresh(name), tuple(shape), tuple(strides), dtype)

    def result_strides(self, shape: Sequence[IndexExpr], output: int = 0) -> tuple[IndexExpr, ...] | None:
        """Strides for the node's result, if ``shape`` is its shape: its own, but for gaps."""
        value = self.result
        if isinstance(value, tuple | list):
            value = value[output] if output < len(value) else None
        if not isinstance(value, torch.Tensor) or self.shape(value) != tuple(shape):
            return None
        strides = self.sizes.strides(value)
        return strides if is_dense(tuple(shape), strides) else dense_in_order(shape, strides)

    # -- making loops -------------------------------------------------------------------------

    def generate(
        self,
        shape: Sequence[IndexExpr],
        dtype: torch.dtype,
        body: Callable[..., Expr],
        *,
        name: str = "",
        output: int = 0,
    ) -> View:
        """A tensor whose element ``(i, j, ...)`` is ``body(i, j, ...)`` (index expressions in, one
        expression out; an axis of extent 1 is passed as 0). The basic pointwise loop."""
        shape = tuple(shape)
        check_dtype(dtype)
        axes = self.axes(shape)
        buffer = self.buffer(shape, dtype, name=name, strides=self.result_strides(shape, output))
        value = body(*at(axes))
        self._add(outputs=(buffer,), axes=axes, body=value)
        return View.whole(buffer)

    def pointwise(
        self,
        function: Callable[..., Expr],
        *operands: Operand,
        dtype: torch.dtype | None = None,
        compute: torch.dtype | None = None,
        name: str = "",
        output: int = 0,
    ) -> View:
        """A tensor whose elements are ``function`` of the operands' elements, broadcast together.

        ``dtype`` of the result defaults to that of the node's result; operands are cast to
        ``compute`` first, by default the type that ``dtype`` is computed in (see :meth:`promote` for
        comparisons, whose result is bool). Numbers become constants of ``compute``.
        """
        dtype = dtype if dtype is not None else self.result_dtype(output)
        compute = compute if compute is not None else compute_dtype(dtype)
        shape = broadcast([item.shape for item in operands if isinstance(item, View)])

        def body(*where: IndexExpr) -> Expr:
            return function(*(self.element(item, where, compute) for item in operands))

        return self.generate(shape, dtype, body, name=name, output=output)

    def element(self, operand: Operand, where: Sequence[Index], compute: torch.dtype | None = None) -> Expr:
        """Element ``where`` of an operand (broadcast: trailing dimensions align, extent 1 repeats),
        cast to ``compute`` or to the type its dtype is computed in."""
        if not isinstance(operand, View):
            if compute is None:
                raise LoweringError("a plain number needs a compute dtype")
            check_dtype(compute)
            return scalar(operand, compute)
        self.check_native(operand)
        lead = len(where) - len(operand.axes)
        places: list[Index] = [
            ZERO if extent == ONE else place
            for place, extent in zip(where[lead:], operand.shape, strict=True)
        ]
        loaded, wide = operand.load(tuple(places)), compute_dtype(operand.dtype)
        if compute == torch.bool:  # a number that its type rounds to 0 is False
            return as_held(loaded.cast(wide), operand.dtype).cast(compute)
        return loaded.cast(compute if compute is not None else wide)

    def check_native(self, operand: View) -> None:
        check_dtype(operand.dtype)

    def promote(self, *operands: Operand) -> torch.dtype:
        """The dtype torch promotes these operands to (numbers and 0-d tensors weigh less)."""
        fakes: list[Any] = [
            torch.empty((1,) * min(len(item.axes), 1), dtype=item.dtype, device="meta")
            if isinstance(item, View)
            else (1 if isinstance(item, IndexExpr) else 1.0 if isinstance(item, SizeNumber) else item)
            for item in operands
        ]
        state = fakes[0]
        dtype: torch.dtype
        if len(fakes) == 1:
            return state.dtype if isinstance(state, torch.Tensor) else torch.result_type(state, state)
        tensors = [item for item in fakes if isinstance(item, torch.Tensor)]
        dtype = torch.result_type(tensors[0], tensors[0])
        whole = [item for item in tensors if item.dim() > 0] or tensors
        dtype = whole[0].dtype
        for item in whole[1:]:
            dtype = torch.promote_types(dtype, item.dtype)
        probe = torch.empty((1,) if any(item.dim() for item in tensors) else (), dtype=dtype, device="meta")
        for item in fakes:
            if not isinstance(item, torch.Tensor) or item.dim() == 0:
                dtype = torch.result_type(probe, item)
                probe = torch.empty(probe.shape, dtype=dtype, device="meta")
        return dtype

    def reduce(
        self,
        kind: ReductionKind,
        x: View,
        dims: Sequence[int] | None,
        *,
        keepdim: bool = False,
        dtype: torch.dtype | None = None,
        body: Callable[..., Expr] | None = None,
        name: str = "",
        output: int = 0,
    ) -> View:
        """Reduce ``x`` over ``dims`` (all if None or empty). ``body(element, *indices)`` transforms
        each element first. The reduction runs in the dtype of the body; the result has ``dtype``
        (default: the node's result's)."""
        dims = normalize_dims(dims, len(x.axes))
        axes = self.axes(x.shape)
        where = at(axes)
        value = self.element(x, where)
        if body is not None:
            value = body(value, *where)
        dtype = dtype if dtype is not None else self.result_dtype(output)
        kept = tuple(axis.extent for n, axis in enumerate(axes) if n not in dims)
        buffer = self.buffer(kept, dtype, name=name, strides=self.result_strides(kept, output))
        reduced = tuple(axis for n, axis in enumerate(axes) if n in dims)
        self._add(outputs=(buffer,), axes=axes, body=value, reduced=reduced, reduction=kind)
        whole = View.whole(buffer)
        return unsqueeze_dims(whole, dims) if keepdim else whole

    def welford(
        self, x: View, dims: Sequence[int] | None, *, keepdim: bool = False, name: str = ""
    ) -> tuple[View, View, IndexExpr]:
        """Mean and sum of squared deviations of ``x`` over ``dims``, in the type x is computed in,
        and the number of elements."""
        dims = normalize_dims(dims, len(x.axes))
        axes = self.axes(x.shape)
        value = self.element(x, at(axes))
        kept = tuple(axis.extent for n, axis in enumerate(axes) if n not in dims)
        base = name or self._hint
        mean = self.buffer(kept, value.dtype, name=f"{base}_mean")
        square = self.buffer(kept, value.dtype, name=f"{base}_m2")
        reduced = tuple(axis for n, axis in enumerate(axes) if n in dims)
        self._add(outputs=(mean, square), axes=axes, body=value, reduced=reduced, reduction="welford")
        views = [View.whole(mean), View.whole(square)]
        if keepdim:
            views = [unsqueeze_dims(view, dims) for view in views]
        return views[0], views[1], product(axis.extent for axis in reduced)

    def total(self, kept: Sequence[Axis], inner: Sequence[Axis], body: Expr) -> View:
        """The sum of ``body`` over ``inner`` for each point of ``kept``, in the body's type."""
        buffer = self.buffer([axis.extent for axis in kept], body.dtype)
        axes, reduced = (*kept, *inner), tuple(inner)
        self._add(outputs=(buffer,), axes=axes, body=body, reduced=reduced, reduction="sum")
        return View.whole(buffer)

    def scan(
        self, kind: ScanKind, x: View, dim: int, body: Callable[[Expr], Expr], *dtypes: torch.dtype
    ) -> tuple[View, ...]:
        """What ``body`` makes of the elements of ``x``, combined along ``dim`` up to each: the outputs of a
        loop with this ``scan``, of these ``dtypes``."""
        axes = self.axes(x.shape)
        outputs = tuple(
            self.buffer(x.shape, dtype, strides=self.result_strides(x.shape, n))
            for n, dtype in enumerate(dtypes)
        )
        value = body(self.element(x, at(axes)))
        self._add(outputs=outputs, axes=axes, body=value, scan=kind, scanned=axes[dim])
        return tuple(map(View.whole, outputs))

    def scatter(
        self,
        base: View,
        shape: Sequence[IndexExpr],
        mode: ScatterMode,
        target: Callable[..., Sequence[Index]],
        value: Callable[..., Expr],
        *,
        name: str = "",
        output: int = 0,
    ) -> View:
        """A copy of ``base`` in which, for each point ``(i, ...)`` of ``shape`` in row-major order,
        element ``target(i, ...)`` is set to / combined with ``value(i, ...)``. Targets out of range
        are the caller's to clamp or wrap."""
        start = base if base.is_whole() and base.strided() else self.copy(base)
        axes = self.axes(tuple(shape))
        where = at(axes)
        buffer = self.buffer(
            base.shape, base.dtype, name=name, strides=self.result_strides(base.shape, output)
        )
        self._add(
            outputs=(buffer,),
            axes=axes,
            body=value(*where),
            target=tuple(index(place) for place in target(*where)),
            base=start.buffer.name,
            mode=mode,
        )
        return View.whole(buffer)

    def copy(self, x: View, dtype: torch.dtype | None = None, name: str = "") -> View:
        """``x`` in memory of its own."""
        self.check_native(x)
        dtype = dtype or x.dtype
        return self.generate(x.shape, dtype, lambda *where: x.load(where).cast(dtype), name=name)

    def view(self, x: View, shape: Sequence[IndexExpr], place: Callable[..., Sequence[Index]]) -> View:
        """A view of ``x``: element ``(i, ...)`` of it is element ``place(i, ...)`` of ``x``."""
        axes = tuple(Axis(f"v{n}", extent) for n, extent in enumerate(shape))
        return View(x.buffer, axes, x.at(tuple(place(*at(axes)))))

    # -- calling libraries --------------------------------------------------------------------

    def call(
        self,
        target: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        result: Any = None,
        fallback: bool = False,
        reason: str = "",
        name: str = "",
        elsewhere: bool = False,
    ) -> Any:
        """Call an ATen overload as itself. ``result`` is its fake result (default: the node's)."""
        result = self.result if result is None else result
        single = not isinstance(result, tuple | list | dict)
        found, spec = tree_flatten_with_path(result)
        plain = single or (not isinstance(result, dict) and all(len(path) == 1 for path, _ in found))
        buffers = [self._buffer(item, name) if isinstance(item, torch.Tensor) else None for _, item in found]
        self.statements.append(
            LibraryCall(
                id=f"{self.graph}.c{next(self._counter)}",
                name=str(target).removesuffix(".default"),
                target=target,
                args=tuple(self._viewable(item) for item in args),
                kwargs={key: self._viewable(item) for key, item in (kwargs or {}).items()},
                outputs=tuple(buffers),
                fallback=fallback,
                reason=reason,
                single=single,
                paths=() if plain else tuple("".join(map(str, path)) for path, _ in found),
                elsewhere=elsewhere,
                origins=self.origins,
            )
        )
        return tree_unflatten([buffer and View.whole(buffer) for buffer in buffers], spec)

    def _buffer(self, fake: torch.Tensor, name: str) -> Buffer:
        return Buffer(self.fresh(name), self.shape(fake), tuple(map(self.size, fake.stride())), fake.dtype)

    def random_words(self, count: IndexExpr) -> tuple[View, IndexExpr]:
        """The graph's Philox seed (int64, one element, drawn once from torch's generator) and the number
        of the first of ``count`` random words that are the caller's alone."""
        if self._seed is None:
            limits = torch.iinfo(torch.int64)
            self._seed = self.call(
                torch.ops.aten.randint.low,
                (limits.min, limits.max, [1]),
                {"dtype": torch.int64, **self.on_device()},
                result=torch.empty(1, dtype=torch.int64),
                reason="one seed for the whole graph",
                name="philox_seed",
            )
        first = DrawCounter(self._draws, self._random_blocks)
        self._draws += 1
        self._random_blocks += floordiv(count + 3, index(4))  # whole blocks of four words
        return self._seed, 4 * index(first)

    def on_device(self) -> dict[str, Any]:
        """The argument that makes a tensor where the graph works."""
        return {} if self.device.type == "cpu" else {"device": self.device}

    def _viewable(self, value: Any) -> Any:
        if isinstance(value, View):
            return value if value.strided() is not None else self._copied_in_order(value)
        if isinstance(value, list | tuple):
            return type(value)(self._viewable(item) for item in value)
        if isinstance(value, dict):
            return {key: self._viewable(item) for key, item in value.items()}
        if isinstance(value, SizeNumber):
            return value.python
        return value

    def _copied_in_order(self, value: View) -> View:
        """A copy for a library call, laid out as its elements are met in memory."""
        offset = value.buffer.offset(value.index)
        last = len(value.axes) - 1
        lane = next((n for n, axis in enumerate(value.axes) if offset.coefficient(axis) == ONE), last)
        if lane == last:
            return self.copy(value)
        order = [*(n for n in range(last + 1) if n != lane), lane]
        copied = self.copy(View(value.buffer, tuple(value.axes[n] for n in order), value.index))
        back = [order.index(n) for n in range(len(order))]
        return View(copied.buffer, tuple(copied.axes[n] for n in back), copied.index)

    def _add(self, **fields: Any) -> None:
        made = Loop(id=f"{self.graph}.l{next(self._counter)}", op=self.op, origins=self.origins, **fields)
        self.statements.append(made.without_reads() if ZERO in [axis.extent for axis in made.axes] else made)

    def update(self, target: View, value: View) -> View:
        """The new value of the graph input that ``target`` shows (all of it): ``value``, laid out as it
        is."""
        if target.buffer.role != "input" or not target.is_whole():
            raise LoweringError("only a whole input can be overwritten")
        if target.buffer.meets_itself():
            raise LoweringError(
                f"elements of {target.buffer.name} share memory: to write one is to write others"
            )
        new = self.laid_out_like(target.buffer, value, f"{target.buffer.name}_new")
        self.updates[target.buffer.name] = new.name
        return View.whole(new)

    def laid_out_like(self, like: Buffer, value: View, hint: str = "") -> Buffer:
        """A new buffer with ``value``, of the shape, strides and dtype of ``like``."""
        axes = self.axes(like.shape)
        body = self.element(value, at(axes), compute_dtype(like.dtype))
        buffer = Buffer(self.fresh(hint), like.shape, like.strides, like.dtype)
        self._add(outputs=(buffer,), axes=axes, body=body)
        return buffer


def check_dtype(dtype: torch.dtype) -> None:
    """LoweringError for a dtype that we have no loops for (complex numbers, 8-bit floats ...)."""
    if dtype not in NATIVE_DTYPES:
        raise LoweringError(f"no native loops for {str(dtype).removeprefix('torch.')}")


def at(axes: Iterable[Axis]) -> tuple[IndexExpr, ...]:
    """The axes as indices; 0 for an axis of extent 1."""
    return tuple(ZERO if axis.extent == ONE else index(axis) for axis in axes)


def normalize_dims(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Non-negative sorted dimensions; all of them for None or an empty list."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else dims
    return tuple(sorted({dim % rank for dim in listed})) if rank else ()


def unsqueeze_dims(x: View, dims: Sequence[int]) -> View:
    """``x`` with an extent-1 dimension at each place of ``dims`` (places in the result)."""
    rank = len(x.axes) + len(dims)
    source = iter(x.axes)
    axes = tuple(Axis(f"v{n}", ONE if n in dims else next(source).extent) for n in range(rank))
    inner = at(axis for n, axis in enumerate(axes) if n not in dims)
    return View(x.buffer, axes, x.at(inner))


def broadcast(shapes: Sequence[Sequence[IndexExpr]]) -> tuple[IndexExpr, ...]:
    """The shape that these shapes broadcast to. SymbolicSizeError where an extent was 1 as the graph was
    traced, and nothing says whether it always is."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [ONE] * rank
    for shape in shapes:
        for n, extent in enumerate(shape, start=rank - len(shape)):
            if extent == ONE:
                continue
            if result[n] not in (ONE, extent) and 1 in (extent.hint(), result[n].hint()):
                raise SymbolicSizeError(f"of {result[n]} and {extent} one is 1, and no guard says so")
            result[n] = extent
    return tuple(result)
