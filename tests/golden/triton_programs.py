"""The programs whose Triton kernels are kept as golden files: each at a size that a GPU is bought for, which
is only printed, and at a size that the interpreter runs, cut up in the same way. More of them, by what they
are of, are in the files that :mod:`.every_triton_program` names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn import functional as F

from nbcompile.options import Options
from tests.compiler.codegen.triton_running import H100
from tests.golden.programs import PROGRAMS, edgy

Inputs = Callable[[], tuple[torch.Tensor, ...]]
BF16, F32 = torch.bfloat16, torch.float32
K = 1024
PHILOX = replace(H100, random="philox")


@dataclass(frozen=True, eq=False)
class GpuProgram:
    """``large`` makes the inputs of the golden file (run with fake tensors), ``small`` those of the numbers.

    limits: of :mod:`nbcompile.compiler.schedule.rows` (and ``multiprocessors``) at the small size, so that
            the schedules are those of the large one.
    eager:  whether eager gives the same numbers; else the loop IR's reference does.
    dynamic: captured with symbolic sizes.
    wide:   16-byte accesses that cuda:90's code must have, at least.
    spills: bytes a thread may spill on an NVIDIA chip, at most.
    """

    name: str
    function: Callable[..., Any]
    large: Inputs
    small: Inputs | None
    limits: Mapping[str, int] = field(default_factory=dict)
    options: Options = H100
    eager: bool = True
    dynamic: bool = False
    wide: int = 0
    spills: int = 0


GPU_PROGRAMS: list[GpuProgram] = []
SHORT = {"multiprocessors": 2, "SMALL_DATA": 1, "MANY_POINTS": 1}
ACROSS = {  # rows across memory, too few and too long for a program each
    "multiprocessors": 200, "SMALL_DATA": 1, "serial_points": 50, "shared_row": 0,
    "longest_column": 8, "LONGEST_COLUMN": 8, "WALK_BLOCK": 512,
}  # fmt: skip


def gpu(large: Inputs, small: Inputs | None, **how: Any) -> Callable[[Any], Any]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        GPU_PROGRAMS.append(GpuProgram(function.__name__, function, large, small, **how))
        return function

    return register


def _same(name: str, large: Inputs, small: Inputs | None = None, **how: Any) -> None:
    """A program of the C goldens, at a GPU's size."""
    program = next(item for item in PROGRAMS if item.name == name)
    options = replace(H100, random=program.options.random if not program.eager else "eager")
    inputs = small or program.inputs
    GPU_PROGRAMS.append(
        GpuProgram(
            name, program.function, large, inputs, options=options, eager=program.eager,
            dynamic=program.dynamic, **how,
        )
    )  # fmt: skip


