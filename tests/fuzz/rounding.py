"""Rounding errors put into every ATen operator that rounds, at backward too, and within operators that are
written out in others: what errors inside one statement of a program (``(v + 1).log()``, the gradient of
``sinc`` near 0, a norm of equal numbers) may do to its results."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

EXACT = frozenset(
    "copy clone _to_copy where gather index index_select masked_select take embedding cat stack "
    "constant_pad_nd neg abs sign relu maximum minimum fmax fmin max min amax amin sort topk median "
    "kthvalue mode zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full empty "
    "empty_like new_empty empty_strided new_empty_strided fill masked_fill index_fill clamp clamp_min "
    "clamp_max hardtanh scatter index_put index_copy slice_scatter select_scatter diagonal_scatter "
    "as_strided_scatter slice_backward select_backward diagonal_backward unfold_backward "
    "threshold_backward hardtanh_backward zero ceil floor round trunc copysign signbit roll flip tril "
    "triu repeat diag_embed reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d replication_pad3d max_pool2d_with_indices max_pool3d_with_indices "
    "adaptive_max_pool2d adaptive_max_pool3d cummax cummin arange lift_fresh lift_fresh_copy "
    "scalar_tensor detach alias masked_scatter nan_to_num nextafter threshold heaviside ldexp frexp "
    "view_as_real view_as_complex real imag conj complex".split()
)
"""Names of operators whose numbers are operands, or exact."""

LINEAR = frozenset(
    "sum mean nansum cumsum mm bmm addmm baddbmm addbmm mv addmv dot vdot convolution scatter_add index_add "
    "avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_bilinear2d embedding_bag trace "
    "upsample_linear1d upsample_trilinear3d add sub linalg_vector_norm prod".split()
)
"""Names of operators that add up: what they round is as large as what they add, not as the sum."""

RANDOM = ("dropout", "bernoulli", "rand", "normal", "uniform", "exponential", "rrelu", "multinomial")


@functools.cache
def written_out() -> dict[Any, Callable[..., Any]]:
    """Operators in terms of others, those that draw random numbers left out."""
    norms = [
        aten.native_layer_norm, aten.native_group_norm, aten._native_batch_norm_legit, aten.native_batch_norm,
        aten.native_layer_norm_backward, aten.native_group_norm_backward, aten.native_batch_norm_backward,
        aten._softmax, aten._log_softmax, aten._softmax_backward_data, aten._log_softmax_backward_data,
        aten.logsumexp, aten.sinc, aten.sigmoid_backward, aten.tanh_backward,
    ]  # fmt: skip
    table = {**core_aten_decompositions(), **get_decompositions(norms), **_VARIANCES}
    return {
        op: rule
        for op, rule in table.items()
        if not any(word in str(op) for word in RANDOM) and _name(op) not in EXACT | LINEAR
    }


def _variance(x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = dim or list(range(x.dim()))
    mean = x.mean(dims, True)
    count = x.numel() // max(mean.numel(), 1)
    total = (x - mean).square().sum(dims, keepdim)
    return total / max(count - (1 if correction is None else correction), 0)


def _variance_and_mean(x: torch.Tensor, dim: Any = None, **named: Any) -> Any:
    dims = dim or list(range(x.dim()))
    return _variance(x, dims, **named), x.mean(dims, named.get("keepdim", False))


def _group_norm(
    x: torch.Tensor, weight: Any, bias: Any, batch: int, channels: int, pixels: int, groups: int, eps: float
) -> Any:
    """By deviations from the mean, of which nothing is left where a group is of one number: torch's own
    rule scales first, and leaves a rounding error scaled by as much as ``eps ** -0.5``."""
    grouped = x.reshape(batch, groups, -1)
    mean = grouped.mean(-1, True)
    off = grouped - mean
    rstd = (off.square().mean(-1, True) + eps).rsqrt()
    shaped = [item.reshape(-1, *[1] * (x.dim() - 2)) for item in (weight, bias) if item is not None]
    found = (off * rstd).reshape(x.shape)
    found = found * shaped[0] if weight is not None else found
    return found + shaped[-1] if bias is not None else found, mean.squeeze(-1), rstd.squeeze(-1)


_VARIANCES: dict[Any, Callable[..., Any]] = {
    aten.native_group_norm.default: _group_norm,
    aten.var.correction: _variance,
    aten.std.correction: lambda *args, **named: _variance(*args, **named).sqrt(),
    aten.var_mean.correction: _variance_and_mean,
    aten.std_mean.correction: lambda *args, **named: (
        _variance(*args, **named).sqrt(), _variance_and_mean(*args, **named)[1]
    ),
}  # fmt: skip


def _name(op: Any) -> str:
    """``add`` of ``aten.add_.Tensor`` and of ``aten::add.out``."""
    schema = getattr(op, "_schema", None)
    return (schema.name if schema is not None else str(op)).rpartition("::")[2].rstrip("_")


class Rounding(TorchDispatchMode):
    """Errors of up to ``size`` units in the last place, of type ``least`` at least where one is given."""

    def __init__(self, seed: int, size: float, least: float = 0.0) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(7000 + seed)
        self.size, self.least = size, least
        self.snaps = seed % 2 == 1  # whether what is left of larger numbers is nothing

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        returns = func._schema.returns
        rule = written_out().get(func)
        if rule is not None and all(item.alias_info is None for item in returns):
            written = self._written_out(rule, args, kwargs)
            if written is not None and "batch_norm" in str(func):  # overwrites its averages: once
                return written
            whole = func(*args, **kwargs)
            return written if written is not None and _alike(written, whole) else whole
        if func._can_decompose():  # where autograd takes no part, nobody else has
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        name = _name(func)
        if name in EXACT or any(word in name for word in RANDOM):
            return func(*args, **kwargs)
        magnitude = self._magnitude(func, args, kwargs) if name in LINEAR else None
        found = func(*args, **kwargs)
        for value, described in zip(found if len(returns) > 1 else (found,), returns):
            fresh = described.alias_info is None or described.alias_info.is_write
            if fresh and isinstance(value, torch.Tensor) and _has_numbers(value):
                self._disturb(value, magnitude)
        return found

    def _written_out(self, rule: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the rule makes of it; None where it does not take it."""
        tensors = (item for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor))
        given = [item for item in tensors if not item.is_inference()]  # those count no versions
        try:
            with self, torch.autograd._unsafe_preserve_version_counter(tuple(given)):
                return rule(*args, **kwargs)
        except Exception:
            return None

    def _magnitude(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
        """What the operator makes of the sizes of its operands; more where it adds up many: in float64
        (nothing wider adds it up) as much as errors of one sign come to (as they are of equal numbers)."""
        if any(item.alias_info is not None for item in func._schema.returns):
            return None
        positive = torch.utils._pytree.tree_map_only(torch.Tensor, _size, (args, kwargs))
        function = torch.add if _name(func) == "sub" else func
        try:
            most = function(*positive[0], **positive[1])
        except Exception:
            return None
        many = max((item.numel() for item in args if isinstance(item, torch.Tensor)), default=1)
        many /= max(most.numel(), 1)
        widest = most.dtype in (torch.float64, torch.complex128)
        return most * max(1.0, many / 16 if widest else math.sqrt(many) / 4)  # type: ignore[no-any-return]

    def _disturb(self, value: torch.Tensor, magnitude: torch.Tensor | None) -> None:
        eps = max(torch.finfo(value.dtype).eps, self.least) * self.size
        shape = value.shape
        random = torch.rand(shape, generator=self.generator, dtype=torch.float64, device="cpu") * 2 - 1
        error = (random * eps).to(device=value.device)
        of = value.detach() if magnitude is None or magnitude.shape != shape else magnitude
        if self.snaps and magnitude is not None and magnitude.shape == shape:
            small = value.detach().abs() <= 8 * eps * magnitude.abs()
            value.masked_fill_(small & value.detach().isfinite(), 0)  # infinite is no less than infinite
            return
        wide = of.to(torch.complex128 if of.is_complex() else torch.float64)
        off = (wide * error).to(value.dtype)
        if not value.is_complex():  # below the normal numbers, units have one size
            limits = torch.finfo(value.dtype)
            unit = (random * self.size).round().to(value.device) * limits.tiny * limits.eps
            subnormal = (value.detach() != 0) & (value.detach().abs() < limits.tiny)
            off = torch.where(subnormal, unit.to(value.dtype), off)
        value.add_(torch.where(off.isfinite() & value.isfinite(), off, torch.zeros_like(off)))


def _has_numbers(value: torch.Tensor) -> bool:
    """Whether it rounds, and has memory for each of its elements: autograd's zeros have none."""
    if not (value.is_floating_point() or value.is_complex()) or not value.numel():
        return False
    return not value._is_zerotensor() and 0 not in value.stride()


def _size(x: torch.Tensor) -> torch.Tensor:
    return x.abs() if x.is_floating_point() or x.is_complex() else x


def _alike(one: Any, two: Any) -> bool:
    """Whether they are tensors of one shape, layout and type each."""
    pairs = zip(*(item if isinstance(item, tuple | list) else (item,) for item in (one, two)), strict=False)
    return all(
        isinstance(a, torch.Tensor)
        and isinstance(b, torch.Tensor)
        and (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        for a, b in pairs
        if a is not None or b is not None
    )
