"""The graphs of AOTAutograd, run op by op: what functionalization and the partition change."""

from nbcompile.backends.base import Backend, of_torch

BACKEND = Backend(
    name="aot_eager",
    summary="AOTAutograd's forward and backward graphs, run op by op",
    compiler=of_torch("aot_eager"),
)
