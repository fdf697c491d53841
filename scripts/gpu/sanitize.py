"""Run one kernel of each schedule on a GPU, to be watched by compute-sanitizer.

    compute-sanitizer --tool memcheck python3 scripts/gpu/sanitize.py
    compute-sanitizer --tool racecheck python3 scripts/gpu/sanitize.py
    python3 scripts/gpu/sanitize.py softmax_rows full_sum       only these

The programs are those of tests/golden at their small sizes, cut up as at the large ones: the code that the
interpreter runs in the tests. Prints one line a program: its schedules, its Triton functions, whether the
numbers are eager's. Fails if any are not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.golden.triton_programs import GpuProgram

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("NBCOMPILE_CACHE_DIR", tempfile.mkdtemp(prefix="nbcompile-sanitize-"))

PROGRAMS = (
    "pointwise_chain", "cat_pad", "adamw_in_place", "transposed_read", "normalized_by_rows",
    "softmax_rows", "softmax_several_rows", "layer_norm_gelu", "short_columns", "dropout_add_norm",
    "arg_max", "softmax_looped", "logsumexp_looped", "cross_entropy",
    "full_sum", "mean_squared_error", "variance_split", "column_sums", "sum_of_two_orders",
    "log_softmax_odd_rows", "columns_of_padded", "cross_entropy_with_z_loss", "log_softmax_and_normalizer",
    "softmax_shared_rows", "log_softmax_ragged", "layer_norm_shared_rows", "softmax_columns",
    "batch_norm_relu", "batch_norm_relu_bf16", "rolled_windows",
    "row_and_column_sums", "layer_norm_backward", "several_owned_rows", "total_of_row_results",
    "scan_of_rows", "scan_of_several_rows", "scan_backwards", "scan_looped", "scan_of_columns",
    "scan_of_short_columns", "scan_split", "scan_split_columns",
    "embedding", "embedding_gradient", "scatter_add_bf16", "scatter_amax_int64",
    "nearest_upsampling", "nearest_upsampling_gradient", "reflection_padding",
    "position_bias_gradient", "token_type_gradient", "small_table_of_short_rows", "small_table_of_long_rows",
    "word_gradient_bf16", "upsampling_gradient_by_given_index",
    "upsampling_gradient_of_planes_by_given_index",
)  # fmt: skip


def main(names: list[str]) -> int:
    """Run the programs of these names (all of PROGRAMS without any); how many failed."""
    from tests.golden.every_triton_program import GPU_PROGRAMS

    known = {program.name: program for program in GPU_PROGRAMS}
    missing = [name for name in names or PROGRAMS if name not in known]
    if missing:
        print(f"no such programs: {', '.join(missing)}")
        return len(missing)
    failed = 0
    for name in names or PROGRAMS:
        start = time.perf_counter()
        try:
            said = run(known[name])
        except Exception as error:  # each program is reported, whatever it raises
            said, failed = f"FAILED: {type(error).__name__}: {str(error).strip()}", failed + 1
        print(f"{name:24} {time.perf_counter() - start:5.1f} s  {said}", flush=True)
    print(f"{len(names or PROGRAMS) - failed} of {len(names or PROGRAMS)} agree with eager")
    return failed


def run(program: GpuProgram) -> str:
    """One program on the GPU, compared with eager on the CPU: its schedules and functions."""
    import torch

    from tests.compiler.codegen.running import aten_of
    from tests.compiler.codegen.triton_running import generated, run_on_gpu, small_chip, titles
    from tests.golden.checking import check

    torch.manual_seed(0)
    assert program.small is not None
    inputs = program.small()
    graph = aten_of(program.function, *inputs)
    with small_chip(**program.limits) if program.limits else contextlib.nullcontext():
        _, source = generated(graph, program.options)
    check(program, graph, lambda *given: run_on_gpu(source, graph, given), inputs)
    launched = ", ".join(launch.function for launch in source.launches)
    return f"{'; '.join(dict.fromkeys(titles(source)))}: {launched}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
