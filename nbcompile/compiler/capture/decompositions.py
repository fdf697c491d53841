"""Which ATen ops AOTAutograd rewrites into simpler ones before our lowering sees them.

The base is torch's own core ATen table. Taken out is what would change random numbers or lose a fast
library call, and what the lowering handles better whole. Put in is a dropout that draws and scales
exactly as eager does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from nbcompile.compiler.capture.lists_of_tensors import by_place
from nbcompile.compiler.capture.lost.refused import checked
from nbcompile.compiler.rewrite import layouts, losses
from nbcompile.compiler.rewrite.weight_norm import weight_norm_interface_backward
from nbcompile.options import Options

aten = torch.ops.aten
Table = dict[Any, Callable[..., Any]]

# Kept whole: lowered natively, or one good library call instead of many poor loops.
_KEPT = (
    "native_layer_norm _softmax _log_softmax gelu var_mean roll flip "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
    "scaled_dot_product_attention _scaled_dot_product_attention_math linear_backward "
    "mv dot vdot addmv eye linspace logspace addcmul addcdiv lerp logsumexp embedding_dense_backward "
    "tril triu gelu_backward silu_backward sigmoid_backward tanh_backward threshold_backward nan_to_num "
    "logaddexp index_add index_copy index_fill _softmax_backward_data _log_softmax_backward_data "
    "native_layer_norm_backward select_backward slice_backward native_group_norm native_group_norm_backward "
    "_native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training "
    "native_batch_norm_backward batch_norm_backward _fused_rms_norm _fused_rms_norm_backward _safe_softmax "
    # torch's rewrites differ from its kernels: at NaN these, in the result's dtype the last
    "hardtanh_backward hardswish_backward elu_backward select_scatter "
    # the rewrite divides a complex number by its size as a complex number: NaN where that is subnormal
    "sgn "
    # the rewrites ask of float32 what a half type has rounded
    "isposinf isneginf threshold logit logit_backward"
).split()

# A core walks the middle of a padded tensor along memory; a GPU reads by the index that torch writes. The
# squares of a deviation are float64's in eager's kernels for a CPU.
_KEPT_ON_CPU = "reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d std std_mean".split()

# Rewritten although not in the core table, so that it fuses with what stands around it.
_ADDED = ("native_batch_norm",)


def decompositions(options: Options) -> Table:
    """The table for these options (shared: do not change it). Built once, about 0.1 s."""
    return _table(options.eager_random, options.chip.is_gpu)


@functools.cache
def _table(eager_random: bool, gpu: bool) -> Table:
    table = core_table()
    table = drawing_as_eager(table) if eager_random else _without_random(table)
    kept = _KEPT if gpu else (*_KEPT, *_KEPT_ON_CPU)
    for name in (*kept, *(f"{name}_" for name in kept)):  # in-place forms too
        packet = getattr(aten, name, None)  # not every torch has each of these
        for overload in packet.overloads() if packet is not None else ():
            table.pop(getattr(packet, overload), None)
    table.update(by_place())
    packets = [getattr(aten, name) for name in _ADDED if hasattr(aten, name)]
    table.update(get_decompositions(packets))
    if aten.baddbmm.default in table:
        table[aten.baddbmm.default] = functools.partial(_contiguous, table[aten.baddbmm.default])
    if aten.block_diag.default in table:
        table[aten.block_diag.default] = functools.partial(_of_one_type, table[aten.block_diag.default])
    for every in (aten.all.default, aten.all.dim, aten.all.dims):
        table[every] = functools.partial(_of_signed_or_bytes, table[every])
    for scatter in (aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default):
        table[scatter] = functools.partial(_into_own_memory, scatter)
    table[aten.native_group_norm.default] = _group_norm_of_mixed_types
    table[aten.roll.default] = layouts.roll
    sigmoid = aten.log_sigmoid_forward.default
    table[sigmoid] = functools.partial(layouts.log_sigmoid_forward, table[sigmoid])
    table[aten.smooth_l1_loss_backward.default] = losses.smooth_l1_loss_backward
    table[aten.binary_cross_entropy.default] = losses.binary_cross_entropy
    table[aten.nll_loss_backward.default] = losses.nll_loss_backward
    table[aten.nll_loss2d_backward.default] = losses.nll_loss_backward
    table[aten._weight_norm_interface_backward.default] = weight_norm_interface_backward
    if gpu:
        table[aten.convolution.default] = _bias_apart
        table[aten.convolution_backward.default] = _bias_gradient_apart
    return checked(table)


def drawing_as_eager(table: Table) -> Table:
    """A table that rewrites nothing random, but for dropout, in terms of the numbers that eager draws."""
    return _without_random(table) | {
        aten.native_dropout.default: _eager_dropout,
        aten.bernoulli.p: _eager_bernoulli,
        aten.native_dropout_backward.default: _eager_dropout_backward,
    }


def _without_random(table: Table) -> Table:
    # torch's rewrites draw other numbers than the eager op does
    return {
        op: rewrite
        for op, rewrite in table.items()
        if torch.Tag.nondeterministic_seeded not in getattr(op, "tags", ())
    }


def core_table() -> Table:
    """torch's own table of rewrites to core ATen operators."""
    # Since torch 2.6 core_aten_decompositions() also rewrites every composite op, for export; the
    # plain table is this private function. Without it, the public one serves, a little slower.
    try:
        from torch._decomp import _core_aten_decompositions_post_autograd as plain
    except ImportError:
        return dict(torch._decomp.core_aten_decompositions())
    return dict(plain())


