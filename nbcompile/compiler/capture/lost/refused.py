"""What eager's kernels refuse, and tracing with fake tensors does not.

A product of float32 and float64, a loss of classes that are not int64: the error comes of the kernel that
eager calls, and a loop of ours takes its place. Here such an operator says so while it is traced; the graph
then runs eagerly, and what is wrong with it is said by eager itself, at the user's line (Inductor computes
most of them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.errors import LoweringError

aten = torch.ops.aten
Rewrite = Callable[..., Any]
Check = Callable[..., None]
HALF = (torch.float16, torch.bfloat16)


def _one_type(*places: int) -> Check:
    """The tensors at these places (none: all) are of one type."""

    def check(*args: Any) -> None:
        given = [args[place] for place in places] if places else args
        _alike([each for each in given if isinstance(each, torch.Tensor)])

    return check


def _alike(tensors: Sequence[torch.Tensor]) -> None:
    kinds = dict.fromkeys(each.dtype for each in tensors)
    if len(kinds) > 1:
        raise LoweringError(f"eager takes tensors of one type here, and these are of {_named(kinds)}")


def _put(
    input: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: Any = False
) -> None:
    """Of one number that goes wherever a mask says eager makes a ``masked_fill_``, which converts it."""
    given = [each for each in indices if each is not None]
    filled = not accumulate and len(given) == 1 and given[0].dtype == torch.bool
    one = all(isinstance(extent, int) and extent == 1 for extent in values.shape)
    if not (filled and one and values.device.type == "cpu"):
        _alike([input, values])


def _norm(*places: int) -> Check:
    """Weights and statistics of a norm: of one type, the input's, or float32 for a half type."""

    def check(*args: Any) -> None:
        given = [args[place] for place in places if isinstance(args[place], torch.Tensor)]
        _alike(given)
        if given and args[0].dtype not in HALF:
            _alike([args[0], given[0]])

    return check


def _held(input: torch.Tensor, *args: Any) -> None:
    """Numbers that the input's type holds."""
    if not input.is_floating_point() or input.device.type != "cpu":
        return  # a GPU computes with the numbers of half types in float32
    most = torch.finfo(input.dtype).max
    for each in args:
        if isinstance(each, int | float) and math.isfinite(each) and abs(each) > most:
            raise LoweringError(f"eager refuses {each}, which {_named([input.dtype])} does not hold")


def _loss_of_classes(input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, *_: Any) -> None:
    if target.dtype not in (torch.int64, torch.uint8):
        raise LoweringError(
            f"eager takes classes of int64 or uint8, and these are of {_named([target.dtype])}"
        )
    _alike([input] if weight is None else [input, weight])


def _of_some(input: torch.Tensor) -> None:
    if any(isinstance(size, int) and size == 0 for size in input.shape):
        raise LoweringError("there is no extreme of no elements")


def _drawn(mean: torch.Tensor, std: torch.Tensor, *_: Any) -> None:
    """Not refused: a fake tensor is of the type that both make, what eager draws of the mean's."""
    if torch.result_type(mean, std) != mean.dtype:
        raise LoweringError(f"eager draws numbers of {_named([mean.dtype])} here, and torch traces others")


def _floating(input: torch.Tensor, *_: Any) -> None:
    if not input.is_floating_point() and not input.is_complex():
        raise LoweringError(f"eager has no kernel for {_named([input.dtype])} here")


def _named(kinds: Any) -> str:
    return " and ".join(str(kind).removeprefix("torch.") for kind in kinds)


_OF_ONE_TYPE = (
    "mm bmm addmm baddbmm mv addmv dot vdot binary_cross_entropy linalg_cross"
    " huber_loss"  # which eager computes in the type of the first
).split()
_NORMS = (
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update"
).split()
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(_OF_ONE_TYPE, _one_type()),
    **dict.fromkeys(_NORMS, _norm(1, 2, 3, 4)),
    "convolution": _one_type(0, 1, 2),
    "index_add": _one_type(0, 3),
    "index_copy": _one_type(0, 3),
    "index_put": _put,
    "native_layer_norm": _norm(2, 3),
    "native_group_norm": _norm(1, 2),
    "nll_loss_forward": _loss_of_classes,
    "nll_loss2d_forward": _loss_of_classes,
    "max": _of_some,
    "min": _of_some,
    "silu": _floating,
    "normal": _drawn,
    **dict.fromkeys(("masked_fill", "clamp_min", "clamp_max"), _held),
}


def checked(table: dict[Any, Rewrite]) -> dict[Any, Rewrite]:
    """The table with each of these operators checked before it is rewritten, or left as it is."""
    found = dict(table)
    for name, check in _CHECKS.items():
        packet = getattr(aten, name, None)  # not every torch has each of these
        for overload in ("default", "no_stats", "Scalar", "Tensor_Tensor"):
            if (op := getattr(packet, overload, None)) is not None:
                found[op] = _after(check, table.get(op))
    return found


def _after(check: Check, rewrite: Rewrite | None) -> Rewrite:
    def checked_rewrite(*args: Any, **kwargs: Any) -> Any:
        check(*args)
        return NotImplemented if rewrite is None else rewrite(*args, **kwargs)

    return checked_rewrite
