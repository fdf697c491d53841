"""The Triton kernels of linear + cross_entropy, written by hand, and their launchers on each device."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import torch

from nbcompile import targets
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.launch import launchers
from nbcompile.compiler.stages import Argument, Config, EntryPoint, KernelSource, Launch
from nbcompile.errors import NbcompileError

TEXT = '''import triton
import triton.language as tl


@triton.jit
def cross_entropy_rows(logits, target, scale, losses, rows, classes, stride, ignore_index, on_target,
                       on_all, SMOOTH: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr):
    """One row a program: its loss, from one pass over its logits; then, back from the end of the row, which
    is still in the cache, the gradient in their place. A row takes stride elements: what lies behind its
    classes is read and overwritten too, so that every access is a wide one."""
    row = tl.program_id(0)
    label = tl.load(target + row)
    line = logits + row.to(tl.int64) * stride
    columns = tl.arange(0, BLOCK)
    last = (stride - 1) // BLOCK * BLOCK
    if label == ignore_index:
        tl.store(losses + row, 0.0)
        if GRADIENT:
            for first in range(0, stride, BLOCK):
                place = first + columns
                tl.store(line + place, tl.zeros([BLOCK], tl.float32), mask=place < stride)
    else:
        inside = (label >= 0) & (label < classes)
        at_label = tl.load(line + tl.where(inside, label, 0)).to(tl.float32)
        largest = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        everything = tl.zeros([BLOCK], tl.float32)
        for first in range(0, stride, BLOCK):
            place = first + columns
            z = tl.load(line + place, mask=place < stride, other=0.0).to(tl.float32)
            z = tl.where(place < classes, z, float("-inf"))
            larger = tl.maximum(largest, z)
            base = tl.where(larger == float("-inf"), 0.0, larger)  # exp(-inf - -inf) is no number
            total = total * tl.exp(largest - base) + tl.exp(z - base)
            largest = larger
            if SMOOTH:
                everything += tl.where(place < classes, z, 0.0)
        top = tl.max(largest, 0)
        base = tl.where(top == float("-inf"), 0.0, top)
        normalizer = base + tl.log(tl.sum(total * tl.exp(largest - base), 0))
        loss = normalizer - on_target * at_label
        if SMOOTH:
            loss -= on_all * tl.sum(everything, 0)
        tl.store(losses + row, tl.where(inside, loss, float("nan")))
        if GRADIENT:
            factor = tl.load(scale)
            for done in range(0, stride, BLOCK):
                place = last - done + columns
                z = tl.load(line + place, mask=place < stride, other=0.0).to(tl.float32)
                share = tl.exp(z - normalizer) - tl.where(place == label, on_target, 0.0)
                if SMOOTH:
                    share -= on_all
                tl.store(line + place, tl.where(place < classes, share * factor, 0.0), mask=place < stride)


@triton.jit
def scale_gradient(result, values, by, count, IN_PLACE: tl.constexpr, BLOCK: tl.constexpr):
    """result = values * by; in place nothing is touched where by is 1."""
    factor = tl.load(by)
    if (not IN_PLACE) or (factor != 1.0):
        columns = tl.arange(0, BLOCK)
        start = tl.program_id(0).to(tl.int64) * BLOCK
        for first in range(start, count, tl.num_programs(0).to(tl.int64) * BLOCK):
            place = first + columns
            value = tl.load(values + place, mask=place < count).to(tl.float32)
            tl.store(result + place, value * factor, mask=place < count)
'''

TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
MOST_PROGRAMS = 2048
"""Programs of :func:`scale_source`'s kernel: each returns at once where there is nothing to do."""

RowLosses = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, float, bool], None]
Scaling = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def rows_source(
    dtype: torch.dtype, classes: int, *, smooth: bool, gradient: bool, block: int = 8192, warps: int = 16
) -> KernelSource:
    """The source of ``cross_entropy_rows`` for logits of ``dtype``; ``classes`` only tells what to assume of
    their number. With 16 warps a row, few enough rows are under way that they stay in the L2."""
    arguments = (
        Argument("logits", f"*{TYPES[dtype]}", ours=True), Argument("target", "*i64"),
        Argument("scale", "*fp32", ours=True), Argument("losses", "*fp32", ours=True),
        Argument("rows", "i32", hint=1), Argument("classes", "i32", hint=16 if classes % 16 == 0 else 1),
        Argument("stride", "i32", hint=16), Argument("ignore_index", "i64", hint=1),
        Argument("on_target", "fp32"), Argument("on_all", "fp32"),
    )  # fmt: skip
    constants = {"SMOOTH": int(smooth), "GRADIENT": int(gradient), "BLOCK": block}
    return _source("cross_entropy_rows", arguments, "rows", Config(constants, warps))