def _contiguous(rewrite: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """What ``rewrite`` makes, laid out as the operator lays it out. The sum that torch writes for
    ``baddbmm`` takes the layout of what is added: a ``view`` of the result then finds other strides than it
    was traced with."""
    return rewrite(*args, **kwargs).contiguous()


def _of_signed_or_bytes(
    rewrite: Callable[..., torch.Tensor], x: torch.Tensor, *args: Any, **kwargs: Any
) -> Any:
    """``all``: torch's rewrite asks what is not true of each element, of which ATen has no kernel for the
    wider unsigned integers, nor for floating-point numbers of a byte."""
    a_byte = x.dtype.is_floating_point and x.dtype.itemsize == 1
    if a_byte or x.dtype in (torch.uint16, torch.uint32, torch.uint64):
        return NotImplemented  # the op stays as it is
    return rewrite(x, *args, **kwargs)


def _of_one_type(rewrite: Callable[..., torch.Tensor], tensors: list[torch.Tensor]) -> torch.Tensor:
    """``block_diag``: torch's rewrite makes matrices of all first, and a number that is one counts for the
    dtype of the result as it does not in eager."""
    _, found = elementwise_dtypes(*tensors, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH)
    return rewrite([each.to(found) for each in tensors])


def _into_own_memory(scatter: Any, into: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """A scatter into an expanded tensor: torch 2.11 traces its result as expanded too, though each of its
    elements is a number of its own. It lies as a copy of that tensor does."""
    if not any(isinstance(stride, int) and stride == 0 for stride in into.stride()):
        return NotImplemented  # type: ignore[no-any-return]  # the op stays as it is
    made: torch.Tensor = scatter(aten.clone(into), *args, **kwargs)
    return made


def _group_norm_of_mixed_types(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, *how: Any
) -> tuple[torch.Tensor, ...]:
    """For half-precision numbers with float32 weights ATen's kernel keeps the means and deviations that
    backward uses in float32, while fake tensors say that they are halves."""
    of = weight if weight is not None else bias
    if of is None or of.dtype == input.dtype:
        return NotImplemented  # type: ignore[no-any-return]  # the op stays as it is
    result, mean, rstd = aten.native_group_norm.default(input.to(of.dtype), weight, bias, *how)
    return result.to(input.dtype), mean, rstd


def _bias_apart(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
) -> torch.Tensor:
    """cuDNN's convolutions have no bias: ATen adds it to the result in a kernel of its own, we in whatever
    kernel reads the result. Both round the result first."""
    if bias is None or input.dim() != weight.dim():
        return NotImplemented  # type: ignore[no-any-return]  # the op stays as it is
    made: torch.Tensor = aten.convolution.default(input, weight, None, *how)
    return made + bias.view([-1] + [1] * (weight.dim() - 2))


def _bias_gradient_apart(
    grad: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, bias_sizes: Any, *how: Any
) -> tuple[torch.Tensor | None, ...]:
    """ATen sums a bias's gradient in a kernel of its own too."""
    *how_else, wanted = how
    if not wanted[2] or grad.dim() != weight.dim():
        return NotImplemented  # type: ignore[no-any-return]
    bias = grad.sum([0, *range(2, grad.dim())])
    if not (wanted[0] or wanted[1]):
        return None, None, bias
    others = aten.convolution_backward.default(
        grad, input, weight, None, *how_else, [wanted[0], wanted[1], False]
    )
    return others[0], others[1], bias


def _eager_dropout(input: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """On the CPU, eager dropout draws ``bernoulli(1 - p)``, divides it by ``1 - p`` and multiplies; any
    other order of these rounds differently. The mask is kept as bool: a quarter of eager's bytes."""
    if input.device.type != "cpu" or input.dtype.is_complex:
        return NotImplemented  # type: ignore[no-any-return]  # the op stays as it is
    if train is False or p == 0:
        return aten.clone.default(input), aten.full.default(
            list(input.shape), True, dtype=torch.bool, device=input.device, pin_memory=False
        )
    if p == 1:
        return aten.mul.Tensor(input, 0.0), aten.full.default(
            list(input.shape), False, dtype=torch.bool, device=input.device, pin_memory=False
        )
    mask = _drawn_in_memory_order(aten.empty_like.default(input, dtype=torch.bool), 1.0 - p)
    noise = aten.div.Tensor(aten._to_copy.default(mask, dtype=input.dtype), 1.0 - p)
    return aten.mul.Tensor(input, noise), mask


def _eager_bernoulli(input: torch.Tensor, p: float, generator: Any = None) -> torch.Tensor:
    """``x.bernoulli_(p)`` becomes ``bernoulli.p``, whose result is contiguous, and so other numbers
    would land at each place of a transposed ``x``. (The price: ``torch.bernoulli(x, p)`` of a
    transposed ``x``, which is the same call here, draws the same numbers in another order.)"""
    if input.device.type != "cpu" or generator is not None or input.is_contiguous():
        return NotImplemented  # type: ignore[no-any-return]  # the op stays as it is
    return _drawn_in_memory_order(aten.empty_like.default(input), p)


def _drawn_in_memory_order(like: torch.Tensor, p: float) -> torch.Tensor:
    """Ones with probability ``p``, of the shape, dtype and dense layout of ``like``. Eager fills a tensor
    in the order of its memory: drawn contiguous in that order, and seen through a permutation."""
    order = sorted(range(like.dim()), key=like.stride, reverse=True)
    extents = [like.shape[dim] for dim in order]
    blank = aten.empty.memory_format(extents, dtype=like.dtype, device=like.device, pin_memory=False)
    drawn: torch.Tensor = aten.bernoulli.p(blank, p)
    if order != list(range(like.dim())):
        drawn = aten.permute.default(drawn, [order.index(dim) for dim in range(like.dim())])
    return drawn


def _eager_dropout_backward(grad: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    if grad.device.type != "cpu" or grad.dtype.is_complex or scale == 0:
        return grad * (mask.to(grad.dtype) * scale)
    return grad * (mask.to(grad.dtype) / (1.0 / scale))
