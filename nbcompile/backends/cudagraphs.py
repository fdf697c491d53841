"""Eager mode's own kernels, recorded once as CUDA graphs and replayed."""

from nbcompile.backends.base import Backend, of_torch

BACKEND = Backend(
    name="cudagraphs",
    summary="eager's kernels, replayed as CUDA graphs",
    compiler=of_torch("cudagraphs"),
    devices=("cuda",),
)