def scale_source(dtype: torch.dtype, *, in_place: bool) -> KernelSource:
    """The source of ``scale_gradient`` for values of ``dtype``."""
    arguments = (
        Argument("result", f"*{TYPES[dtype]}", ours=True), Argument("values", f"*{TYPES[dtype]}", ours=True),
        Argument("by", "*fp32"), Argument("count", "i64", hint=1),
    )  # fmt: skip
    grid = f"min(cdiv(count, BLOCK), {MOST_PROGRAMS})"
    return _source("scale_gradient", arguments, grid, Config({"IN_PLACE": int(in_place), "BLOCK": 8192}, 8))


def _source(name: str, arguments: tuple[Argument, ...], grid: str, config: Config) -> KernelSource:
    return KernelSource(
        graph="linear_cross_entropy",
        language="triton",
        head=(TEXT.rstrip("\n"),),
        kernels=(),
        wrapper="",
        entry_points=(EntryPoint(name, name, tuple(item.name for item in arguments)),),
        launches=(Launch(name, name, arguments, (grid,), (config,)),),
    )


def row_losses(device: torch.device, dtype: torch.dtype) -> RowLosses | None:
    """What does a chunk's rows on ``device``: called with logits [rows, classes] (unit stride along a row;
    what lies between one row and the next is set to 0 with the gradient), target int64 [rows], scale
    float32 [], losses float32 [rows], the ignored target, the label smoothing, and whether the gradient of
    ``scale * loss`` is to be left in place of the logits. None where no Triton kernel runs."""
    index = _place(device, dtype)
    if index is None or _scaling(index, dtype, True) is None:
        return None

    def run(
        logits: torch.Tensor, target: torch.Tensor, scale: torch.Tensor, losses: torch.Tensor,
        ignore_index: int, label_smoothing: float, gradient: bool,
    ) -> None:  # fmt: skip
        program = _rows(index, dtype, logits.shape[1] % 16 == 0, label_smoothing > 0, gradient)
        launch_rows(program, logits, target, scale, losses, ignore_index, label_smoothing)

    return run


def launch_rows(
    program: Callable[..., None], logits: torch.Tensor, target: torch.Tensor, scale: torch.Tensor,
    losses: torch.Tensor, ignore_index: int, label_smoothing: float,
) -> None:  # fmt: skip
    """Call ``cross_entropy_rows``, compiled or interpreted, for the rows of one chunk."""
    rows, classes = logits.shape
    program(
        logits, target, scale, losses, rows, classes, logits.stride(0), ignore_index,
        1.0 - label_smoothing, label_smoothing / classes,
    )  # fmt: skip


def scaling(device: torch.device, dtype: torch.dtype, *, in_place: bool) -> Scaling | None:
    """What multiplies dense tensors on ``device``: called with the result, the values (the same tensor if
    ``in_place``) and a float32 []. None where no Triton kernel runs."""
    index = _place(device, dtype)
    program = _scaling(index, dtype, in_place) if index is not None else None
    return None if program is None else lambda result, values, by: program(result, values, by, values.numel())


def _place(device: torch.device, dtype: torch.dtype) -> int | None:
    """The number of the GPU that ``device`` is; None for other devices, and dtypes without a kernel."""
    if device.type != "cuda" or dtype not in TYPES:
        return None
    return device.index if device.index is not None else torch.cuda.current_device()


@functools.cache
def _rows(index: int, dtype: torch.dtype, aligned: bool, smooth: bool, gradient: bool) -> Callable[..., None]:
    return _loaded(index, rows_source(dtype, 16 if aligned else 1, smooth=smooth, gradient=gradient))


@functools.cache
def _scaling(index: int, dtype: torch.dtype, in_place: bool) -> Callable[..., None] | None:
    """The first kernel to be built in a process: where that fails, all is left to torch."""
    try:
        return _loaded(index, scale_source(dtype, in_place=in_place))
    except NbcompileError as error:
        warnings.warn(
            f"linear + cross_entropy runs in torch's own operations, which take more memory: {error}",
            stacklevel=2,
        )
        return None


def _loaded(index: int, source: KernelSource) -> Callable[..., None]:
    """The one function of ``source``, built (or found in the cache) and loaded on GPU ``index``."""
    chip = targets.of_device(index)
    (launch,) = source.launches
    built = triton_build.begin(source, launch, launch.configs[0], chip).result()
    functions = launchers(source, {launch.function: built}, chip, torch.device("cuda", index))
    return functions[launch.function]