def empty(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def whole(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def floats(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


# -- pointwise -----------------------------------------------------------------------------------------

_same("pointwise_chain", lambda: (empty(8 * K, 8 * K),), lambda: (edgy(33, 70),), wide=2)
_same(
    "broadcast",
    lambda: (empty(16 * K, 4 * K), empty(4 * K), empty(16 * K, 1)),
    lambda: (edgy(37, 96), floats(96), floats(37, 1)),
    wide=2,
)
_same(
    "transposed_read",
    lambda: (empty(8 * K, 8 * K), empty(8 * K, 8 * K)),
    lambda: (edgy(70, 100), floats(100, 70)),
    wide=2,
)
_same(
    "cat_pad",
    lambda: (empty(64, 96, 3000), empty(64, 32, 3000)),
    lambda: (edgy(2, 9, 120), floats(2, 3, 120)),
)
_same(
    "swiglu_bf16",
    lambda: (empty(16 * K, 16 * K, dtype=BF16),),
    lambda: (edgy(24, 256, dtype=BF16),),
    wide=3,
)
_same("adamw_in_place", lambda: tuple(empty(64 * K * K) for _ in range(4)), wide=7)
_same(
    "integers_and_bools",
    lambda: (whole(30_000, 700), whole(30_000, 700, dtype=torch.int32)),
    lambda: (torch.randint(-50, 50, (30, 70)), torch.randint(-50, 50, (30, 70), dtype=torch.int32)),
)
_same(
    "expanded_inputs",
    lambda: (empty(1, 7000).expand(5000, 7000), empty(5000, 1).expand(5000, 7000)),
    lambda: (floats(1, 60).expand(50, 60), floats(50, 1).expand(50, 60)),
)
_same("scalar_and_empty", lambda: (empty(), empty(0, 5)))
_same("dropout_philox", lambda: (empty(16 * K, 4 * K),), lambda: (floats(24, 96),), wide=2)


@gpu(lambda: (empty(64, 56, 56, 96),), lambda: (floats(2, 8, 8, 32),))
def rolled_windows(x):
    windows = x.roll((-3, -3), (1, 2)).unflatten(2, (-1, 4)).unflatten(1, (-1, 4))
    return windows.permute(0, 1, 3, 2, 4, 5).contiguous()


@gpu(
    lambda: (
        empty(64, 2048, 16, 128, dtype=BF16),
        empty(2048, 128, dtype=BF16),
        empty(2048, 128, dtype=BF16),
    ),
    lambda: (floats(2, 3, 8, 64, dtype=BF16), floats(3, 64, dtype=BF16), floats(3, 64, dtype=BF16)),
    wide=4,
)
def rope(x, cos, sin):
    left, right = x.chunk(2, -1)
    rotated = torch.cat([-right, left], -1)
    return x * cos[:, None] + rotated * sin[:, None]


@gpu(
    lambda: (empty(33 * K, 64 * K, dtype=BF16), empty(64 * K, dtype=BF16)),
    None,
    wide=3,
)
def more_than_2_31_elements(x, bias):
    return torch.relu(x + bias)


@gpu(
    lambda: (
        empty(64, 56, 56, 256, dtype=BF16).permute(0, 3, 1, 2),
        empty(64, 256, 56, 56, dtype=BF16),
        empty(256),
    ),
    lambda: (
        floats(2, 6, 6, 40, dtype=BF16).permute(0, 3, 1, 2), floats(2, 40, 6, 6, dtype=BF16), floats(40),
    ),
    wide=4,
)  # fmt: skip
def channels_last_and_first(x, y, scale):
    return x * scale[:, None, None] + y


@gpu(
    lambda: (empty(64, 256, 56, 56), *(empty(256) for _ in range(4))),
    lambda: (edgy(2, 5, 24, 24), *(floats(5).abs() for _ in range(4))),
    limits=SHORT,
    wide=2,
)
def batch_norm_relu_eval(x, mean, variance, weight, bias):
    return torch.relu(F.batch_norm(x, mean, variance, weight, bias, training=False))


@gpu(
    lambda: (empty(32 * K, 4 * K, dtype=BF16), empty(32 * K, 1), empty(32 * K, 1), empty(4 * K)),
    lambda: (edgy(7, 512, dtype=BF16), floats(7, 1), floats(7, 1), floats(512)),
    limits=SHORT, wide=3,
)  # fmt: skip
def normalized_by_rows(x, mean, variance, weight):
    return (x - mean) * torch.rsqrt(variance.abs() + 1e-5) * weight


# -- rows ----------------------------------------------------------------------------------------------

_same(
    "softmax_rows",
    lambda: (empty(16 * K, 8 * K, dtype=BF16),),
    lambda: (edgy(9, 768, dtype=BF16),),
    limits={"multiprocessors": 16},
    wide=2,
)
_same(
    "softmax_columns",
    lambda: (empty(8 * K, 4 * K),),
    lambda: (edgy(100, 70),),
    limits=ACROSS,
    wide=8,
    spills=224,
)
_same(
    "layer_norm_gelu",
    lambda: (empty(32 * K, 768, dtype=BF16), empty(768, dtype=BF16), empty(768, dtype=BF16)),
    lambda: (edgy(9, 768, dtype=BF16), floats(768, dtype=BF16), floats(768, dtype=BF16)),
    limits=SHORT,
)
_same(
    "rms_norm_bf16",
    lambda: (empty(32 * K, 4 * K, dtype=BF16), empty(4 * K, dtype=BF16)),
    lambda: (edgy(9, 4 * K, dtype=BF16), floats(4 * K, dtype=BF16)),
    limits=SHORT,
    wide=3,
)
_same("full_sum", lambda: (empty(16 * K, 16 * K),), lambda: (floats(64, 768),), limits=SHORT, wide=1)
_same(
    "row_and_column_sums",
    lambda: (empty(16 * K, 16 * K),),
    lambda: (edgy(40, 256),),
    limits=SHORT,
    wide=1,
)
_same(
    "arg_max",
    lambda: (empty(4 * K, 128 * K),),
    lambda: (edgy(20, 700),),
    limits=SHORT | {"LONGEST_ROW": 256},
    wide=1,
)
_same(
    "cross_entropy",
    lambda: (empty(8 * K, 128 * K, dtype=BF16), whole(8 * K)),
    lambda: (floats(8, 1000, dtype=BF16), torch.randint(1000, (8,))),
    limits=SHORT | {"LONGEST_ROW": 8},
)


@gpu(
    lambda: (empty(256 * K, 100),),
    lambda: (edgy(50, 100),),
    limits=SHORT,
    wide=2,
)
def softmax_several_rows(x):
    return torch.softmax(x, -1)


@gpu(
    lambda: (empty(4 * K, 128 * K),),
    lambda: (edgy(6, 1024),),
    limits=SHORT | {"multiprocessors": 4, "PART": 256, "LONGEST_ROW": 256},
    wide=2,
)
def softmax_shared_rows(x):
    return torch.softmax(x, -1)


@gpu(
    lambda: (empty(8 * K, 100_003),),
    lambda: (edgy(6, 1003),),
    limits=SHORT | {"multiprocessors": 4, "PART": 256, "LONGEST_ROW": 256},
    spills=288,
)
def log_softmax_ragged(x):
    return torch.log_softmax(x * 0.5, -1)


@gpu(
    lambda: (empty(4 * K, 128 * K), empty(128 * K), empty(128 * K)),
    lambda: (floats(6, 1024), floats(1024), floats(1024)),
    limits=SHORT | {"multiprocessors": 4, "PART": 256, "LONGEST_ROW": 256},
    wide=2,
)
def layer_norm_shared_rows(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias)


@gpu(
    lambda: (empty(256, 4 * K * K, dtype=BF16),),
    lambda: (edgy(3, 3000, dtype=BF16),),
    limits=SHORT | {"LONGEST_ROW": 256, "PART": 256},
    wide=3,
)
def softmax_looped(x):
    return torch.softmax(x.float(), -1)


@gpu(
    lambda: (empty(256, 4 * K * K, dtype=BF16),),
    lambda: (edgy(3, 3000, dtype=BF16),),
    limits=SHORT | {"LONGEST_ROW": 256, "PART": 256},
    wide=1,
)
def logsumexp_looped(x):
    return torch.logsumexp(x, -1)


@gpu(
    lambda: (empty(8, 32 * K * K),),
    lambda: (floats(2, 40_000) * 3 + 100,),
    limits=SHORT | {"LONGEST_ROW": 256},
    wide=1,
)
def variance_split(x):
    return torch.var_mean(x, -1)


@gpu(
    lambda: (empty(16 * K, 4 * K), empty(16 * K, 4 * K, dtype=torch.bool)),
    lambda: (edgy(9, 250), torch.rand(9, 250) > 0.5),
    limits=SHORT,
    wide=4,
)
def masked_softmax(x, mask):
    return torch.softmax(torch.where(mask, x * 0.125, -math.inf), -1)


@gpu(
    lambda: tuple(empty(*shape, dtype=BF16) for shape in [(32 * K, 4 * K)] * 2 + [(4 * K,)] * 2),
    lambda: tuple(floats(*shape, dtype=BF16) for shape in [(9, 256)] * 2 + [(256,)] * 2),
    limits=SHORT,
    options=PHILOX,
    eager=False,
    wide=3,
)  # fmt: skip
def dropout_add_norm(x, residual, weight, bias):
    return F.layer_norm(torch.native_dropout(x, 0.1, True)[0] + residual, weight.shape, weight, bias)


# -- sums over the rows, columns, channels ---------------------------------------------------------------


def _norm_gradient(rows: int, length: int, make: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
    half = [make(rows, length, dtype=BF16) for _ in range(2)]
    return (*half, make(rows, 1), make(rows, 1).abs(), make(length), make(length))


@gpu(
    lambda: _norm_gradient(32 * K, 4 * K, empty),
    lambda: _norm_gradient(13, 512, floats),
    limits=SHORT,
    wide=3,
)
def layer_norm_backward(grad, x, mean, rstd, weight, bias):
    shape = list(weight.shape)
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, shape, mean, rstd, weight, bias, [True, True, True]
    )


@gpu(
    lambda: (*(empty(16 * K, 128, dtype=BF16) for _ in range(2)), empty(16 * K, 1)),
    lambda: (*(floats(40, 128, dtype=BF16) for _ in range(2)), floats(40, 1)),
    limits=SHORT,
    wide=4,
)
def several_owned_rows(grad, x, scale):
    wide = grad.float() * x.float() * scale
    return wide.sum(-1), wide.sum(0), grad.float().sum(0)


@gpu(
    lambda: (empty(32 * K, 100, 100),),
    lambda: (floats(30, 10, 10),),
    limits=SHORT,
    wide=2,
)
def total_of_row_results(x):
    rows = x.flatten(1).square().mean(1)
    return rows, rows.sum()


@gpu(
    lambda: (empty(64 * K, 4 * K, dtype=BF16),),
    lambda: (floats(500, 72, dtype=BF16),),
    limits=SHORT | {"multiprocessors": 4, "LONGEST_COLUMN": 32},
    wide=1,
)
def column_sums(x):
    return x.float().sum(0), x.float().square().sum(0)


@gpu(lambda: (empty(64, 64 * K * K),), None, wide=1)
def columns_of_more_than_2_31_elements(x):
    return x.sum(0), x.argmax(0)


@gpu(lambda: (empty(4 * K, 32, 4 * K),), lambda: (floats(5, 32, 70),), limits=SHORT, wide=1)
def short_columns(x):
    return x.amax(1)


LONG_ROWS = SHORT | {"LONGEST_ROW": 256, "PART": 256, "TOGETHER": 64}


@gpu(
    lambda: (empty(64, 256, 56, 56), empty(256), empty(256)),
    lambda: (floats(4, 3, 16, 16) + 7, floats(3), floats(3)),
    limits=LONG_ROWS, wide=8, spills=96,
)  # fmt: skip
def batch_norm_relu(x, weight, bias):
    return torch.relu(F.batch_norm(x, None, None, weight, bias, training=True))


@gpu(
    lambda: (empty(64, 64, 112, 112, dtype=BF16), empty(64, dtype=BF16), empty(64, dtype=BF16)),
    lambda: (floats(4, 3, 16, 16, dtype=BF16), floats(3, dtype=BF16), floats(3, dtype=BF16)),
    limits=LONG_ROWS | {"multiprocessors": 4}, wide=2,
)  # fmt: skip
def batch_norm_relu_bf16(x, weight, bias):
    return torch.relu(F.batch_norm(x, None, None, weight, bias, training=True))


@gpu(
    lambda: (empty(64, 56, 56, 256).permute(0, 3, 1, 2), empty(256), empty(256)),
    lambda: (floats(4, 16, 16, 64).permute(0, 3, 1, 2) + 7, floats(64), floats(64)),
    limits=ACROSS,
    wide=4,
)
def batch_norm_channels_last(x, weight, bias):
    return torch.relu(F.batch_norm(x, None, None, weight, bias, training=True))


# -- gathers and scatters --------------------------------------------------------------------------------

_same(
    "embedding",
    lambda: (empty(50_257, 768), whole(32, 1024)),
    lambda: (floats(100, 64), torch.randint(100, (4, 6))),
)
_same(
    "embedding_gradient",
    lambda: (empty(32, 1024, 768), whole(32, 1024)),
    lambda: (floats(4, 6, 64), torch.randint(100, (4, 6))),
)
_same(
    "index_put_accumulate",
    lambda: (empty(100_000, 64), whole(40_000), empty(40_000, 64)),
    lambda: (floats(20, 64), torch.randint(-20, 20, (30,)), floats(30, 64)),
)


@gpu(
    lambda: (empty(32 * K, 1024, dtype=BF16), whole(32 * K, 1024), empty(32 * K, 1024, dtype=BF16)),
    lambda: (floats(10, 64, dtype=BF16), torch.randint(10, (12, 64)), floats(12, 64, dtype=BF16)),
    wide=3,
)
def scatter_add_bf16(x, places, values):
    return torch.scatter_add(x, 0, places, values)


@gpu(
    lambda: (whole(1000, 512), whole(32 * K, 512), whole(32 * K, 512)),
    lambda: (whole(10, 64).fill_(3), torch.randint(10, (30, 64)), torch.randint(-9, 9, (30, 64))),
)
def scatter_amax_int64(x, places, values):
    return torch.scatter_reduce(x, 0, places, values, "amax")


@gpu(
    lambda: (empty(50_257, 1024, dtype=BF16), whole(16 * K), empty(1024, dtype=BF16)),
    lambda: (floats(90, 256, dtype=BF16), torch.randint(-90, 90, (9,)), floats(256, dtype=BF16)),
    limits=SHORT,
    wide=3,
)
def gathered_rows_norm(table, rows, weight):
    wide = table[rows].float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(table.dtype) * weight


_same(
    "dynamic_softmax",
    lambda: (empty(4000, 1000),),
    lambda: (floats(33, 129),),
    limits=SHORT,
)


@gpu(lambda: (empty(4000, 1000),), lambda: (floats(33, 70),), limits=SHORT, dynamic=True)
def dynamic_sums(x):
    return (x * 2).sum(0), x.amax(1)


@gpu(lambda: (empty(4000, 1000), empty(1000)), lambda: (floats(33, 70), floats(70)), dynamic=True)
def dynamic_pointwise(x, bias):
    return torch.tanh(x + bias).t().contiguous()
